"""The emulator itself: what it computes, and that it notices each kind of mistake it is there for."""

from __future__ import annotations

import shutil
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tests.emulator import build
from tests.emulator.errors import EmulatorError
from tests.emulator.kernel import emulated
from tests.emulator.linter import complaints
from tests.emulator.orders import ORDERS, PLAIN, Order


def launch(
    body: str,
    *inputs: Any,
    order: Order = PLAIN,
    header: str = "",
    shape: tuple[int, ...] = (64,),
    dtype: mx.Dtype = mx.float32,
    grid: tuple[int, int, int] = (64, 1, 1),
    threadgroup: tuple[int, int, int] = (64, 1, 1),
    template: list[tuple[str, Any]] | None = None,
) -> np.ndarray[Any, Any]:
    """Run a body with inputs a, b, ... and one output `out`."""
    with emulated(order):
        kernel: Any = mx.fast.metal_kernel("tried", list("abcdef"[: len(inputs)]), ["out"], body, header)
        made = kernel(
            inputs=list(inputs),
            template=template,
            grid=grid,
            threadgroup=threadgroup,
            output_shapes=[shape],
            output_dtypes=[dtype],
        )
    return np.array(made[0].astype(mx.float32) if dtype in (mx.bfloat16, mx.float16) else made[0])


SUM = """
  threadgroup float parts[2];
  const uint lane = thread_index_in_simdgroup, simdgroup = simdgroup_index_in_threadgroup;
  const float sum = simd_sum(a[thread_position_in_grid.x]);
  if (lane == 0) parts[simdgroup] = sum;
  BARRIER
  out[thread_position_in_grid.x] = parts[0] + parts[1];
"""
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"


@pytest.mark.parametrize("order", ORDERS)
def test_a_sum_over_two_simdgroups_is_right_under_every_order(order: Order) -> None:
    values = np.random.default_rng(1).standard_normal(64).astype(np.float32)
    made = launch(SUM.replace("BARRIER", BARRIER), mx.array(values), order=order)
    assert np.allclose(made, values.astype(np.float64).sum(), atol=1e-5) and len(set(made.tolist())) == 1


def test_orders_of_a_sum_differ_in_their_last_bits() -> None:
    values = mx.array(np.random.default_rng(2).standard_normal(64).astype(np.float32) * 1e3)
    assert len({float(launch(SUM.replace("BARRIER", BARRIER), values, order=order)[0]) for order in ORDERS}) > 1


def test_a_removed_barrier_shows_as_poison() -> None:
    assert np.isnan(launch(SUM.replace("BARRIER", ""), mx.zeros(64))).any()


def test_a_barrier_missing_between_reading_and_writing_again_shows_under_another_thread_order() -> None:
    body = f"""
      threadgroup int shared[1];
      int seen = 0;
      for (int i = 1; i <= 2; i++) {{
        if (thread_index_in_threadgroup == 0) shared[0] = i;
        {BARRIER}
        seen = seen * 10 + shared[0];
        GAP
      }}
      out[thread_position_in_grid.x] = float(seen);
    """
    for threads in ("ascending", "descending"):
        assert (launch(body.replace("GAP", BARRIER), order=Order(threads=threads)) == 12).all()
    assert (launch(body.replace("GAP", ""), order=Order(threads="ascending")) != 12).any()


def test_a_simd_operation_that_part_of_a_simdgroup_reaches_is_refused() -> None:
    with pytest.raises(EmulatorError, match=r"divergent simd operation: thread 0 is at simd_sum in line 1"):
        launch("float v = thread_index_in_simdgroup < 5 ? simd_sum(1.0f) : 0.0f; out[thread_position_in_grid.x] = v;")


def test_two_branches_with_the_same_operation_do_not_meet() -> None:
    body = "uint i = thread_position_in_grid.x; out[i] = i % 2 ? simd_sum(1.0f) : simd_sum(2.0f);"
    with pytest.raises(EmulatorError, match="divergent simd operation"):
        launch(body)


def test_a_barrier_that_some_threads_miss_is_refused() -> None:
    body = f"uint i = thread_position_in_grid.x; if (i < 32) {{ {BARRIER} }} out[i] = 0.0f;"
    with pytest.raises(EmulatorError, match=r"divergent barrier: .* has finished"):
        launch(body)


def test_an_element_that_nobody_wrote_is_named() -> None:
    with pytest.raises(EmulatorError, match=r"output 'out' has 1 elements that nobody wrote, the first at \(7,\)"):
        launch("uint i = thread_position_in_grid.x; if (i != 7) out[i] = 1.0f;")


