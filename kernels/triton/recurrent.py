# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""Mamba-2 steps by a schedule, whose inputs lie in rings (`conv.py`); gated delta ones are `cuda/delta_steps.cu`.

A window leaves its inputs in a ring, and at most the state behind its last row in a place of its own. Kept rows of
which no state was left are run again at the start of the next schedule. Replayed and new rows go through one loop with
one body, so that they cannot differ; the order of sums is that of the state's shape.

A schedule is a list of steps per lane, int32 [lanes, steps, 3]: the row of the lane's ring whose inputs are taken, the
row of `out` that gets the result (-1: none), and flags. RESET (1) starts again from the committed state, which is how a
branch of a tree begins; COMMIT (2) makes the state behind this step the committed one; SAVE (4) writes it aside; RETURN
(8) starts again from what was written aside.

A program owns a few rows of one head's state [P, N] and all N, and keeps them in registers: the sum over N waits for
nothing.

Started early, a program reads its schedule and its state before it waits: a layer's states are moved on by its own
steps alone, once a round, and the copy of a round's integers stands between two rounds.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from tensorfold.kernels.triton.following import follow, let_next, wait_before

Tensor = Any  # a torch tensor
# One machine code for all launches: where these lie hangs on the row count.
_VARY = ("schedule", "counts", "places", "lanes", "by_row")


@triton.jit
def _lane(lanes, by_row):
    """The lane slot of this program, -1 where another row's program has it."""
    at = tl.program_id(2)
    lane = at
    if by_row != 0:
        lane = tl.load(lanes + at)
        before = tl.load(lanes + tl.maximum(at - 1, 0))
        lane = tl.where((at > 0) & (before == lane), -1, lane)
    return lane.to(tl.int64)


@triton.jit
def _asked(lanes, by_row, schedule, counts, places, most_steps):
    """The lane slot of this program, its steps, the first of them, and its places; no step where it has nothing to do.

    No load waits for another but for the lane's own number.
    """
    lane = _lane(lanes, by_row)
    other = lane < 0
    lane = tl.maximum(lane, 0)
    steps = tl.load(counts + lane)
    plan = schedule + lane * most_steps * 3
    source, target, flags = tl.load(plan), tl.load(plan + 1), tl.load(plan + 2)
    committed, aside = tl.load(places + lane * 2).to(tl.int64), tl.load(places + lane * 2 + 1).to(tl.int64)
    steps = tl.where(other, 0, steps)
    return lane, steps, tl.where(steps > 0, source, 0), target, flags, committed, aside


@triton.jit
def _all(inner, steps):
    """A mask over a state: all of it where there are steps."""
    return inner < tl.where(steps > 0, 1 << 30, 0)


@triton.jit
def _mamba2_row(mixed, factors, row, head, group, groups, heads, channels, wide, deep, inner, size: tl.constexpr):
    at = mixed + row * channels
    x = tl.load(at + wide)
    into = tl.load(at + inner + group * size + deep)
    out_of = tl.load(at + inner + (groups + group) * size + deep)
    of = factors + (row * heads + head) * 2
    return x, into, out_of, tl.load(of), tl.load(of + 1)


@triton.jit(do_not_specialize=_VARY)
def _mamba2(
    state, mixed, factors, skip, schedule, counts, places, lanes, by_row, out, most_steps, heads, groups, channels,
    ring, width: tl.constexpr, size: tl.constexpr, part: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    let_next(early)
    slice_, head = tl.program_id(0), tl.program_id(1)
    lane, steps, source, target, flags, committed, aside = _asked(lanes, by_row, schedule, counts, places, most_steps)
    plan = schedule + lane * most_steps * 3
    rows, deep = slice_ * part + tl.arange(0, part), tl.arange(0, size)
    inner = rows[:, None] * size + deep[None, :]
    committed, aside = (committed * heads + head) * width * size, (aside * heads + head) * width * size
    now = tl.load(state + committed + inner, mask=_all(inner, steps), other=0.0)
    straight = tl.load(skip + head)
    ahead = plan + 3 * tl.maximum(tl.minimum(1, steps - 1), 0)
    next_source, next_target, next_flags = tl.load(ahead), tl.load(ahead + 1), tl.load(ahead + 2)
    group = head // (heads // groups)
    column = head * width + rows
    whole = heads * width
    first = lane * ring
    wait_before(early)
    x, into, out_of, kept, step = _mamba2_row(
        mixed, factors, first + source, head, group, groups, heads, channels, column, deep, whole, size
    )
    for i in range(steps):
        ahead = plan + 3 * tl.minimum(i + 2, steps - 1)
        later_source, later_target, later_flags = tl.load(ahead), tl.load(ahead + 1), tl.load(ahead + 2)
        next_x, next_into, next_out_of, next_kept, next_step = _mamba2_row(
            mixed, factors, first + next_source, head, group, groups, heads, channels, column, deep, whole, size
        )
        # From memory: copies in registers would cost every step more than a branch costs. The barriers make branches
        # of both conditions: without them every step issues all loads and stores of a state, switched off.
        if (flags & 9) != 0:
            tl.debug_barrier()
            now = tl.load(state + tl.where((flags & 8) != 0, aside, committed) + inner)
        wide = x.to(tl.float32)
        now = now * kept + (step * wide)[:, None] * into.to(tl.float32)[None, :]
        result = tl.sum(now * out_of.to(tl.float32)[None, :], 1) + straight * wide
        to = out + tl.maximum(target, 0).to(tl.int64) * heads * width + column
        tl.store(to, result.to(out.dtype.element_ty), mask=rows < tl.where(target >= 0, width, 0))
        if (flags & 6) != 0:
            tl.debug_barrier()
            if (flags & 2) != 0:
                tl.store(state + committed + inner, now)
            if (flags & 4) != 0:
                tl.store(state + aside + inner, now)
        target, flags = next_target, next_flags
        next_source, next_target, next_flags = later_source, later_target, later_flags
        x, into, out_of, kept, step = next_x, next_into, next_out_of, next_kept, next_step


def mamba2_rows(
    state: Tensor, mixed: Tensor, factors: Tensor, skip: Tensor, schedule: Tensor, counts: Tensor, places: Tensor,
    lanes: Tensor | None, out: Tensor, groups: int, *, part: int = 4, warps: int = 1,
) -> None:  # fmt: skip
    """Mamba-2 steps of every lane by its schedule.

    `state` float32 [places, H, P, N]; rings `mixed` [lanes * ring, H * P + 2 * groups * N] and `factors`
    [lanes * ring, H, 2] as `conv.mamba2_inputs` leaves them; `skip` float32 [H]; `schedule` [lanes, S, 3], `counts`
    [lanes] and `places` [lanes, 2] (read and committed; SAVE and RETURN) int32; `out` [rows, H, P]. The last lane is
    nobody's and has no steps. With `lanes` int32 [rows], the lane of each row, lanes without rows are left out where
    that makes fewer programs: the bits are the same. `part` and `warps` decide bits.
    """
    _, heads, width, size = state.shape
    slots = schedule.shape[0]
    by_row = lanes is not None and out.shape[0] < slots - 1
    _mamba2[(width // min(part, width), heads, out.shape[0] if by_row else slots - 1)](
        state, mixed, factors, skip, schedule, counts, places, counts if lanes is None else lanes, int(by_row), out,
        schedule.shape[1], heads, groups, mixed.shape[-1], mixed.shape[0] // slots, width, size, min(part, width),
        num_warps=warps, enable_fp_fusion=True, **follow(out),
    )  # fmt: skip
