# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""The sampler rule on a device, as `domain.sampling` has it: keyed float64 noise, whole-number nucleus, ties by id.

    row of V logits:   | block of 1,024 | block | block | ... |    a program takes some blocks of a row
    survey             the row's first candidate, and its least logit
    coarse             about how many candidates, or what weight, stand above 32 thresholds between the two
    fine               exactly that for 16 thresholds around the step in which the cut lies
    gather             who stands above the step surely stays: a bound of each block's best score among those, in
                       float32; those inside the step are listed
    settle             one program a row: exact scores of the blocks whose bound reaches the best score, and the list

The cut itself is not looked for. Of the list the candidate with the best score is asked whether it stays: whether what
stands before it weighs less than is needed. If it goes, all behind it go too, and the next best is asked. Nearly always
the first stays, or is no match for one that surely does.

Sums that choose are whole numbers, so programs, thresholds and launches cannot move a cut, nor can the order in which
programs add. A step that stays crowded (ties by the thousand) is settled by reading the row again: slower, the same
draw. Rows that are greedy, or have no cut, leave the kernels that they do not need at once, so one graph serves any
mixture. What programs add up in a row's totals is zero between draws: `settle` leaves it so.

A device's exp and log may differ from the host's in the last bit. Then a weight may be off by one part in 2^40 of the
likeliest candidate's, which moves a cut only where the sum meets the need to within a few such parts, and a score by
some 1e-16: chances below one in 1e9. A device's own draws are always the same, and replies rest on those alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from tensorfold.kernels.triton.following import begin, follow

Tensor = Any

FORCED, GREEDY, SAMPLED = 0, 1, 2
LISTED = 8192
MOST_IDS = 1 << 22
_BLOCK = 1024
_COARSE, _FINE = 32, 16
_SETTLE_LANES = 512
_FEW_BLOCKS, _FEW_PROGRAMS, _PROGRAMS = 2112, 528, 1024
_LOOSE = {
    # One machine code for any number of rows and wherever their settings lie.
    "do_not_specialize": ["blocks"],
    "do_not_specialize_on_alignment": [
        "masks", "masks_used", "ids", "kinds", "seeds", "divisors", "top_ks", "top_ps", "reaches", "positions",
        "firsts", "lows", "sums", "edges", "totals", "counts", "bounds", "tokens", "shares",
    ],
}  # fmt: skip


@triton.jit
def _read(logits, row, place, size, stride):
    """Logits at `place` of a row as they stand; -inf where there is none."""
    return tl.load(logits + row * stride + place, mask=place < size, other=float("-inf")).to(tl.float32)


@triton.jit
def _allowed(value, masks, row, place, size, words):
    """Logits, -inf where the row's mask forbids the id."""
    word = tl.load(masks + row * words + place // 32, mask=place < size, other=0)
    return tl.where(((word >> (place % 32)) & 1) != 0, value, float("-inf"))


@triton.jit
def _number(value):
    """Logits, -inf for NaN."""
    return tl.where(value == value, value, float("-inf"))


@triton.jit
def _logit(logits, masks, masked, row, place, size, stride, words):
    """Logits at `place` of a row; -inf where there is none, for NaN, and where the row's mask forbids the id."""
    value = _read(logits, row, place, size, stride)
    if (masked != 0) & (words > 0):
        value = _allowed(value, masks, row, place, size, words)
    return _number(value)


@triton.jit
def _level(value):
    """A whole number from 0 on that orders logits."""
    bits = tl.where(value == 0.0, 0.0, value).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int64) + 2147483648


@triton.jit
def _of_level(level):
    """The logit of a level."""
    bits = (level - 2147483648).to(tl.int32)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.float32, bitcast=True)


@triton.jit
def _rank(value, place):
    """One whole number that orders candidates: the greater logit first, of equals the lower place; -1 for -inf."""
    return tl.where(value > float("-inf"), _level(value) * 4194304 + (4194303 - place), -1)


@triton.jit
def _weight(value, high, divisor):
    """floor(2^40 exp(least energy - energy)); an energy is the logit over the negative temperature."""
    gap = high.to(tl.float64) / divisor - value.to(tl.float64) / divisor
    return (tl.exp(gap) * 1099511627776.0).to(tl.int64)


