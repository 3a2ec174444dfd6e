# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""Recurrent steps by a schedule: the gated delta rule and Mamba-2, whose inputs lie in rings (`conv.py`).

A window leaves its inputs in a ring, and at most the state behind its last row in a place of its own. Kept rows of
which no state was left are run again at the start of the next schedule. Replayed and new rows go through one loop with
one body, so that they cannot differ; the order of sums is that of the state's shape.

A schedule is a list of steps per lane, int32 [lanes, steps, 3]: the row of the lane's ring whose inputs are taken, the
row of `out` that gets the result (-1: none), and flags. RESET starts again from the committed state, which is how a
branch of a tree begins; COMMIT makes the state behind this step the committed one; SAVE writes it aside.

A program owns a few columns of one head's state and keeps them in registers:

    delta   state [K, V]: all keys of `part` values          mamba2  state [P, N]: `part` rows, all N
            one pass over the state gives S^T k and S^T q;            the sum over N waits for nothing
            y = q^T S' follows from both and from k q

Started early, a program reads its schedule and its state before it waits: a layer's states are moved on by its own
steps alone, once a round, and the copy of a round's integers stands between two rounds.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from tensorfold.kernels.triton.following import follow, let_next, wait_before

Tensor = Any  # a torch tensor
RESET, COMMIT, SAVE, RETURN = 1, 2, 4, 8
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
def _delta_row(mixed, factors, row, head, key_head, key_heads, heads, channels, keys, values, key_width: tl.constexpr):
    at = mixed + row * channels
    q = tl.load(at + key_head * key_width + keys)
    k = tl.load(at + (key_heads + key_head) * key_width + keys)
    v = tl.load(at + 2 * key_heads * key_width + values)
    of = factors + (row * heads + head) * 8
    return q, k, v, tl.load(of), tl.load(of + 1), tl.load(of + 2), tl.load(of + 3), tl.load(of + 4), tl.load(of + 5)


