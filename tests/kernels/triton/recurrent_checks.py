"""What convolutions and recurrent steps must hold on a card ("cuda") or in Triton's interpreter ("cpu").

Near float64, and windows, trees and replays equal to steps one by one, bit for bit. `python -m` runs the checks named,
or all, in the interpreter (with TRITON_INTERPRET=1) and prints those that passed. Gated delta steps are the CUDA
kernel's on a card and those of its stand-in elsewhere: what that proves is the inputs that Triton leaves for them, and
that the stand-in, which proves the blocks' schedules, means by each flag what the kernel does.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]
from numpy.typing import NDArray

from tensorfold.adapters.cuda.assembly import DeltaLaunches
from tensorfold.adapters.cuda.blocks.gated_delta import steps_of
from tensorfold.adapters.cuda.rows import COMMIT, RESET, RETURN, SAVE
from tensorfold.kernels.cuda.delta_steps import DeltaKernels, Form
from tensorfold.kernels.cuda.driver import current_device
from tensorfold.kernels.reference.activations import silu
from tensorfold.kernels.reference.gated_delta import gated_delta_step
from tensorfold.kernels.reference.gated_delta import gated_norm as exact_gated_norm
from tensorfold.kernels.reference.mamba2 import gate_then_norm, mamba2_step, step_sizes
from tensorfold.kernels.triton.conv import delta_inputs, mamba2_inputs
from tensorfold.kernels.triton.following import LEAST
from tensorfold.kernels.triton.gates import gated_norm, gated_norm_span
from tensorfold.kernels.triton.recurrent import mamba2_rows
from tests.adapters.cuda.host_delta import HostDelta

Tensor = Any
Floats = NDArray[np.float64]
LANES, RING = 3, 12
NONE = (-1, -1, -1)
_KEPT = ExitStack()


def exact(tensor: Tensor) -> Floats:
    """The numbers of a tensor in float64."""
    numbers: Floats = tensor.double().cpu().numpy()
    return numbers


def near(result: Tensor, true: Floats, most: float) -> None:
    difference = np.linalg.norm(exact(result) - true) / np.linalg.norm(true)
    assert difference < most, difference


def ints(device: str, values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)


@cache
def delta_launches(device: str) -> DeltaLaunches:
    """The kernel on a card, whose machine code is kept as long as the process; elsewhere its stand-in."""
    if device == "cpu":
        return HostDelta()
    torch.zeros(1, device=device)  # makes a context current
    kept = _KEPT.enter_context(tempfile.TemporaryDirectory())
    return DeltaKernels(current_device(), Path(kept), lambda line: None)


def run_delta(
    form: Form, state: Tensor, mixed: Tensor, factors: Tensor, schedule: Tensor, counts: Tensor, places: Tensor,
    lanes: Tensor | None, out: Tensor,
) -> None:  # fmt: skip
    """Gated delta steps on the current stream, started early where the card can."""
    steps = steps_of(state, mixed, factors, schedule, counts, places, lanes, out)
    launches, on_card = delta_launches(state.device.type), state.is_cuda
    stream = int(torch.cuda.current_stream().cuda_stream) if on_card else 0
    launches.launch(form, steps, stream, on_card and torch.cuda.get_device_capability() >= LEAST)


class Case:
    """One op of a small shape: its weights, the rings and states of three lanes, and 10 raw rows to feed them."""

    heads, state_shape, channels, extra = 4, (16, 16), 0, 0

    def __init__(self, device: str) -> None:
        self.device = device
        self.kind = torch.bfloat16 if device == "cuda" else torch.float32
        self.error = 2e-2 if device == "cuda" else 2e-5
        self.weight, self.bias = self.noise(4, self.channels), self.noise(self.channels)
        self.rate, self.step_bias = -torch.exp(self.noise(self.heads)), self.noise(self.heads)
        # As columns of wider rows, which is what a fused projection leaves.
        self.rows = self.noise(10, self.channels + self.extra + 5).to(self.kind)
        self.start = self.noise(2 * LANES, self.heads, *self.state_shape)
        self.clear()

    def noise(self, *shape: int) -> Tensor:
        return torch.randn(shape).to(self.device)

    def clear(self) -> None:
        """Rings of NaN, and the first states."""
        shape = (LANES * RING, self.channels)
        self.raw, self.mixed = (torch.full(shape, float("nan"), device=self.device, dtype=self.kind) for _ in range(2))
        self.factors = torch.full((LANES * RING, self.heads, self.factors_of), float("nan"), device=self.device)
        self.state = self.start.clone()

    factors_of = 8

    def feed(self, rows: list[int], taps: list[tuple[int, ...]], ring_at: list[int]) -> None:
        """Inputs of raw rows, whose sources are `taps`, into flat ring rows."""
        picked = self.rows[rows].contiguous()
        self.inputs(picked, ints(self.device, taps), ints(self.device, ring_at))

    def inputs(self, picked: Tensor, taps: Tensor, ring_at: Tensor) -> None:
        raise NotImplementedError

    def out(self, picked: Tensor) -> Tensor:
        """Where results of rows that are fed will lie."""
        self.empty = torch.full((len(picked), self.heads, self.out_width), float("nan"), device=self.device)
        return self.empty

    def chain(self, rows: list[int], lane: int = 0) -> None:
        """Inputs of raw rows one after another, in one launch, from the lane's first ring row on."""
        taps = [tuple(-(2 + at) if at >= 0 else -1 for at in range(i - 3, i)) for i in range(len(rows))]
        self.feed(rows, taps, [lane * RING + i for i in range(len(rows))])

    def run(self, schedule: list[list[tuple[int, int, int]]], rows: int, lanes: list[int] | None = None) -> Tensor:
        """Results of steps, by lane; places of lane l are 2 l and 2 l + 1."""
        most = max(map(len, schedule))
        steps = ints(self.device, [one + [(99, 99, 7)] * (most - len(one)) for one in schedule])
        out = torch.full((rows, self.heads, self.out_width), float("nan"), device=self.device)
        places = ints(self.device, [[2 * lane, 2 * lane + 1] for lane in range(LANES)])
        at = None if lanes is None else ints(self.device, lanes)
        self.steps(steps, ints(self.device, list(map(len, schedule))), places, at, out)
        return out

    def steps(self, schedule: Tensor, counts: Tensor, places: Tensor, lanes: Tensor | None, out: Tensor) -> None:
        raise NotImplementedError

    @property
    def out_width(self) -> int:
        return self.state_shape[1]

    def convolved(self, path: list[int]) -> Floats:
        """The convolved last row of a path of raw rows."""
        rows = [np.zeros(self.channels)] * 3 + [exact(self.rows[row, : self.channels]) for row in path]
        weight = exact(self.weight)
        return silu(exact(self.bias) + sum(weight[tap] * rows[len(path) - 1 + tap] for tap in range(4)))

    def truth(self, path: list[int], lane: int = 0) -> tuple[Floats, Floats]:
        """Result and state behind a path of raw rows from the lane's first state."""
        state, result = exact(self.start[2 * lane]), np.zeros(0)
        for count, row in enumerate(path):
            result, state = self.step(state, self.convolved(path[: count + 1]), exact(self.rows[row, self.channels :]))
        return result, state

    def step(self, state: Floats, mixed: Floats, rest: Floats) -> tuple[Floats, Floats]:
        raise NotImplementedError


