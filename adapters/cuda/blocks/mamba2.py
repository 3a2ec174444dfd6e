"""Mamba-2: a convolution, then one matrix of state a head that decays, takes its row in and is read.

Per row and head: S <- e^(A dt) S + (dt x) B^T; y = S C + D x, with B and C shared by the heads of a group; then silu(z)
gates y before the norm in groups. Decoded rows take these steps one by one in one loop; a prompt's span takes them in
blocks of 64, which are other bits, always the same ones.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.adapters.cuda.recurrent_state import LaneStates, check_widths, conv_weights, decay_rate, on_device
from tensorfold.adapters.cuda.rows import Chunk, Rows, Tensor
from tensorfold.domain.families.ops import Mamba2
from tensorfold.kernels.triton.conv import MAMBA2_FACTORS, mamba2_inputs, mamba2_span
from tensorfold.kernels.triton.gates import gated_norm, gated_norm_span
from tensorfold.kernels.triton.mamba_scan import mamba2_scan
from tensorfold.kernels.triton.recurrent import mamba2_rows


class Mamba2Block(LaneStates):
    """One projection gives gate, convolved rows and time steps; the state's reading is gated, normed and projected."""

    def __init__(self, assembly: Assembly, plan: Mamba2, path: str) -> None:
        check_widths(path, head_width=plan.head_dim, state_width=plan.state)
        super().__init__(assembly, plan.conv.channels, MAMBA2_FACTORS, (plan.heads, plan.head_dim, plan.state))
        weights, inner = assembly.weights, plan.heads * plan.head_dim
        self._plan, self._dtype = plan, assembly.dtype
        self._parts = (inner, plan.conv.channels, plan.heads)
        self._project = assembly.products.linear(f"{path}.in")
        self._weight, self._bias = conv_weights(assembly, plan.conv, f"{path}.conv")
        self._rate = decay_rate(assembly, f"{path}.decay_log")
        self._skip = on_device(assembly, weights.floats(f"{path}.skip"))
        self._step_bias = on_device(assembly, weights.floats(f"{path}.step_bias"))
        ones = torch.ones(inner, device=assembly.device)
        self._norm = on_device(assembly, weights.floats(f"{path}.norm")) if plan.norm.weight else ones
        self._out = assembly.products.linear(f"{path}.out")
        self._nothing = torch.zeros((1, plan.heads, plan.head_dim), device=assembly.device)
        assembly.keep_state(self, plan, path)

    def decode(self, x: Tensor, at: Rows) -> Tensor:
        """The layer's output for every row."""
        plan = self._plan
        z, mixed, dt = self._project.decode(x).split(self._parts, dim=1)
        read = torch.empty((len(x), plan.heads, plan.head_dim), dtype=torch.float32, device=x.device)
        mamba2_inputs(
            mixed, dt, at.taps, at.ring_at, self.raw, self.mixed, self.factors, read, self._weight, self._bias,
            self._rate, self._step_bias, plan.step_limit,
        )  # fmt: skip
        self._steps(at, at.lanes, read)
        made: Tensor = self._out.decode(self._gated(gated_norm, read, z))
        return made

    def replay(self, at: Rows) -> None:
        """Run the schedule alone: nothing of it has a result."""
        self._steps(at, None, self._nothing)

    def prompt(self, x: Tensor, at: Chunk) -> Tensor:
        """The layer's output for every row of a span."""
        plan, count = self._plan, len(x)
        z, raw, dt = self._project.prompt(x).split(self._parts, dim=1)
        mixed = torch.empty((count, plan.conv.channels), dtype=self._dtype, device=x.device)
        steps = torch.empty((count, plan.heads), dtype=torch.float32, device=x.device)
        mamba2_span(
            raw, dt, at.tail, self.raw, mixed, steps, self._weight, self._bias, self._step_bias, plan.step_limit
        )
        self.leave(raw, at)
        read = torch.empty((count, plan.heads, plan.head_dim), dtype=torch.float32, device=x.device)
        mamba2_scan(self.places[at.place], mixed, steps, self._rate, self._skip, read, plan.groups)
        made: Tensor = self._out.prompt(self._gated(gated_norm_span, read, z))
        return made

    def _steps(self, at: Rows, lanes: Tensor | None, read: Tensor) -> None:
        mamba2_rows(
            self.places, self.mixed, self.factors, self._skip, at.schedule, at.counts, at.places, lanes, read,
            self._plan.groups,
        )  # fmt: skip

    def _gated(self, norm: Callable[..., None], read: Tensor, z: Tensor) -> Tensor:
        rows = read.flatten(1)
        out = torch.empty(rows.shape, dtype=self._dtype, device=rows.device)
        norm(rows, z, self._norm, out, self._plan.norm.groups, self._plan.norm.eps, gate_first=True)
        return out
