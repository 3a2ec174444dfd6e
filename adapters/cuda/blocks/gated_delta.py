"""The gated delta net: a convolution, then one matrix of state a head that decays, is corrected and is read.

Per row and value head: S <- e^g S; d = beta (v - S^T k); S <- S + k d^T; y = S^T q. Decoded rows take these steps one
by one in one loop (`kernels/cuda/delta_steps.cu`); a prompt's span takes them in blocks of 64, which are other bits,
always the same ones.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.adapters.cuda.recurrent_state import LaneStates, conv_weights, decay_rate, on_device
from tensorfold.adapters.cuda.rows import Chunk, Rows, Tensor
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.ops import GatedDelta
from tensorfold.kernels.cuda.delta_steps import Form, Steps
from tensorfold.kernels.triton.conv import DELTA_FACTORS, SPAN_GATES, delta_inputs, delta_span
from tensorfold.kernels.triton.delta_scan import delta_scan
from tensorfold.kernels.triton.gates import gated_norm, gated_norm_span


class GatedDeltaBlock(LaneStates):
    """q, k and v through one convolution; the state's reading is normed, gated and projected."""

    def __init__(self, assembly: Assembly, plan: GatedDelta, path: str) -> None:
        self._form = _form(plan, path, wide=assembly.dtype == torch.float32)
        channels, heads = plan.conv.channels, plan.value_heads
        super().__init__(assembly, channels, DELTA_FACTORS, (heads, plan.key_dim, plan.value_dim))
        self._plan, self._dtype = plan, assembly.dtype
        if assembly.delta is None:
            raise ValueError(f"{path} takes gated delta steps, which nothing here launches")
        self._launches, self._products = assembly.delta, assembly.products
        self._launches.expect(self._form, assembly.room.lanes - 1)
        self._project = assembly.products.linear(*(f"{path}.{name}" for name in ("qkv", "z", "b", "a")))
        self._weight, self._bias = conv_weights(assembly, plan.conv, f"{path}.conv")
        self._rate = decay_rate(assembly, f"{path}.decay_log")
        self._step_bias = on_device(assembly, assembly.weights.floats(f"{path}.step_bias"))
        self._norm = on_device(assembly, assembly.weights.floats(f"{path}.norm"))
        self._out = assembly.products.linear(f"{path}.out")
        self._nothing = torch.zeros((1, heads, plan.value_dim), dtype=assembly.dtype, device=assembly.device)
        assembly.keep_state(self, plan, path)

    def decode(self, x: Tensor, at: Rows) -> Tensor:
        """The layer's output for every row."""
        plan = self._plan
        qkv, z, b, a = self._project.decode(x).split(self._project.outputs, dim=1)
        read = torch.empty((len(x), plan.value_heads, plan.value_dim), dtype=self._dtype, device=x.device)
        delta_inputs(
            qkv, a, b, at.taps, at.ring_at, self.raw, self.mixed, self.factors, read, self._weight, self._bias,
            self._rate, self._step_bias, plan.key_heads, plan.key_dim, plan.l2_eps,
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
        qkv, z, b, a = self._project.prompt(x).split(self._project.outputs, dim=1)
        mixed = torch.empty((count, plan.conv.channels), dtype=self._dtype, device=x.device)
        gates = torch.empty((count, plan.value_heads, SPAN_GATES), dtype=torch.float32, device=x.device)
        delta_span(
            qkv, a, b, at.tail, self.raw, mixed, gates, self._weight, self._bias, self._rate, self._step_bias,
            plan.key_heads, plan.key_dim, plan.l2_eps,
        )  # fmt: skip
        self.leave(qkv, at)
        read = torch.empty((count, plan.value_heads, plan.value_dim), dtype=self._dtype, device=x.device)
        delta_scan(self.places[at.place], mixed, gates, read, plan.key_heads)
        made: Tensor = self._out.prompt(self._gated(gated_norm_span, read, z))
        return made

    def _steps(self, at: Rows, lanes: Tensor | None, read: Tensor) -> None:
        steps = steps_of(self.places, self.mixed, self.factors, at.schedule, at.counts, at.places, lanes, read)
        self._launches.launch(self._form, steps, self._products.stream(), self._products.early)

    def _gated(self, norm: Callable[..., None], read: Tensor, z: Tensor) -> Tensor:
        plan, rows = self._plan, read.flatten(1)
        out = torch.empty_like(rows)
        silu = plan.gate == "silu"
        norm(rows, z, self._norm, out, plan.value_heads, plan.norm.eps, gate_first=False, silu=silu)
        return out


def _form(plan: GatedDelta, path: str, *, wide: bool) -> Form:
    """The form of a layer's steps. Raises RefusedError for one that no kernel takes."""
    try:
        return Form(plan.value_heads, plan.key_heads, plan.key_dim, plan.value_dim, wide)
    except ValueError as fault:
        raise RefusedError(f"The CUDA backend has no gated delta steps of this form yet ({path}): {fault}.") from None


def steps_of(
    state: Tensor, mixed: Tensor, factors: Tensor, schedule: Tensor, counts: Tensor, places: Tensor,
    lanes: Tensor | None, out: Tensor,
) -> Steps:  # fmt: skip
    """The gated delta steps of every lane by its schedule, as they are launched; tensors lie without gaps.

    `state` float32 [places, H, K, V]; rings `mixed` [lanes * ring, 2 * key_heads * K + H * V] and `factors`
    [lanes * ring, H, 8] as `conv.delta_inputs` leaves them; `schedule` [lanes, S, 3], `counts` [lanes] and `places`
    [lanes, 2] int32, as `Rows` says; `out` [rows, H, V]. The last lane is nobody's and has no steps. With `lanes`
    int32 [rows], the lane of each row, lanes without rows are left out where that makes fewer programs: the bits are
    the same.
    """
    slots, most, _ = schedule.shape
    by_row = lanes is not None and len(out) < slots - 1
    return Steps(
        state=state.data_ptr(),
        mixed=mixed.data_ptr(),
        factors=factors.data_ptr(),
        schedule=schedule.data_ptr(),
        counts=counts.data_ptr(),
        places=places.data_ptr(),
        lanes=(counts if lanes is None else lanes).data_ptr(),
        out=out.data_ptr(),
        programs=len(out) if by_row else slots - 1,
        by_row=by_row,
        most=most,
        ring=mixed.shape[0] // slots,
    )
