"""What scans over a prompt's span must hold on a card ("cuda") or in Triton's interpreter ("cpu").

Near float64's steps one by one; a span in two parts, the second behind the first's state and tail, gives the same.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.kernels.triton.conv import delta_span, mamba2_span
from tensorfold.kernels.triton.delta_scan import delta_scan
from tensorfold.kernels.triton.mamba_scan import mamba2_scan
from tests.kernels.triton.recurrent_checks import Delta, Mamba2, exact, ints, near

Tensor = Any


def delta_prompt(case: Delta, rows: Tensor, state: Tensor, tail: list[int]) -> Tensor:
    """Results [T, H, V] of rows behind a state, which is moved on."""
    count, channels = rows.shape[0], case.channels
    mixed = torch.full((count, channels), float("nan"), device=case.device, dtype=case.kind)
    gates = torch.full((count, case.heads, 4), float("nan"), device=case.device)
    b, a = rows[:, channels : channels + 4], rows[:, channels + 4 : channels + 8]
    delta_span(
        rows[:, :channels], a, b, ints(case.device, tail), case.raw, mixed, gates, case.weight, case.bias, case.rate,
        case.step_bias, case.key_heads, case.state_shape[0], 1e-6,
    )  # fmt: skip
    out = torch.full((count, case.heads, case.out_width), float("nan"), device=case.device)
    delta_scan(state, mixed, gates, out, case.key_heads)
    return out


def mamba2_prompt(case: Mamba2, rows: Tensor, state: Tensor, tail: list[int]) -> Tensor:
    """Results [T, H, P] of rows behind a state, which is moved on."""
    count, channels = rows.shape[0], case.channels
    mixed = torch.full((count, channels), float("nan"), device=case.device, dtype=case.kind)
    steps = torch.full((count, case.heads), float("nan"), device=case.device)
    mamba2_span(
        rows[:, :channels], rows[:, channels : channels + 4], ints(case.device, tail), case.raw, mixed, steps,
        case.weight, case.bias, case.step_bias, (0.1, 4.0),
    )  # fmt: skip
    out = torch.full((count, case.heads, case.out_width), float("nan"), device=case.device)
    mamba2_scan(state, mixed, steps, case.rate, case.skip, out, case.groups)
    return out


def check_scan(case: Any, prompt: Any, counts: tuple[int, ...]) -> None:
    error = 2e-2 if case.device == "cuda" else 1e-4
    for count in counts:
        case.rows = case.noise(count, case.channels + case.extra + 5).to(case.kind)
        case.rows[5:9] = case.rows[:1]  # keys that are alike
        state, result = exact(case.start[0]), []
        for row in range(count):
            mixed = case.convolved([*range(max(0, row - 3), row + 1)])
            made, state = case.step(state, mixed, exact(case.rows[row, case.channels :]))
            result.append(made)
        case.clear()
        out = prompt(case, case.rows, case.state[0], [-1, -1, -1])
        near(out, np.stack(result), error)
        near(case.state[0], state, error)
        _check_in_two(case, prompt, out, count)


def _check_in_two(case: Any, prompt: Any, whole: Tensor, count: int) -> None:
    """A cut where a block ends leaves every bit; the ring gives the convolution what lies before."""
    if count <= 64:
        return
    state = case.state[0].clone()
    case.clear()
    first = prompt(case, case.rows[:64], case.state[0], [-1, -1, -1])
    case.raw[[7, 2, 9]] = case.rows[61:64, : case.channels]
    second = prompt(case, case.rows[64:], case.state[0], [7, 2, 9])
    assert torch.equal(torch.cat([first, second]), whole)
    assert torch.equal(case.state[0], state)


def check_delta_scan(device: str) -> None:
    check_scan(Delta(device), delta_prompt, (1, 63, 64, 150))


def check_mamba2_scan(device: str) -> None:
    check_scan(Mamba2(device), mamba2_prompt, (1, 63, 64, 150))


def check_keys_that_are_alike(device: str) -> None:
    """Equal keys with full corrections: the worst case of an inverse that takes powers."""
    case = Delta(device)
    case.rows = case.rows[:1].repeat(64, 1)
    case.rows[:, case.channels :] = 4.0
    case.clear()
    state, result = exact(case.start[0]), []
    for row in range(64):
        mixed = case.convolved([*range(max(0, row - 3), row + 1)])
        made, state = case.step(state, mixed, exact(case.rows[row, case.channels :]))
        result.append(made)
    near(delta_prompt(case, case.rows, case.state[0], [-1, -1, -1]), np.stack(result), case.error)


CHECKS = {name: value for name, value in list(vars().items()) if name.startswith("check_") and name != "check_scan"}

if __name__ == "__main__":
    torch.manual_seed(5)
    for name in sys.argv[1:] or CHECKS:
        CHECKS[name]("cpu")
        print(name, flush=True)
