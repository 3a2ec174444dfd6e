"""Mamba-2: near its float64 reference, and the same bits and state in any window."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.adapters.mlx.blocks.recurrence import RecurrentState
from tensorfold.adapters.mlx.blocks.short_conv import ConvState
from tensorfold.domain.families.ops import Mamba2, Norm, ShortConv
from tensorfold.domain.windows import chain
from tensorfold.kernels.reference.linear import linear
from tensorfold.kernels.reference.mamba2 import gate_then_norm, mamba2_step, step_sizes
from tensorfold.kernels.reference.short_conv import no_history, short_conv
from tests.adapters.mlx.blocks.held_op import (
    OneOp,
    arithmetics,
    assert_state_travels,
    assert_trees_keep_bits,
    assert_windows_keep_bits,
    rows_of,
)

WIDTH, HEADS, DIM, STATE, GROUPS = 24, 6, 8, 10, 3
INNER, CHANNELS = HEADS * DIM, HEADS * DIM + 2 * GROUPS * STATE
OPS = arithmetics()


def plan(bias: bool = True, limit: tuple[float, float] | None = None) -> Mamba2:
    conv = ShortConv(CHANNELS, 4, bias=bias)
    return Mamba2(HEADS, DIM, STATE, GROUPS, conv, Norm(1e-5, groups=GROUPS), projection_bias=bias, step_limit=limit)


def reference(one: OneOp, op: Mamba2, rows: NDArray[np.float64]) -> NDArray[np.float64]:
    biases = {name: values.astype(np.float64) for name, values in one.weights.biases.items()}
    state, history = np.zeros((HEADS, DIM, STATE)), no_history(CHANNELS, 4)
    out = []
    for row in rows:
        made = linear(row, one.exact("in"), biases.get("op.in"))
        z, mixed, dt = np.split(made, [INNER, INNER + CHANNELS])
        mixed, history = short_conv(history, mixed, one.exact("conv")[:, 0], bias=biases.get("op.conv"))
        steps = step_sizes(dt, one.exact("step_bias"), op.step_limit)
        read, state = mamba2_step(state, mixed, steps, one.exact("decay_log"), one.exact("skip"), GROUPS)
        gated = gate_then_norm(read.ravel(), z, one.exact("norm"), op.norm.eps, GROUPS)
        out.append(linear(gated, one.exact("out"), biases.get("op.out")))
    return np.array(out)


@pytest.mark.parametrize("name", sorted(OPS))
@pytest.mark.parametrize(("bias", "limit"), [(True, None), (False, (0.2, 0.9))])
def test_rows_stay_near_the_reference(name: str, bias: bool, limit: tuple[float, float] | None) -> None:
    op = plan(bias, limit)
    one = OneOp(OPS[name], op, WIDTH)
    rows = rows_of(3, 40, WIDTH)
    wanted = reference(one, op, rows.astype(np.float64))
    lane = one.open()
    made = one.run((lane, rows[:30], chain(0, [0] * 29)))
    lane.keep(range(30))
    made = np.concatenate([made, one.steps(lane, rows[30:])])
    assert np.abs(made - wanted).max() <= 2e-6 * np.abs(wanted).max()


@pytest.mark.parametrize("name", sorted(OPS))
@pytest.mark.slow
def test_windows_trees_and_copies_keep_every_bit(name: str) -> None:
    one = OneOp(OPS[name], plan(), WIDTH)
    assert_windows_keep_bits(one)
    assert_trees_keep_bits(one)
    assert_state_travels(one)


def test_the_state_is_that_of_the_spec() -> None:
    one = OneOp(OPS["rows"], plan(), WIDTH)
    lane = one.open()
    one.steps(lane, rows_of(4, 2, WIDTH))
    sizes = [len(data) for data in lane.states[0].export()]
    assert [entry.path for entry in one.entries] == ["op.conv", "op.recurrent"]
    assert sizes == [4 * int(np.prod(entry.shape)) for entry in one.entries]
    assert lane.states[0].held_bytes() == sum(sizes)


def _whole_window_kept(state: RecurrentState[Any], path: tuple[int, ...]) -> None:
    if path:
        state._held = state._behind
    state.length += len(path)
    state.discard()


def _tail_of_the_window_kept(state: ConvState[Any], path: tuple[int, ...]) -> None:
    if path:
        state._tail = state._seen[-state.past :]  # type: ignore[index]
    state.length += len(path)
    state.discard()


def _shared_with_the_copy(state: Any) -> Any:
    return state


FAULTS: dict[str, Any] = {
    "a rejected row stays in the recurrence": mock.patch.object(RecurrentState, "keep", _whole_window_kept),
    "a rejected row stays in the convolution": mock.patch.object(ConvState, "keep", _tail_of_the_window_kept),
    "a copy shares its recurrence": mock.patch.object(RecurrentState, "fork", _shared_with_the_copy),
    "a copy shares its convolution": mock.patch.object(ConvState, "fork", _shared_with_the_copy),
}


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_a_planted_fault_is_noticed(fault: str) -> None:
    with FAULTS[fault]:
        one = OneOp(OPS["rows"], plan(), WIDTH)
        with pytest.raises(AssertionError):
            assert_windows_keep_bits(one)
            assert_trees_keep_bits(one)
            assert_state_travels(one)


def test_a_state_rounded_on_export_is_noticed() -> None:
    pack = RecurrentState.export

    def rounded(state: RecurrentState[Any]) -> tuple[bytes, ...]:
        (held,) = pack(state)
        return (np.frombuffer(held, np.float32).astype(np.float16).astype(np.float32).tobytes(),)

    with mock.patch.object(RecurrentState, "export", rounded), pytest.raises(AssertionError):
        assert_state_travels(OneOp(OPS["rows"], plan(), WIDTH))