def test_an_integer_that_looks_like_poison_was_written_all_the_same() -> None:
    assert (launch("out[thread_position_in_grid.x] = -1;", dtype=mx.int32) == -1).all()


def test_accesses_beside_a_buffer_are_refused() -> None:
    write = "uint i = thread_position_in_grid.x; out[i] = 0.0f; if (i == 0) out[64] = 1.0f;"
    with pytest.raises(EmulatorError, match="an access past the end of 'out'"):
        launch(write)
    with pytest.raises(EmulatorError, match="an access past the end of 'a'"):
        launch("uint i = thread_position_in_grid.x; out[i] = a[i + 1];", mx.zeros(64))
    with pytest.raises(EmulatorError, match="a write before the start of 'out'"):
        launch("uint i = thread_position_in_grid.x; out[i] = out[-1] = 0.0f;")
    with pytest.raises(EmulatorError, match="an access before the start of 'a'"):
        launch("uint i = thread_position_in_grid.x; out[i] = a[int(i) - 100000];", mx.zeros(64))
    with pytest.raises(EmulatorError, match="an access to no buffer at all"):
        launch("uint i = thread_position_in_grid.x; out[long(i) * 100000000000] = 0.0f;")
    tile = "threadgroup float t[4]; t[thread_position_in_grid.x % 5] = 1.0f; out[thread_position_in_grid.x] = 0.0f;"
    with pytest.raises(EmulatorError, match="past the end of a threadgroup array of 16 bytes"):
        launch(tile)


def test_more_threadgroup_memory_than_there_is_is_refused() -> None:
    body = "threadgroup float big[8192]; threadgroup float more[1]; big[0] = more[0] = 0.0f; out[0] = big[0];"
    with pytest.raises(EmulatorError, match="32784 bytes of threadgroup memory are asked for, the limit is 32768"):
        launch(body)


def test_a_grid_that_is_no_multiple_of_the_threadgroup_ends_in_a_smaller_one() -> None:
    body = """
      const uint i = thread_position_in_grid.x;
      out[i] = float(threads_per_threadgroup.x) + 1000.0f * float(thread_index_in_simdgroup) + simd_sum(1.0f) * 0.5f;
    """
    made = launch(body, shape=(70,), grid=(70, 1, 1), threadgroup=(48, 1, 1))
    assert made[0] == 48 + 16 and made[47] == 48 + 15000 + 8 and made[69] == 22 + 21000 + 11


def test_a_shuffle_from_a_lane_that_does_not_exist_is_refused() -> None:
    with pytest.raises(EmulatorError, match="reads a lane that does not exist"):
        launch("out[thread_position_in_grid.x] = simd_shuffle(1.0f, 30);", grid=(16, 1, 1), threadgroup=(16, 1, 1))


def test_shapes_strides_scalars_and_template_arguments_arrive_as_mlx_passes_them() -> None:
    body = """
      const uint i = thread_position_in_grid.x;
      out[i] = T(float(a_shape[0] * 1000 + a_shape[1] * 100 + int(a_strides[0]) * 10 + a_ndim) + b + (FLAG ? N : 0));
    """
    made = launch(body, mx.zeros((3, 4)), 0.5, template=[("T", mx.float32), ("N", 7), ("FLAG", True)])
    assert (made == 3000 + 400 + 40 + 2 + 0.5 + 7).all()


@pytest.mark.parametrize(("name", "dtype"), (("half", mx.float16), ("bfloat", mx.bfloat16)))
def test_small_floats_round_after_every_operation(name: str, dtype: mx.Dtype) -> None:
    values = mx.array(np.random.default_rng(3).standard_normal((3, 64)), mx.float32).astype(dtype)
    a, b, c = values
    made = launch("uint i = thread_position_in_grid.x; out[i] = a[i] * b[i] + c[i];", a, b, c, dtype=dtype)
    rounded = (a.astype(mx.float32) * b.astype(mx.float32)).astype(dtype).astype(mx.float32)
    assert np.array_equal(made, np.array((rounded + c.astype(mx.float32)).astype(dtype).astype(mx.float32)))


def test_vectors_have_parts_and_arithmetic() -> None:
    body = """
      const float4 v = float4(1.0f, 2.0f, 3.0f, 4.0f) * 2.0f + float4(1.0f);
      out[thread_position_in_grid.x] = v.w + v.zw.x + v[0] + dot(float2(v.x, v.y), float2(1.0f, 10.0f));
    """
    assert (launch(body) == 9 + 7 + 3 + 53).all()