@triton.jit
def _mixed(x):
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def _key(seed, position):
    """What a row's noise is keyed with."""
    key = _mixed(seed.to(tl.uint64, bitcast=True) + 0x9E3779B97F4A7C15)
    return _mixed(key ^ (position.to(tl.uint64) * 0xD1B54A32D192ED03))


@triton.jit
def _score(value, token, key, divisor):
    """Noise less energy of candidates."""
    hashed = _mixed(token.to(tl.uint64) ^ key)
    uniform = (hashed >> 11).to(tl.int64).to(tl.float64) * 1.1102230246251565e-16 + 5.551115123125783e-17
    uniform = tl.minimum(uniform, 0.9999999999999999)
    noise = -tl.log(-tl.log(uniform))
    return noise - value.to(tl.float64) / divisor


@triton.jit
def _noise_bound(token, key):
    """Noise in float32, at most 1e-4 below the rule's and, but for one uniform in 2^30, at most 1e-4 above it."""
    hashed = _mixed(token.to(tl.uint64) ^ key)
    # 1 - u by its own bits, rounded down: where u is nearly 1, and the noise great, float32 has no digits of u left.
    rest = ((hashed ^ 0xFFFFFFFFFFFFFFFF) >> 11).to(tl.int64).to(tl.float32) * 1.1102230246251565e-16
    uniform = (hashed >> 11).to(tl.int64).to(tl.float32) * 1.1102230246251565e-16 + 5.551115123125783e-17
    near = rest * (1.0 + rest * (0.5 + rest * 0.33333333))
    return -0.6931471805599453 * tl.log2(tl.where(rest < 0.015625, near, -0.6931471805599453 * tl.log2(uniform)))


@triton.jit
def _slack(high, divisor):
    """How far a bound of a score, less the greatest logit over the temperature, may lie below the score that rounding
    makes: the bound's own error, and that of a quotient in float64."""
    return 0.000244140625 + tl.abs(high.to(tl.float64) / divisor) * 8.881784197001252e-16


@triton.jit
def _kept_by_min_p(value, high, divisor, reach):
    """Whether candidates are within `reach` = -ln(min_p) of the likeliest one."""
    return value.to(tl.float64) / divisor <= high.to(tl.float64) / divisor + reach


@triton.jit
def _needed(total, top_p):
    """ceil(top_p * total) for the exact ratio that `top_p` is: a 53-bit whole number over a power of two."""
    bits = top_p.to(tl.int64, bitcast=True)
    power = (bits >> 52) & 2047
    whole = (bits & 4503599627370495) | 4503599627370496
    shift = 1075 - power  # 53 or more below 1
    low = whole * total
    high = tl.umulhi(whole.to(tl.uint64), total.to(tl.uint64)).to(tl.int64)
    near = tl.minimum(shift, 63)
    # Below 64 both words count. The low word is read as unsigned: its sign bits are cut off behind the shift.
    inside = (high << (64 - near)) | ((low >> near) & ((1 << (64 - near)) - 1))
    left = (low & ((1 << near) - 1)) != 0
    far = tl.minimum(tl.maximum(shift - 64, 0), 62)
    above = high >> far
    more = ((high & ((1 << far) - 1)) != 0) | (low != 0)
    return tl.where(shift < 64, inside + left.to(tl.int64), above + more.to(tl.int64))


@triton.jit
def _cuts(kind, top_k, top_p, high, size):
    """Whether a row is sampled at all, by number, and by weight."""
    sampled = (kind == 2) & (high > float("-inf")) & (high < float("inf"))
    return sampled, sampled & (top_k > 0) & (top_k < size), sampled & (top_p > 0.0) & (top_p < 1.0)


@triton.jit
def _ends(firsts, lows, row):
    """A row's greatest logit, and its least above -inf: +inf where it has none."""
    return _of_level(tl.load(firsts + row) >> 22), -_of_level(tl.load(lows + row))


