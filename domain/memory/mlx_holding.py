"""How the MLX backend holds a model, as figures: what its rows are, how its buffers grow, what a pass takes.

Stated here and not in the adapter so that memory can be told with no backend installed; the adapter's tests hold these
figures against its buffers.
"""

from __future__ import annotations

from dataclasses import replace

from tensorfold.domain.families.plans import DecoderPlan, DFlashDrafter
from tensorfold.domain.families.state import state_spec
from tensorfold.domain.memory.plan import Footprint
from tensorfold.domain.memory.state_profile import Holding, state_profile
from tensorfold.domain.memory.work import work_of

PASS = 64
"""Rows of a pass: a slice of a prompt, or a launch, where the load check lets prompts be cut; else a whole chunk."""
GPU_STEP, CPU_STEP, FIRST = 256, 64, 256
GPU_LEAST_WORK = 256 << 20
"""Least that is kept for a pass on a GPU, whose library compiles and buffers as it sees fit."""
CPU_SCORE_COPIES = 3
"""Scores, their exponentials and a part of them being summed."""


def holding(dtype: str, *, cpu: bool, rows: int = PASS) -> Holding:
    """Buffers of a device, whose widest pass has `rows` rows."""
    step = CPU_STEP if cpu else GPU_STEP
    return Holding(dtype, FIRST, step, rows + 2 * step, rings=not cpu)


def footprint(
    plan: DecoderPlan,
    weights: int,
    *,
    cpu: bool,
    head: bool,
    drafter: DFlashDrafter | None = None,
    rows: int = PASS,
) -> Footprint:
    """A plan whose weights take `weights` bytes; `head` where the model's own head is loaded.

    On a CPU rows are float32, on a GPU in the plan's activation dtype.
    """
    dtype = "float32" if cpu else plan.activation
    loaded = plan if head else replace(plan, mtp=None)
    return Footprint(
        weights=weights,
        state=state_profile(state_spec(loaded, drafter), plan.activation, holding(dtype, cpu=cpu, rows=rows)),
        work=work_of(
            loaded,
            dtype,
            least=0 if cpu else GPU_LEAST_WORK,
            score_copies=CPU_SCORE_COPIES if cpu else 1,
        ),
        rows=rows,
    )
