"""The emulator declares what MLX declares: its signatures against those that MLX itself generates.

Without a Mac MLX runs no kernel, but while a function is exported it takes the call down, its generated source with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from tensorfold.kernels.metal import affine, attention, conv, norms, recurrence, router, selection
from tensorfold.kernels.metal.windows import window
from tests.emulator import build
from tests.emulator.kernel import emulated

SIGNATURE = re.compile(r"(template <[^>]*>)?\s*\[\[kernel\]\] void (\w+)\(\n(.*?)\) \{", re.S)
OURS = re.compile(r"(template <[^>]*>)?\s*static void body\((.*?)\) \{\n#line", re.S)
SPELLINGS = {"bfloat16_t": "bfloat", "float16_t": "half", "int32_t": "int", "uint32_t": "uint"}


def words(parameters: str) -> list[str]:
    """Parameters as types and names, without address spaces and attributes."""
    plain = re.sub(r"\[\[.*?\]\]|\b(?:device|constant)\b", "", parameters)
    for theirs, ours in SPELLINGS.items():
        plain = re.sub(rf"\b{theirs}\b", ours, plain)
    return [" ".join(one.split()) for one in plain.split(",") if one.strip()]


def of_mlx(run: Callable[..., Any], arrays: list[mx.array], folder: Path) -> list[tuple[str, str, list[str]]]:
    """Name, template line and parameters of every kernel that MLX generates for `run`."""
    file = folder / "exported.mlxfn"
    mx.export_function(str(file), run, *arrays)
    found = SIGNATURE.findall(file.read_bytes().decode("latin1"))
    return [(name.removeprefix("custom_kernel_"), head, words(body)) for head, name, body in found]


def of_the_emulator(
    run: Callable[..., Any], arrays: list[mx.array], monkeypatch: pytest.MonkeyPatch
) -> dict[str, tuple[str, list[str]]]:
    """The same from the files that the emulator compiles."""
    found: dict[str, tuple[str, list[str]]] = {}
    compiled = build.compiled

    def noted(name: str, source: str, contract: bool) -> Path:
        signature = OURS.search(source)
        if signature:
            found[name] = (signature.group(1) or "", words(signature.group(2)))
        return compiled(name, source, contract)

    monkeypatch.setattr(build, "compiled", noted)
    with emulated():
        mx.eval(run(*arrays))
    return found


def zeros(*shape: int, dtype: mx.Dtype = mx.float32) -> mx.array:
    return mx.zeros(shape, dtype)


def bfloats(*shape: int) -> mx.array:
    return mx.zeros(shape, mx.bfloat16)


CHAIN = window([-1, 0])
CALLS: dict[str, tuple[Callable[..., Any], list[mx.array]]] = {
    "affine scalar": (
        lambda x, w, s, b: affine.affine_scalar(x, w, s, b, 4, 32),
        [bfloats(2, 64), zeros(8, 8, dtype=mx.uint32), bfloats(8, 2), bfloats(8, 2)],
    ),
    "affine matrix": (
        lambda x, w, s, b: affine.affine_matrix(x, w, s, b, 4, 32),
        [zeros(2, 64), zeros(8, 8, dtype=mx.uint32), zeros(8, 2), zeros(8, 2)],
    ),
    "attention": (
        lambda q, k, v, own_k, own_v: attention.attend(q, k, v, own_k, own_v, CHAIN, 5, 0.1),
        [bfloats(2, 2, 64), bfloats(9, 1, 64), bfloats(9, 1, 64), bfloats(2, 1, 64), bfloats(2, 1, 64)],
    ),
    "delta": (
        lambda q, k, v, decay, strength, state: recurrence.delta_steps(q, k, v, decay, strength, state, CHAIN),
        [zeros(2, 1, 8), zeros(2, 1, 8), zeros(2, 1, 8), zeros(2, 1), zeros(2, 1), zeros(1, 8, 8)],
    ),
    "conv": (
        lambda x, tail, weight: conv.short_conv(x, tail, weight, CHAIN),
        [bfloats(2, 8), bfloats(3, 8), bfloats(8, 4)],
    ),
    "norm": (lambda x, other: norms.add_rms_norm(x, other, None, 1e-6), [bfloats(2, 64), bfloats(2, 64)]),
    "router": (lambda a: router.route(a, 2, "sigmoid"), [zeros(1, 4)]),
    "candidates": (lambda a: selection.candidates(a, 4), [mx.zeros((1, 40), mx.float16)]),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_launch_has_the_signature_that_mlx_generates(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, arrays = CALLS[call]
    compare(of_mlx(run, arrays, tmp_path), of_the_emulator(run, arrays, monkeypatch))


def compare(theirs: list[tuple[str, str, list[str]]], ours: dict[str, tuple[str, list[str]]]) -> None:
    """MLX puts template arguments and types behind a kernel's name."""
    assert len(theirs) == len(ours) > 0
    for name, template, parameters in theirs:
        known = max((one for one in ours if name.startswith(f"{one}_")), key=len)
        assert ours[known] == (template, parameters)


def test_shapes_attributes_and_small_inputs_are_declared_as_mlx_declares_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = """
      out[thread_position_in_grid.x] = a_shape[0] + b_ndim + int(b_strides[0]) + c + int(simdgroups_per_threadgroup)
          + int(threadgroups_per_grid.x + threads_per_grid.y + dispatch_threads_per_threadgroup.x)
          + int(thread_index_in_threadgroup);
    """

    def run(*arrays: mx.array) -> Any:
        built: Any = mx.fast.metal_kernel("tried", ["a", "b", "c"], ["out"], body)
        return built(
            inputs=list(arrays), grid=(8, 1, 1), threadgroup=(8, 1, 1), output_shapes=[(8,)], output_dtypes=[mx.float32]
        )

    arrays = [bfloats(9), zeros(2, 2), mx.array(3)]
    compare(of_mlx(run, arrays, tmp_path), of_the_emulator(run, arrays, monkeypatch))