@triton.jit(**_LOOSE)
def _survey(
    logits, masks, masks_used, kinds, firsts, lows, size, stride, words, length, block: tl.constexpr,
    early: tl.constexpr,
):  # fmt: skip
    begin(early)
    row, span = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if tl.load(kinds + row) != 0:
        masked = tl.load(masks_used + row)
        top = tl.full([block], float("-inf"), tl.float32)
        low = tl.full([block], float("inf"), tl.float32)
        first = span * length + tl.arange(0, block)
        for start in range(span * length, span * length + length, block):
            place = start + tl.arange(0, block)
            value = _logit(logits, masks, masked, row, place, size, stride, words)
            first = tl.where(value > top, place, first)
            top = tl.maximum(top, value)
            low = tl.minimum(low, tl.where(value > float("-inf"), value, float("inf")))
        high = tl.max(top, 0)
        place = tl.min(tl.where(top == high, first, 2147483647), 0)
        # Behind a row's end there is nothing but -inf, at greater places than the row's own.
        tl.atomic_max(firsts + row, _level(high) * 4194304 + (4194303 - place), sem="relaxed")
        tl.atomic_max(lows + row, _level(-tl.min(low, 0)), sem="relaxed")


@triton.jit
def _between(high, low, step, share):
    """Edges from `high` down to `low`, by steps of a share of the way.

    An edge is reckoned twice, to be compared with and to be stored: so nothing here may be rounded in two ways, as a
    quotient or a product and a sum may be where one copy is known when the kernel is compiled.
    """
    return tl.fma(low - high, step.to(tl.float32) * share, high)


@triton.jit
def _above(value, edge, worth):
    """`worth` of logits [lanes] for each of the edges [steps] that they stand above."""
    return tl.where(value[None, :] > edge[:, None], worth[None, :], 0)