class Delta(Case):
    key_heads, channels, extra = 2, 2 * 2 * 16 + 4 * 16, 8

    def inputs(self, picked: Tensor, taps: Tensor, ring_at: Tensor) -> None:
        b, a = picked[:, self.channels : self.channels + 4], picked[:, self.channels + 4 : self.channels + 8]
        delta_inputs(
            picked[:, : self.channels], a, b, taps, ring_at, self.raw, self.mixed, self.factors, self.out(picked),
            self.weight, self.bias, self.rate, self.step_bias, self.key_heads, 16, 1e-6,
        )  # fmt: skip

    def steps(self, schedule: Tensor, counts: Tensor, places: Tensor, lanes: Tensor | None, out: Tensor) -> None:
        form = Form(self.heads, self.key_heads, *self.state_shape, wide=True)
        delta_launches(self.device).expect(form, LANES - 1)
        run_delta(form, self.state, self.mixed, self.factors, schedule, counts, places, lanes, out)

    def step(self, state: Floats, mixed: Floats, rest: Floats) -> tuple[Floats, Floats]:
        log = np.log(-exact(self.rate))
        return gated_delta_step(
            state, mixed, rest[4:8], rest[:4], log, exact(self.step_bias), self.key_heads, 1e-6
        )  # fmt: skip


