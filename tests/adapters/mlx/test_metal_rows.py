"""Rows through our Metal kernels, run by the emulator: exact in every family, and left out where they do not hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.adapters.mlx.blocks.key_values_metal import MetalKeyValues
from tensorfold.adapters.mlx.forward import Forward
from tensorfold.adapters.mlx.layouts import lay_out
from tensorfold.adapters.mlx.rows_library import LibraryRows
from tensorfold.adapters.mlx.rows_metal import MetalRows
from tensorfold.adapters.mlx.trust import UNITS
from tensorfold.domain.families.ops import Attention
from tensorfold.domain.windows import chain, tree
from tensorfold.kernels.metal import affine, recurrence
from tests.adapters.mlx.tiny_families import TinyFamily, stepped, tiny_family
from tests.emulator.kernel import emulated
from tests.emulator.orders import ORDERS
from tests.synthetic.plan_checkpoints import LAYOUTS
from tests.synthetic.tiny_configs import FAMILIES

TOKENS = [5, 9, 77, 31, 8]
PAIRS = [(family, at % len(ORDERS)) for at, family in enumerate(FAMILIES)] + [("qwen3_5", 1), ("qwen3_5", 2)]
"""Every family under some order, and one under all of them."""
WINDOW = tree(5, [3, 9, 4, 77], [0, 0, 2, 2])
"""Whose rows 0, 2 and 4 follow each other."""


def built(one: TinyFamily, dtype: str = "float32") -> tuple[Forward[Any], MetalRows]:
    ops = MetalRows(dtype)
    return one.forward(ops), ops


def left_out(ops: MetalRows) -> set[str]:
    return {kind for (kind, _), answer in ops.trust.answers.items() if not answer}


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> TinyFamily:
    return tiny_family(tmp_path_factory.mktemp("hybrid"), "qwen3_5", quantization=LAYOUTS["qwen3_5"])


@pytest.mark.slow
@pytest.mark.parametrize(("family", "order"), PAIRS)
def test_windows_trees_and_steps_have_the_same_bits_under_every_order(family: str, order: int, tmp_path: Path) -> None:
    quantization = LAYOUTS[family] if order % 2 else None
    one = tiny_family(tmp_path, family, quantization=quantization)
    plain = one.forward(LibraryRows("float32"))
    with emulated(ORDERS[order]):
        forward, ops = built(one)
        steps_lane, lane = forward.open(64), forward.open(64)
        steps = stepped(forward, steps_lane, TOKENS[:3])
        made = forward.logits(lane, WINDOW)
        assert np.array_equal(made[[0, 2, 4]], steps)
        lane.keep((0, 2, 4))
        assert [state.export() for state in lane.layers] == [state.export() for state in steps_lane.layers]
        more = forward.logits(lane, chain(TOKENS[3], TOKENS[4:]))
        assert np.array_equal(more, stepped(forward, steps_lane, TOKENS[3:]))
    # The form that adds in the hardware's own order may differ from the other; nothing else may.
    assert all(kind.endswith(UNITS) for kind in left_out(ops))
    wanted = stepped(plain, plain.open(64), TOKENS)
    assert np.abs(np.concatenate([steps, more]) - wanted).max() <= 1e-4


@pytest.mark.slow
def test_half_precision_rows_have_the_same_bits_too(hybrid: TinyFamily) -> None:
    with emulated(ORDERS[1]):
        forward, ops = built(hybrid, "bfloat16")
        lane = forward.open(64)
        made = forward.logits(lane, chain(TOKENS[0], TOKENS[1:3]))
        assert np.array_equal(made, stepped(forward, forward.open(64), TOKENS[:3]))
    assert all(kind.endswith(UNITS) for kind in left_out(ops))


def test_on_a_device_that_runs_no_kernel_mlx_serves_the_same_replies(hybrid: TinyFamily) -> None:
    # This machine has no Metal, so that calling a kernel raises: what a device that cannot build one does.
    forward, ops = built(hybrid)
    plain = hybrid.forward(LibraryRows("float32"))
    logits = stepped(forward, forward.open(64), TOKENS)
    assert np.array_equal(logits, stepped(plain, plain.open(64), TOKENS))
    assert ops.trust.answers and not any(ops.trust.answers.values())
    assert all("left out" in line for line in ops.trust.lines())


@pytest.fixture
def in_company(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Products of several rows that round otherwise than those of one."""
    sound = affine.affine_matmul

    def planted(x: mx.array, *rest: Any) -> mx.array:
        made = sound(x, *rest)
        return made if x.shape[0] == 1 else made + mx.abs(made) * 1e-6

    monkeypatch.setattr(affine, "affine_matmul", planted)
    yield