@triton.jit(do_not_specialize=_VARY)
def _delta(
    state, mixed, factors, schedule, counts, places, lanes, by_row, out, most_steps, heads, key_heads, channels, ring,
    key_width: tl.constexpr, value_width: tl.constexpr, part: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    let_next(early)
    slice_, head = tl.program_id(0), tl.program_id(1)
    lane, steps, source, target, flags, committed, aside = _asked(lanes, by_row, schedule, counts, places, most_steps)
    plan = schedule + lane * most_steps * 3
    keys, values = tl.arange(0, key_width), slice_ * part + tl.arange(0, part)
    size: tl.constexpr = key_width * value_width
    # Rows are added last, so that what lies between two of a thread's rows is known to the compiler.
    within = head * size + values[None, :]
    from_, to_aside = state + committed * heads * size + within, state + aside * heads * size + within
    down = keys[:, None] * value_width
    now = tl.load(from_ + down, mask=_all(down, steps), other=0.0)
    ahead = plan + 3 * tl.maximum(tl.minimum(1, steps - 1), 0)
    next_source, next_target, next_flags = tl.load(ahead), tl.load(ahead + 1), tl.load(ahead + 2)
    key_head = head // (heads // key_heads)
    column = head * value_width + values
    first = lane * ring
    wait_before(early)
    q, k, v, kept, kept_k, beta, scale_k, kept_q, both = _delta_row(
        mixed, factors, first + source, head, key_head, key_heads, heads, channels, keys, column, key_width
    )
    wide_k, wide_q = k.to(tl.float32)[:, None], q.to(tl.float32)[:, None]
    # Inputs are fetched one step ahead, and the plan of a step two ahead, so that no step waits for both in turn.
    for i in range(steps):
        ahead = plan + 3 * tl.minimum(i + 2, steps - 1)
        later_source, later_target, later_flags = tl.load(ahead), tl.load(ahead + 1), tl.load(ahead + 2)
        next_q, next_k, next_v, next_kept, next_kept_k, next_beta, next_scale_k, next_kept_q, next_both = _delta_row(
            mixed, factors, first + next_source, head, key_head, key_heads, heads, channels, keys, column, key_width
        )
        # From memory: copies in registers would cost every step more than a branch costs. The barriers make branches
        # of both conditions: without them every step issues all loads and stores of a state, switched off.
        if (flags & 9) != 0:
            tl.debug_barrier()
            if (flags & 8) != 0:
                now = tl.load(to_aside + down)
            else:
                now = tl.load(from_ + down)
        seen, asked = tl.sum(now * wide_k, 0), tl.sum(now * wide_q, 0)
        change = beta * (v.to(tl.float32) - kept_k * seen)
        result = kept_q * asked + both * change
        now = now * kept + wide_k * (scale_k * change)[None, :]
        to = out + tl.maximum(target, 0).to(tl.int64) * heads * value_width + column
        tl.store(to, result.to(out.dtype.element_ty), mask=values < tl.where(target >= 0, value_width, 0))
        if (flags & 6) != 0:
            tl.debug_barrier()
            if (flags & 2) != 0:
                tl.store(from_ + down, now)
            if (flags & 4) != 0:
                tl.store(to_aside + down, now)
        target, flags = next_target, next_flags
        next_source, next_target, next_flags = later_source, later_target, later_flags
        wide_k, wide_q = next_k.to(tl.float32)[:, None], next_q.to(tl.float32)[:, None]
        v, kept, kept_k, beta = next_v, next_kept, next_kept_k, next_beta
        scale_k, kept_q, both = next_scale_k, next_kept_q, next_both


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


def delta_rows(
    state: Tensor, mixed: Tensor, factors: Tensor, schedule: Tensor, counts: Tensor, places: Tensor,
    lanes: Tensor | None, out: Tensor, key_heads: int, *, part: int = 16, warps: int = 1,
) -> None:  # fmt: skip
    """Gated delta steps of every lane by its schedule.

    `state` float32 [places, H, K, V]; rings `mixed` [lanes * ring, 2 * key_heads * K + H * V] and `factors`
    [lanes * ring, H, 8] as `conv.delta_inputs` leaves them; `schedule` [lanes, S, 3], `counts` [lanes] and `places`
    [lanes, 2] (read and committed; SAVE and RETURN) int32; `out` [rows, H, V]. The last lane is nobody's and has no
    steps. With `lanes` int32 [rows], the lane of each row, lanes without rows are left out where that makes fewer
    programs: the bits are the same. `part` and `warps` decide bits.
    """
    _, heads, key_width, value_width = state.shape
    slots = schedule.shape[0]
    by_row = lanes is not None and out.shape[0] < slots - 1
    _delta[(value_width // min(part, value_width), heads, out.shape[0] if by_row else slots - 1)](
        state, mixed, factors, schedule, counts, places, counts if lanes is None else lanes, int(by_row), out,
        schedule.shape[1], heads, key_heads, mixed.shape[-1], mixed.shape[0] // slots, key_width, value_width,
        min(part, value_width), num_warps=warps, enable_fp_fusion=True, **follow(out),
    )  # fmt: skip


def mamba2_rows(
    state: Tensor, mixed: Tensor, factors: Tensor, skip: Tensor, schedule: Tensor, counts: Tensor, places: Tensor,
    lanes: Tensor | None, out: Tensor, groups: int, *, part: int = 4, warps: int = 1,
) -> None:  # fmt: skip
    """Mamba-2 steps of every lane by its schedule.

    As `delta_rows`: `state` float32 [places, H, P, N]; `mixed` [lanes * ring, H * P + 2 * groups * N] and `factors`
    [lanes * ring, H, 2] as `conv.mamba2_inputs` leaves them; `skip` float32 [H]; `out` [rows, H, P].
    """
    _, heads, width, size = state.shape
    slots = schedule.shape[0]
    by_row = lanes is not None and out.shape[0] < slots - 1
    _mamba2[(width // min(part, width), heads, out.shape[0] if by_row else slots - 1)](
        state, mixed, factors, skip, schedule, counts, places, counts if lanes is None else lanes, int(by_row), out,
        schedule.shape[1], heads, groups, mixed.shape[-1], mixed.shape[0] // slots, width, size, min(part, width),
        num_warps=warps, enable_fp_fusion=True, **follow(out),
    )  # fmt: skip