@triton.jit
def _quarters(logits, masks, masked, row, start, size, stride, words, block: tl.constexpr):
    """A block's logits in four parts, whose loads are all under way before the first is needed."""
    at = start + tl.arange(0, block // 4)
    a, b = _read(logits, row, at, size, stride), _read(logits, row, at + block // 4, size, stride)
    half = at + block // 2
    c, d = _read(logits, row, half, size, stride), _read(logits, row, half + block // 4, size, stride)
    if (masked != 0) & (words > 0):
        a = _allowed(a, masks, row, at, size, words)
        b = _allowed(b, masks, row, at + block // 4, size, words)
        c = _allowed(c, masks, row, half, size, words)
        d = _allowed(d, masks, row, half + block // 4, size, words)
    return _number(a), _number(b), _number(c), _number(d)


@triton.jit
def _share(value, low, high, slope):
    """A weight in float32, by a slope of 0 the number 1; nothing is below `low` but what stands above no edge."""
    return tl.exp2(((tl.maximum(value, low).to(tl.float64) - high.to(tl.float64)) * slope).to(tl.float32))


@triton.jit(**_LOOSE)
def _coarse(
    logits, masks, masks_used, kinds, divisors, top_ks, top_ps, firsts, lows, sums, edges, size, stride, words,
    length, steps: tl.constexpr, block: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    begin(early)
    row, span = tl.program_id(0).to(tl.int64), tl.program_id(1)
    kind, masked, divisor = tl.load(kinds + row), tl.load(masks_used + row), tl.load(divisors + row)
    high, low = _ends(firsts, lows, row)
    _sampled, by_number, by_weight = _cuts(kind, tl.load(top_ks + row), tl.load(top_ps + row), high, size)
    if by_number | by_weight:
        # Below 27.73 temperatures a weight is 0. By number, the best 32 units of logits hold any usual cut.
        reach = tl.where(by_number, 32.0, -27.73 * divisor).to(tl.float32)
        reach = tl.minimum(reach, high - low)
        step = tl.arange(0, steps)
        edge = _between(high, high - reach, step + 1, 1.0 / steps)
        edge = tl.where(step == steps - 1, float("-inf"), edge)
        if span == 0:
            tl.store(edges + row * steps + step, edge)
        slope = tl.where(by_number, 0.0, -1.4426950408889634 / divisor)
        total = tl.zeros([steps, block // 4], tl.float32)
        for start in range(span * length, span * length + length, block):
            a, b, c, d = _quarters(logits, masks, masked, row, start, size, stride, words, block)
            total += _above(a, edge, _share(a, low, high, slope))
            total += _above(b, edge, _share(b, low, high, slope))
            total += _above(c, edge, _share(c, low, high, slope))
            total += _above(d, edge, _share(d, low, high, slope))
        tl.atomic_add(sums + row * steps + step, (tl.sum(total, 1) * 4294967296.0).to(tl.int64), sem="relaxed")


@triton.jit
def _coarse_step(reached, edge, by_number, top_k, top_p, steps: tl.constexpr):
    """The edges of the coarse step in which the cut lies, most likely; none above: +inf."""
    index = tl.arange(0, steps)
    total = tl.max(reached, 0)
    target = (total.to(tl.float64) * top_p).to(tl.int64)
    if by_number:
        target = tl.minimum(top_k.to(tl.int64) << 32, total)
    step = tl.min(tl.where(reached >= target, index, steps - 1), 0)
    lower = tl.sum(tl.where(index == step, edge, 0.0), 0)
    upper = tl.sum(tl.where(index == step - 1, edge, 0.0), 0)
    return lower, tl.where(step == 0, float("inf"), upper)


@triton.jit
def _worth(value, high, divisor, by_number):
    """What a candidate adds: by number 1, else its weight."""
    worth = tl.full(value.shape, 1, tl.int64)
    if by_number == 0:
        worth = _weight(value, high, divisor)
    return worth


@triton.jit(**_LOOSE)
def _fine(
    logits, masks, masks_used, kinds, divisors, top_ks, top_ps, firsts, lows, coarse_sums, coarse_edges, sums, edges,
    totals, size, stride, words, length, sure: tl.constexpr, coarse_steps: tl.constexpr, steps: tl.constexpr,
    block: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    begin(early)
    row, span = tl.program_id(0).to(tl.int64), tl.program_id(1)
    kind, masked, divisor = tl.load(kinds + row), tl.load(masks_used + row), tl.load(divisors + row)
    top_k, top_p = tl.load(top_ks + row), tl.load(top_ps + row)
    high, low = _ends(firsts, lows, row)
    index = tl.arange(0, coarse_steps)
    reached = tl.load(coarse_sums + row * coarse_steps + index)
    coarse_edge = tl.load(coarse_edges + row * coarse_steps + index)
    _sampled, by_number, by_weight = _cuts(kind, top_k, top_p, high, size)
    cut = by_number | by_weight
    if cut | (sure and (kind != 0) & (high > float("-inf")) & (high < float("inf"))):
        lower, upper = _coarse_step(reached, coarse_edge, by_number, top_k, top_p, coarse_steps)
        above = tl.minimum(upper, high)
        # The first edge is the step's upper one, the last but one its lower one, above the last stand all.
        step = tl.arange(0, steps)
        edge = _between(above, tl.maximum(lower, low), step, 1.0 / (steps - 2))
        edge = tl.where(step == 0, upper, tl.maximum(edge, lower))
        edge = tl.where(step == steps - 2, lower, tl.where(step == steps - 1, float("-inf"), edge))
        if span == 0:
            tl.store(edges + row * steps + step, edge)
        found = tl.zeros([steps, block // 4], tl.int64)
        mass = tl.zeros([block // 4], tl.int64)
        for start in range(span * length, span * length + length, block):
            a, b, c, d = _quarters(logits, masks, masked, row, start, size, stride, words, block)
            if sure:
                mass += _weight(a, high, divisor) + _weight(b, high, divisor)
                mass += _weight(c, high, divisor) + _weight(d, high, divisor)
            found += _above(a, edge, _worth(a, high, divisor, by_number))
            found += _above(b, edge, _worth(b, high, divisor, by_number))
            found += _above(c, edge, _worth(c, high, divisor, by_number))
            found += _above(d, edge, _worth(d, high, divisor, by_number))
        if cut:
            tl.atomic_add(sums + row * steps + step, tl.sum(found, 1), sem="relaxed")
        if sure:
            tl.atomic_add(totals + row, tl.sum(mass, 0), sem="relaxed")


@triton.jit
def _bracket(reached, edge, by_number, by_weight, top_k, top_p, steps: tl.constexpr):
    """The fine step in which the cut lies: whether it does, edges, what stands above, what is needed.

    Of a row that is cut by number and by weight too, all that stand above the lower edge are in question.
    """
    index = tl.arange(0, steps)
    total = tl.max(reached, 0)
    needed = tl.minimum(top_k.to(tl.int64), total)
    if by_number == 0:
        needed = _needed(total, top_p)
    step = tl.min(tl.where(reached >= needed, index, steps - 1), 0)
    lower = tl.sum(tl.where(index == step, edge, 0.0), 0)
    upper = tl.sum(tl.where(index == step - 1, edge, 0.0), 0)
    above = tl.sum(tl.where(index == step - 1, reached, 0), 0)
    both = by_number & by_weight
    inside = (step > 0) & (step < steps - 1)
    return inside, lower, tl.where(both, float("inf"), upper), tl.where(both, 0, above), needed


@triton.jit(**_LOOSE)
def _gather(
    logits, masks, masks_used, ids, kinds, seeds, divisors, top_ks, top_ps, reaches, positions, firsts, lows, sums,
    edges, bounds, counts, list_places, size, stride, words, length, blocks, named: tl.constexpr,
    steps: tl.constexpr, block: tl.constexpr, allowed: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    begin(early)
    row, span = tl.program_id(0).to(tl.int64), tl.program_id(1)
    kind, masked, divisor = tl.load(kinds + row), tl.load(masks_used + row), tl.load(divisors + row)
    top_k, top_p, reach = tl.load(top_ks + row), tl.load(top_ps + row), tl.load(reaches + row)
    seed, position = tl.load(seeds + row), tl.load(positions + row)
    high = _of_level(tl.load(firsts + row) >> 22)
    index = tl.arange(0, steps)
    reached, edge = tl.load(sums + row * steps + index), tl.load(edges + row * steps + index)
    sampled, by_number, by_weight = _cuts(kind, top_k, top_p, high, size)
    if sampled:
        # Without a cut every candidate is sure to stay, and none is listed.
        inside, lower, upper = sampled, float("-inf"), float("-inf")
        if by_number | by_weight:
            inside, lower, upper, _above_it, _need = _bracket(reached, edge, by_number, by_weight, top_k, top_p, steps)
        if inside:
            key = _key(seed, position)
            slope = -1.0 / divisor
            furthest = -(reach * 1.000001 + _slack(high, divisor)).to(tl.float32)
            for start in range(span * length, span * length + length, block):
                place = start + tl.arange(0, block)
                value = _logit(logits, masks, masked, row, place, size, stride, words)
                token = tl.load(ids + place, mask=place < size, other=0) if named else place
                gap = ((value.to(tl.float64) - high.to(tl.float64)) * slope).to(tl.float32)
                near = (value > lower) & (gap >= furthest)
                bound = tl.where(near, _noise_bound(token, key) + gap, float("-inf"))
                if start // block < blocks:
                    tl.store(bounds + row * blocks + start // block, tl.max(bound, 0))
                chosen = (value > lower) & (value <= upper)
                at = tl.atomic_add(counts + row + tl.zeros_like(place), 1, mask=chosen, sem="relaxed")
                tl.store(list_places + row * allowed + at, place, mask=chosen & (at < allowed))


@triton.jit
def _better(score, rank, best, best_rank):
    """Of two candidates the one that wins: the higher score, of equals the earlier in rank."""
    wins = (score > best) | ((score == best) & (rank > best_rank))
    return tl.where(wins, score, best), tl.where(wins, rank, best_rank)


@triton.jit
def _best(score, rank):
    """The winner of candidates: its score and rank."""
    top = tl.max(score, 0)
    return top, tl.max(tl.where(score == top, rank, -1), 0)


@triton.jit
def _candidate(places, logits, masks, masked, row, size, stride, words, listed, start, count, lanes: tl.constexpr):
    """Logits, places and ranks of candidates: of a list of `count`, or of a row itself."""
    at = start + tl.arange(0, lanes)
    if listed:
        place = tl.load(places + at, mask=at < count, other=0)
        value = tl.load(logits + row * stride + place, mask=at < count, other=float("-inf")).to(tl.float32)
    else:
        value = _logit(logits, masks, masked, row, at, size, stride, words)
        place = at
    return value, place, _rank(value, place)


@triton.jit
def _numbered(
    places, logits, masks, masked, row, size, stride, words, listed, count, number, first,
    lanes: tl.constexpr,
):  # fmt: skip
    """The rank of the candidate that `number` have or are before, the row's first one having rank `first`."""
    low, high = tl.full([], 0, tl.int64), first
    while low < high:
        middle = low + (high - low + 1) // 2
        reached = tl.zeros([lanes], tl.int32)
        for start in range(0, count, lanes):
            _value, _place, rank = _candidate(
                places, logits, masks, masked, row, size, stride, words, listed, start, count, lanes
            )
            reached += (rank >= middle).to(tl.int32)
        found = tl.sum(reached, 0)
        low = tl.where(found >= number, middle, low)
        high = tl.where(found > number, high, tl.where(found == number, middle, middle - 1))
    return low


@triton.jit
def _mass(
    places, logits, masks, masked, row, size, stride, words, listed, count, high, divisor, least,
    lanes: tl.constexpr,
):  # fmt: skip
    """What candidates of rank `least` and better weigh."""
    mass = tl.zeros([lanes], tl.int64)
    for start in range(0, count, lanes):
        value, _place, rank = _candidate(
            places, logits, masks, masked, row, size, stride, words, listed, start, count, lanes
        )
        mass += tl.where(rank >= least, _weight(value, high, divisor), 0)
    return tl.sum(mass, 0)


@triton.jit
def _best_of(
    logits, masks, masked, row, size, stride, words, first, ids, key, divisor, reach, high, least,
    named: tl.constexpr, block: tl.constexpr, lanes: tl.constexpr,
):  # fmt: skip
    """The score and rank of the winner among a block's candidates of rank `least` and better, by min-p too."""
    best = tl.full([lanes], float("-inf"), tl.float64)
    best_rank = tl.full([lanes], -1, tl.int64)
    for start in range(first, first + block, lanes):
        place = start + tl.arange(0, lanes)
        value = _logit(logits, masks, masked, row, place, size, stride, words)
        rank = _rank(value, place)
        kept = (rank >= least) & _kept_by_min_p(value, high, divisor, reach)
        token = tl.load(ids + place, mask=kept, other=0) if named else place
        score = tl.where(kept, _score(value, token, key, divisor), float("-inf"))
        best, best_rank = _better(score, tl.where(kept, rank, -1), best, best_rank)
    return _best(best, best_rank)


@triton.jit(**_LOOSE)
def _settle(
    logits, masks, masks_used, ids, kinds, seeds, divisors, top_ks, top_ps, reaches, positions, firsts, lows,
    coarse_sums, fine_sums, fine_edges, totals, bounds, counts, list_places, tokens, shares, size, stride,
    words, blocks, named: tl.constexpr, sure: tl.constexpr, coarse_steps: tl.constexpr, steps: tl.constexpr,
    most: tl.constexpr, block: tl.constexpr, allowed: tl.constexpr, lanes: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    begin(early)
    row = tl.program_id(0).to(tl.int64)
    kind, masked, divisor = tl.load(kinds + row), tl.load(masks_used + row), tl.load(divisors + row)
    top_k, top_p, reach = tl.load(top_ks + row), tl.load(top_ps + row), tl.load(reaches + row)
    seed, position, first = tl.load(seeds + row), tl.load(positions + row), tl.load(firsts + row)
    counted, index, at = tl.load(counts + row), tl.arange(0, most), row * steps + tl.arange(0, steps)
    reached, edge = tl.load(fine_sums + at), tl.load(fine_edges + at)
    bound = tl.load(bounds + row * blocks + index, mask=index < blocks, other=float("-inf"))
    token = tl.full([], -1, tl.int32)
    if kind != 0:
        high = _of_level(first >> 22)
        sampled, by_number, by_weight = _cuts(kind, top_k, top_p, high, size)
        winner = first
        if sampled:
            places = list_places + row * allowed
            key = _key(seed, position)
            count = counted
            inside, above, needed = sampled, tl.full([], 0, tl.int64), tl.full([], 0, tl.int64)
            surely, least = above, tl.full([], 1, tl.int64)
            if by_number | by_weight:
                inside, lower, upper, above, needed = _bracket(reached, edge, by_number, by_weight, top_k, top_p, steps)
                # Where more are in question than a list holds, all are: the row itself is read.
                inside = inside & (counted <= allowed)
                count, above = tl.where(inside, counted, size), tl.where(inside, above, 0)
                least = tl.where(inside, (_level(lower) + 1) << 22, 1)
                if by_number & ((inside == 0) | (needed - above < counted)):
                    least = _numbered(
                        places, logits, masks, masked, row, size, stride, words, inside, count, needed - above, first,
                        lanes,
                    )  # fmt: skip
                if by_weight:
                    surely = tl.where(inside, (_level(upper) + 1) << 22, 9223372036854775807)
                    if by_number:
                        total = _mass(
                            places, logits, masks, masked, row, size, stride, words, inside, count, high, divisor,
                            least, lanes,
                        )  # fmt: skip
                        needed = _needed(total, top_p)
            # A bound is one of a score less the greatest logit's part of it.
            lift = high.to(tl.float64) / divisor - _slack(high, divisor)
            bound = tl.where(inside | (index >= blocks), bound, float("inf"))
            asking = sampled
            while asking:
                best, winner = tl.full([], float("-inf"), tl.float64), tl.full([], -1, tl.int64)
                rest, top = bound, tl.max(bound, 0)
                while (top > float("-inf")) & (top.to(tl.float64) >= best + lift):
                    here = tl.min(tl.where(rest == top, index, most), 0)
                    score, rank = _best_of(
                        logits, masks, masked, row, size, stride, words, here * block, ids, key, divisor, reach, high,
                        least, named, block, lanes,
                    )  # fmt: skip
                    best, winner = _better(score, rank, best, winner)
                    rest = tl.where(index == here, float("-inf"), rest)
                    top = tl.max(rest, 0)
                asking = (winner >= 0) & (winner < surely)
                if asking:
                    before = above + _mass(
                        places, logits, masks, masked, row, size, stride, words, inside, count, high, divisor,
                        winner + 1, lanes,
                    )  # fmt: skip
                    asking = before >= needed
                least = winner + 1
        place = (4194303 - (winner & 4194303)).to(tl.int32)
        token = tl.load(ids + place) if named else place
        if sure:
            share = tl.full([], 1.0, tl.float64)
            if (high > float("-inf")) & (high < float("inf")):
                value = tl.load(logits + row * stride + place).to(tl.float32)
                share = _weight(value, high, divisor).to(tl.float64) / tl.load(totals + row).to(tl.float64)
            tl.store(shares + row, share.to(tl.float32))
    # Every thread has read what is made zero for the next draw.
    tl.debug_barrier()
    tl.store(tokens + row, token)
    tl.store(firsts + row, 0)
    tl.store(lows + row, 0)
    tl.store(counts + row, 0)
    tl.store(totals + row, 0)
    tl.store(coarse_sums + row * coarse_steps + tl.arange(0, coarse_steps), tl.zeros([coarse_steps], tl.int64))
    tl.store(fine_sums + row * steps + tl.arange(0, steps), tl.zeros([steps], tl.int64))


@dataclass(frozen=True, slots=True)
class Rules:
    """What each of R rows is drawn with, on the device.

    `kinds` int32: FORCED (not drawn: token -1), GREEDY, SAMPLED. `seeds` int64, the seed's 64 bits. `divisors` float64:
    the temperature, within 1e-6 and 1e200, times -1. `top_ks` int32, `top_ps` float64 as the domain has them. `reaches`
    float64: -ln(min_p), +inf where it is off. `positions` int64: of the tokens drawn. `masked` int32: whether the row's
    mask counts.
    """

    kinds: Tensor
    seeds: Tensor
    divisors: Tensor
    top_ks: Tensor
    top_ps: Tensor
    reaches: Tensor
    positions: Tensor
    masked: Tensor


@dataclass(frozen=True, slots=True)
class Scratch:
    """Room for the draws of R rows: about 49 KiB a row, used by one launch at a time, zero at first."""

    firsts: Tensor  # int64 [R], the rank of the first candidate
    lows: Tensor  # int64 [R], the level of the least logit, negated
    coarse_sums: Tensor  # int64 [R, 32], in 2^-32
    fine_sums: Tensor  # int64 [R, 16]
    totals: Tensor  # int64 [R], weights of whole rows, where shares are asked for
    counts: Tensor  # int32 [R], how many are listed
    coarse_edges: Tensor  # float32 [R, 32]
    fine_edges: Tensor  # float32 [R, 16]
    bounds: Tensor  # float32 [R, 4096]
    places: Tensor  # int32 [R, LISTED]

    def clear(self) -> None:
        """Forget a draw of which a part has run."""
        for added in (self.firsts, self.lows, self.coarse_sums, self.fine_sums, self.totals, self.counts):
            added.zero_()


def scratch(rows: int, zeros: Any, kinds: Any) -> Scratch:
    """Scratch for up to `rows` rows; `zeros(shape, kind)` makes it, `kinds` names int32, int64 and float32."""
    whole, short, real = kinds.int64, kinds.int32, kinds.float32
    return Scratch(
        zeros((rows,), whole),
        zeros((rows,), whole),
        zeros((rows, _COARSE), whole),
        zeros((rows, _FINE), whole),
        zeros((rows,), whole),
        zeros((rows,), short),
        zeros((rows, _COARSE), real),
        zeros((rows, _FINE), real),
        zeros((rows, MOST_IDS // _BLOCK), real),
        zeros((rows, LISTED), short),
    )


def length_of(rows: int, size: int) -> int:
    """How much of a row one program takes: whole blocks, so many that programs fill a card and seldom queue for it."""
    blocks = rows * -(-size // _BLOCK)
    return _BLOCK * -(-blocks // (_FEW_PROGRAMS if blocks <= _FEW_BLOCKS else _PROGRAMS))


def draw_rows(
    logits: Tensor, rules: Rules, room: Scratch, tokens: Tensor, masks: Tensor | None = None, ids: Tensor | None = None,
    shares: Tensor | None = None,
) -> None:  # fmt: skip
    """`tokens` int32 [R]: the draws from float32 `logits` [R, V], V at most MOST_IDS.

    `masks` int32 [R, ceil(V / 32)]: allowed ids, bit t % 32 of word t // 32, of rows whose `masked` is set. `ids` int32
    [V], ascending: the tokens that the logits belong to, where they are not all. `shares` float32 [R] gets the
    probability of the drawn token among them at the row's temperature.
    """
    try:
        _launch(logits, rules, room, tokens, masks, ids, shares)
    except BaseException:
        room.clear()  # or the next draw would add to what this one began
        raise


def _launch(
    logits: Tensor, rules: Rules, room: Scratch, tokens: Tensor, masks: Tensor | None, ids: Tensor | None,
    shares: Tensor | None,
) -> None:  # fmt: skip
    rows, size = logits.shape
    length, blocks = length_of(rows, size), -(-size // _BLOCK)
    stride = logits.stride(0)
    words = 0 if masks is None else masks.shape[1]
    # A pointer that is not read may be any; without words no row is masked.
    mask, names, share = (tokens if each is None else each for each in (masks, ids, shares))
    named, sure = ids is not None, shares is not None
    grid, early, r, cut = (rows, -(-size // length)), follow(tokens), room, rules
    row = (logits, mask, cut.masked)
    shape = (size, stride, words, length)
    _survey[grid](*row, cut.kinds, r.firsts, r.lows, *shape, _BLOCK, num_warps=8, **early)
    cuts = (cut.kinds, cut.divisors, cut.top_ks, cut.top_ps, r.firsts, r.lows)
    coarse, fine = (r.coarse_sums, r.coarse_edges), (r.fine_sums, r.fine_edges)
    _coarse[grid](*row, *cuts, *coarse, *shape, _COARSE, _BLOCK, num_warps=8, **early)
    _fine[grid](
        *row, *cuts, *coarse, *fine, r.totals, *shape, sure, _COARSE, _FINE, _BLOCK, num_warps=8, **early,
    )  # fmt: skip
    settings = (
        names, cut.kinds, cut.seeds, cut.divisors, cut.top_ks, cut.top_ps, cut.reaches, cut.positions, r.firsts, r.lows,
    )  # fmt: skip
    found = (r.bounds, r.counts, r.places)
    _gather[grid](
        *row, *settings, *fine, *found, *shape, blocks, named, _FINE, _BLOCK, LISTED, num_warps=8, **early
    )  # fmt: skip
    _settle[(rows,)](
        *row, *settings, r.coarse_sums, *fine, r.totals, *found, tokens, share, size, stride, words, blocks,
        named, sure, _COARSE, _FINE, triton.next_power_of_2(blocks), _BLOCK, LISTED, _SETTLE_LANES, num_warps=16,
        **early,
    )  # fmt: skip