class Mamba2(Case):
    groups, state_shape, channels, extra, factors_of = 2, (16, 32), 4 * 16 + 2 * 2 * 32, 4, 2

    def __init__(self, device: str) -> None:
        self.skip = torch.randn(4).to(device)
        super().__init__(device)

    @property
    def out_width(self) -> int:
        return self.state_shape[0]

    def inputs(self, picked: Tensor, taps: Tensor, ring_at: Tensor) -> None:
        dt = picked[:, self.channels : self.channels + 4]
        mamba2_inputs(
            picked[:, : self.channels], dt, taps, ring_at, self.raw, self.mixed, self.factors, self.out(picked),
            self.weight, self.bias, self.rate, self.step_bias, (0.1, 4.0),
        )  # fmt: skip

    def steps(self, schedule: Tensor, counts: Tensor, places: Tensor, lanes: Tensor | None, out: Tensor) -> None:
        mamba2_rows(
            self.state, self.mixed, self.factors, self.skip, schedule, counts, places, lanes, out, self.groups
        )  # fmt: skip

    def step(self, state: Floats, mixed: Floats, rest: Floats) -> tuple[Floats, Floats]:
        sizes = step_sizes(rest[:4], exact(self.step_bias), (0.1, 4.0))
        return mamba2_step(state, mixed, sizes, np.log(-exact(self.rate)), exact(self.skip), self.groups)


def serial(case: Case, path: list[int]) -> tuple[list[Tensor], Tensor]:
    """Lane 0's results of a path of raw rows, a launch for each, and the state behind it."""
    case.clear()
    outs = []
    for count, row in enumerate(path):
        case.feed([row], [tuple(at if at >= 0 else -1 for at in range(count - 3, count))], [count])
        outs.append(case.run([[(count, 0, SAVE)], [], []], 1, [0])[0])
        case.state[0].copy_(case.state[1])  # as the places' turns do
    return outs, case.state[0].clone()


def check_steps(case: Case) -> None:
    one_by_one, behind = serial(case, [0, 1, 2, 3])
    for count in range(4):
        near(one_by_one[count], case.truth([0, 1, 2, 3][: count + 1])[0], case.error)
    near(behind, case.truth([0, 1, 2, 3])[1], case.error)
    _check_window(case, one_by_one, behind)
    _check_partly_kept(case)
    _check_tree(case)


def _check_window(case: Case, one_by_one: list[Tensor], behind: Tensor) -> None:
    case.clear()
    case.chain([0, 1, 2, 3])
    window = [(i, i, 0) for i in range(3)] + [(3, 3, SAVE)]
    together = case.run([window, [], []], 4)
    assert torch.equal(case.state[0], case.start[0])  # a window commits nothing
    assert torch.equal(case.state[1], behind)
    assert all(torch.equal(together[i], one_by_one[i]) for i in range(4))
    # Beside another lane, in other rows of the launch, and with a row of nobody's behind them.
    case.clear()
    taps = [(-1, -1, -1), *(tuple(-(3 + at) if at >= 0 else -1 for at in range(i - 3, i)) for i in range(4)), NONE]
    case.feed([5, 0, 1, 2, 3, 9], taps, [0, RING, RING + 1, RING + 2, RING + 3, 2 * RING])
    assert not case.empty.any()  # what nobody's row reads, which has no step, is zero
    case.state[2].copy_(case.start[0])
    schedule = [[(0, 0, SAVE)], [(i, i + 1, SAVE if i == 3 else 0) for i in range(4)], []]
    for lanes in (None, [0, 1, 1, 1, 1, 2]):
        beside = case.run(schedule, 6, lanes)
        assert all(torch.equal(beside[i + 1], one_by_one[i]) for i in range(4))
        assert torch.equal(case.state[3], behind)
    near(beside[0], case.truth([5])[0], case.error)
    # Fewer rows than lanes, so that programs follow rows and not lanes.
    case.clear()
    case.chain([0, 1])
    few = case.run([[(0, 0, 0), (1, 1, SAVE)], [], []], 2, [0, 0])
    assert torch.equal(few[1], one_by_one[1])