@pytest.mark.usefixtures("in_company")
@pytest.mark.slow
def test_a_kernel_whose_rows_know_of_each_other_is_left_out(hybrid: TinyFamily) -> None:
    with emulated(ORDERS[0]):
        forward, ops = built(hybrid)
        assert "products of codes" in left_out(ops)
        made = forward.logits(forward.open(64), chain(TOKENS[0], TOKENS[1:3]))
        assert np.array_equal(made, stepped(forward, forward.open(64), TOKENS[:3]))
    assert any("products of codes are left out" in line and "MLX's own" in line for line in ops.trust.lines())


@pytest.mark.slow
def test_a_kernel_that_is_wrong_alone_and_in_company_is_left_out(
    hybrid: TinyFamily, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = recurrence.delta_steps
    monkeypatch.setattr(recurrence, "delta_steps", lambda *a: (sound(*a)[0] * 1.01, sound(*a)[1]))
    with emulated(ORDERS[0]):
        forward, ops = built(hybrid)
        stepped(forward, forward.open(64), TOKENS[:1])
    assert "recurrences" in left_out(ops)


@pytest.mark.slow
def test_what_holds_is_told_in_one_line(hybrid: TinyFamily) -> None:
    with emulated(ORDERS[0]):
        forward, ops = built(hybrid)
        stepped(forward, forward.open(64), TOKENS[:1])
    (line,) = ops.trust.lines()
    assert line.startswith("Metal kernels in use") and "products of codes (2)" in line and "attention (1)" in line


@pytest.mark.parametrize("sliding", (0, 8), ids=("full", "a ring"))
def test_a_cache_comes_back_as_it_was_and_wraps_where_it_is_a_ring(sliding: int) -> None:
    op = Attention(heads=2, kv_heads=1, head_dim=32, scale=0.2, window=sliding)
    random = np.random.default_rng(3)

    def rows(count: int, heads: int) -> mx.array:
        return mx.array(random.standard_normal((count, heads, 32), np.float32))

    with emulated(ORDERS[0]):
        state, parts = MetalKeyValues(op, 64, mx.float32), []
        for count, path in ((5, (0, 1, 2, 3, 4)), (4, (0, 2)), (7, tuple(range(7)))):
            window = chain(1, range(2, count + 1)) if path != (0, 2) else tree(1, [2, 3, 4], [0, 0, 2])
            keys, values = rows(count, 1), rows(count, 1)
            state.attend(rows(count, 2), keys, values, lay_out(window, state.length))
            state.keep(path)
            parts.append(np.array(keys)[list(path)])
        held = np.concatenate(parts)[-(sliding or 14) :]
        assert state.length == 14 and state.export()[0] == held.tobytes()
        twin, loaded = state.fork(), MetalKeyValues(op, 64, mx.float32)
        loaded.load(state.export(), 14)
        query, key, value, layout = rows(1, 2), rows(1, 1), rows(1, 1), lay_out(chain(1), 14)
        read = [np.array(each.attend(query, key, value, layout)) for each in (state, twin, loaded)]
        assert np.array_equal(read[0], read[1]) and np.array_equal(read[0], read[2])
        state.keep((0,))
        assert (state.length, twin.length) == (15, 14) and twin.export() == loaded.export()
        with pytest.raises(ValueError, match="bytes"):
            loaded.load((b"", b""), 3)