MATRICES = """
  simdgroup_float8x8 left, right, sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  simdgroup_load(left, a, 8);
  simdgroup_load(right, b, 8);
  simdgroup_multiply_accumulate(sum, left, right, sum);
  simdgroup_store(sum, out, 8);
"""


@pytest.mark.parametrize("order", ORDERS)
def test_matrices_multiply_under_every_order_and_ascending_is_a_chain(order: Order) -> None:
    a, b = np.random.default_rng(4).standard_normal((2, 8, 8)).astype(np.float32)
    made = launch(
        MATRICES, mx.array(a), mx.array(b), order=order, shape=(8, 8), grid=(32, 1, 1), threadgroup=(32, 1, 1)
    )
    assert np.abs(made - a.astype(np.float64) @ b.astype(np.float64)).max() < 1e-5
    chain = "uint i = thread_position_in_grid.x; float s = 0.0f; for (int k = 0; k < 8; k++) "
    chain += "s = fma(a[i / 8 * 8 + k], b[k * 8 + i % 8], s); out[i] = s;"
    alone = launch(chain, mx.array(a), mx.array(b), shape=(8, 8))
    assert np.array_equal(made, alone) == (order.chain == "ascending")


def test_contraction_changes_bits_only_where_it_is_asked_for() -> None:
    body = "uint i = thread_position_in_grid.x; out[i] = a[i] * a[i] - b[i];"
    a = np.random.default_rng(5).standard_normal(64).astype(np.float32)
    plain, fused = (launch(body, mx.array(a), mx.array(a * a), order=Order(contract=c)) for c in (False, True))
    assert (plain == 0).all() and (fused != 0).any()


@pytest.mark.parametrize(
    ("body", "message"),
    (
        ("float* p = a;", "names no address space"),
        ("thread float x[2]; thread float& r = x[0]; float& s = x[1];", "'float &' names no address space"),
        ("threadgroup float* p = a;", "'p' points into threadgroup memory, 'a' lies in device memory"),
        ("const device float* p = b;", "'b' lies in constant memory"),
        ("float x = 1.0;", "the literal 1.0 needs an f"),
        ("float x = 1e-6;", "the literal 1e-6 needs an f"),
        ("double x = 1.0f;", "there is no double"),
        ("try { } catch (int e) { }", "there are no exceptions"),
        ("int half = 1;", "'half' is a word of the language"),
        ("static int x = 0;", "there are no static variables"),
        ("thread auto f = [&](int x) { return x; };", "there are no lambdas"),
        ("threadgroup float x[2], y[2];", "one threadgroup array a statement"),
    ),
)
def test_what_metal_refuses_is_found_in_the_text(body: str, message: str) -> None:
    assert any(message in one for one in complaints(body, "", {"a": "device", "b": "constant"}))


def test_headers_are_read_too() -> None:
    ok = "inline float twice(const device float* p) { return p[0] * 2.0f; }"
    assert complaints("out[0] = twice(a);", ok, {"a": "device"}) == []
    loop = "inline int f(int n) { return g(n); } inline int g(int n) { return n ? f(n - 1) : 0; }"
    assert any("calls itself" in one for one in complaints("", loop, {}))
    assert any("virtual" in one for one in complaints("", "struct S { virtual int f() { return 1; } };", {}))


def test_a_small_input_lies_in_constant_memory_and_cannot_be_pointed_at() -> None:
    body = "const device float* p = a; out[thread_position_in_grid.x] = p[0];"
    assert (launch(body, mx.zeros(8)) == 0).all()
    with pytest.raises(EmulatorError, match="'a' lies in constant memory"):
        launch(body, mx.zeros(7))
    with pytest.raises(EmulatorError, match="'a' has too few elements for device memory and may only be indexed"):
        launch("out[thread_position_in_grid.x] = first(a);", mx.zeros(7), header="float first(const device float* p);")
    assert (launch("out[thread_position_in_grid.x] = a[6] + a_shape[0];", mx.zeros(7)) == 7).all()


def test_attributes_are_not_seen_by_the_header() -> None:
    with pytest.raises(EmulatorError, match=r"does not compile: .*thread_index_in_simdgroup"):
        launch("out[0] = f();", header="inline float f() { return float(thread_index_in_simdgroup); }")


def test_a_missing_compiler_fails_with_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(EmulatorError, match=r"needs g\+\+, which is not installed"):
        build.compiled("tried", "// a text that was never compiled", False)


def test_outside_the_block_mlx_is_itself() -> None:
    real = mx.fast.metal_kernel
    with emulated():
        assert mx.fast.metal_kernel is not real
    assert mx.fast.metal_kernel is real