def _check_partly_kept(case: Case) -> None:
    # Rows 0 and 1 of a window of 4 were kept; the next one replays them, commits, and goes on with raw rows 6 and 7.
    outs, behind = serial(case, [0, 1, 6, 7])
    committed = serial(case, [0, 1])[1]
    case.clear()
    case.chain([0, 1, 2, 3])
    case.feed([6, 7], [(-1, 0, 1), (0, 1, -2)], [5, 4])
    schedule = [(0, -1, 0), (1, -1, COMMIT), (5, 0, 0), (4, 1, SAVE)]
    again = case.run([schedule, [], []], 2)
    assert all(torch.equal(again[i], outs[2 + i]) for i in range(2))
    assert torch.equal(case.state[0], committed)
    assert torch.equal(case.state[1], behind)


def _check_tree(case: Case) -> None:
    # Row 0, then 1 and 2 below it one after another, then 3 below row 0.
    case.clear()
    case.feed([0, 1, 2, 7], [NONE, (-1, -1, -2), (-1, -2, -3), (-1, -1, -2)], [3, 0, 7, 5])
    schedule = [(3, 0, 0), (0, 1, 0), (7, 2, 0), (3, -1, RESET), (5, 3, 0)]
    tree = case.run([schedule, [], []], 4)
    assert torch.equal(case.state, case.start)
    # The same, the state of row 0 written aside and taken up again.
    again = case.run([[(3, 0, SAVE), (5, 3, 0), (0, 1, RETURN), (7, 2, 0)], [], []], 4)
    assert torch.equal(again, tree)
    assert torch.equal(case.state[0], case.start[0])
    straight, branch = serial(case, [0, 1, 2])[0], serial(case, [0, 7])[0]
    assert all(torch.equal(tree[i], straight[i]) for i in range(3))
    assert torch.equal(tree[3], branch[1])


def check_delta_steps(device: str) -> None:
    check_steps(Delta(device))


def check_mamba2_steps(device: str) -> None:
    check_steps(Mamba2(device))


def check_gated_norms(device: str) -> None:
    for norm, rows in ((gated_norm, 3), (gated_norm_span, 18)):
        _check_gated_norm(device, norm, rows)


def _check_gated_norm(device: str, norm: Callable[..., None], rows: int) -> None:
    kind = torch.bfloat16 if device == "cuda" else torch.float32
    error = 6e-3 if device == "cuda" else 1e-6
    mixed, wide = (torch.randn(rows, width).to(device, kind) for width in (4 * 96, 500))
    z = wide[:, 50 : 50 + 4 * 96]
    whole, shared = torch.randn(384).to(device), torch.randn(96).to(device)
    before, behind, opened = (torch.empty_like(mixed) for _ in range(3))
    norm(mixed, z, whole, before, 4, 1e-5, gate_first=True)
    norm(mixed, z, shared, behind, 4, 1e-6, gate_first=False)
    norm(mixed, z, shared, opened, 4, 1e-6, gate_first=False, silu=False)
    for row in range(rows):
        near(before[row], gate_then_norm(exact(mixed[row]), exact(z[row]), exact(whole), 1e-5, 4), error)
        heads = exact(mixed[row]).reshape(4, 96), exact(z[row]).reshape(4, 96)
        for made, gate in ((behind, "silu"), (opened, "sigmoid")):
            near(made[row], exact_gated_norm(*heads, exact(shared), 1e-6, gate).reshape(-1), error)
        alone = torch.empty_like(mixed[:1])
        norm(mixed[row : row + 1].contiguous(), z[row : row + 1], shared, alone, 4, 1e-6, gate_first=False)
        assert torch.equal(alone[0], behind[row])


CHECKS = {name: value for name, value in list(vars().items()) if name.startswith("check_") and name != "check_steps"}

if __name__ == "__main__":
    torch.manual_seed(5)
    for name in sys.argv[1:] or CHECKS:
        CHECKS[name]("cpu")
        print(name, flush=True)
