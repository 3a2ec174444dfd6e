# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""The sampler rule on a device, as `domain.sampling` has it: keyed float64 noise, whole-number nucleus, ties by id.

    row of V logits:   |  span 0  |  span 1  | ... |      one program a row and span
    peaks              greatest logit, its lowest id, least logit
    coarse             counts and weights above 16 thresholds between them
    fine               the same inside the step where the cut lies, if that step is still crowded
    gather             noise of the candidates above the step; those inside it are listed, in the order of their ids
    settle             one program a row: the cut inside the list, noise of what stays, the winner

Sums that choose are whole numbers, so spans, thresholds and launches cannot move a cut. A step that stays crowded (ties
by the thousand) is settled by reading the row again: slower, the same draw. Rows that are greedy, or have no cut, leave
the kernels that they do not need at once, so one graph serves any mixture.

A device's exp and log may differ from the host's in the last bit. Then a weight may be off by one part in 2^40 of the
likeliest candidate's, which moves a cut only where the sum meets the need to within a few such parts, and a score by
some 1e-16: chances below one in 1e9. A device's own draws are always the same, and replies rest on those alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

Tensor = Any

FORCED, GREEDY, SAMPLED = 0, 1, 2
LISTED = 4096
_STEPS = 16
_PEAK_LANES, _LANES, _GATHER_LANES = 1024, 256, 512  # logits that one turn of a span's loop reads
_MOST_SPANS, _WANTED_PROGRAMS = 128, 1024
_MOST_TURNS = 255  # of `_count`, whose sums have no room for more


@triton.jit
def _logit(logits, masks, masked, row, place, size, stride, words):
    """Logits at `place` of a row; -inf where there is none, for NaN, and where the row's mask forbids the id."""
    value = tl.load(logits + row * stride + place, mask=place < size, other=float("-inf")).to(tl.float32)
    if (masked != 0) & (words > 0):
        word = tl.load(masks + row * words + place // 32, mask=place < size, other=0)
        value = tl.where(((word >> (place % 32)) & 1) != 0, value, float("-inf"))
    return tl.where(value == value, value, float("-inf"))


@triton.jit
def _rank(value, place):
    """One whole number that orders candidates: the greater logit first, of equals the lower place; never negative."""
    bits = tl.where(value == 0.0, 0.0, value).to(tl.int32, bitcast=True)
    ordered = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int64) + 2147483648
    return ordered * 4194304 + (4194303 - place)


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
def _score(value, token, seed, position, divisor):
    """Noise less energy of candidates; -inf stays -inf."""
    key = _mixed(seed.to(tl.uint64, bitcast=True) + 0x9E3779B97F4A7C15)
    key = _mixed(key ^ (position.to(tl.uint64) * 0xD1B54A32D192ED03))
    hashed = _mixed(token.to(tl.uint64) ^ key)
    uniform = (hashed >> 11).to(tl.int64).to(tl.float64) * 1.1102230246251565e-16 + 5.551115123125783e-17
    uniform = tl.minimum(uniform, 0.9999999999999999)
    noise = -tl.log(-tl.log(uniform))
    return noise - value.to(tl.float64) / divisor


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
def _peak(tops, places, row, spans, most: tl.constexpr):
    """The greatest logit of a row and the lowest place that has it."""
    span = tl.arange(0, most)
    real = span < spans
    top = tl.load(tops + row * spans + span, mask=real, other=float("-inf"))
    high = tl.max(top, 0)
    place = tl.load(places + row * spans + span, mask=real, other=2147483647)
    return high, tl.min(tl.where(real & (top == high), place, 2147483647), 0)


@triton.jit
def _cuts(kind, top_k, top_p, high, size):
    """Whether a row is sampled at all, by number, and by weight."""
    sampled = (kind == 2) & (high > float("-inf")) & (high < float("inf"))
    return sampled, sampled & (top_k > 0) & (top_k < size), sampled & (top_p > 0.0) & (top_p < 1.0)


@triton.jit
def _at(values, place, count: tl.constexpr):
    return tl.sum(tl.where(tl.arange(0, count) == place, values, 0), 0)


@triton.jit
def _totals(table, row, spans, count: tl.constexpr, most: tl.constexpr):
    """Sums over a row's spans of a table [R, spans, count]."""
    span, step = tl.arange(0, most), tl.arange(0, count)
    at = (row * spans + span)[:, None] * count + step[None, :]
    return tl.sum(tl.load(table + at, mask=(span < spans)[:, None], other=0).to(tl.int64), 0)


@triton.jit
def _step(numbers, weights, edges, row, spans, by_number, top_k, needed, count: tl.constexpr, most: tl.constexpr):
    """The step in which the cut lies: its index, edges (none above: +inf) and what stands above and down to it."""
    index = tl.arange(0, count)
    number = _totals(numbers, row, spans, count, most)
    weight = _totals(weights, row, spans, count, most)
    reached = tl.where(by_number, number, weight)
    target = tl.where(by_number, tl.minimum(top_k.to(tl.int64), tl.max(number, 0)), needed)
    step = tl.min(tl.where(reached >= target, index, count - 1), 0)
    edge = tl.load(edges + row * count + index)
    lower = tl.sum(tl.where(index == step, edge, 0.0), 0)
    upper = tl.sum(tl.where(index == step - 1, edge, 0.0), 0)
    upper = tl.where(step == 0, float("inf"), upper)
    return step, lower, upper, _at(number, step - 1, count), _at(weight, step - 1, count), _at(number, step, count)


@triton.jit
def _found(
    coarse_numbers, coarse_weights, coarse_edges, fine_numbers, fine_weights, fine_edges, row, spans, by_number,
    by_weight, top_k, top_p, allowed, count: tl.constexpr, most: tl.constexpr,
):  # fmt: skip
    """The last step found: whether it is a fine one, then as `_step` tells, how many it lists, what is needed."""
    total = tl.max(_totals(coarse_weights, row, spans, count, most), 0)
    needed = tl.where(by_weight, _needed(total, top_p), 0)
    both = by_number & by_weight
    step, lower, upper, number, weight, down = _step(
        coarse_numbers, coarse_weights, coarse_edges, row, spans, by_number, top_k, needed, count, most
    )
    listed = tl.where(both, down, down - number)
    crowded = listed > allowed
    if crowded:
        step, lower, upper, number, weight, down = _step(
            fine_numbers, fine_weights, fine_edges, row, spans, by_number, top_k, needed, count, most
        )
        listed = tl.where(both, down, down - number)
    return crowded, step, lower, upper, number, weight, listed, needed


@triton.jit
def _count(
    logits, masks, masked, row, first, last, size, stride, words, high, divisor, edge, numbers, weights, at,
    count: tl.constexpr, lanes: tl.constexpr,
):  # fmt: skip
    """Counts and weights of a span's candidates above each of `edge` [count]."""
    # One sum holds both: weights below bit 48, since a thread adds at most 255 of up to 2^40, and numbers above.
    both = tl.zeros([count, lanes], tl.int64)
    for start in tl.range(first, last, lanes, num_stages=3):
        value = _logit(logits, masks, masked, row, start + tl.arange(0, lanes), size, stride, words)
        worth = _weight(value, high, divisor) + 281474976710656
        both += tl.where(value[None, :] > edge[:, None], worth[None, :], 0)
    step = tl.arange(0, count)
    tl.store(numbers + at * count + step, tl.sum((both >> 48).to(tl.int32), 1))
    tl.store(weights + at * count + step, tl.sum(both & 281474976710655, 1))


@triton.jit
def _peaks(
    logits, masks, masks_used, kinds, tops, places, lows, size, stride, words, spans, length, lanes: tl.constexpr
):
    row, span = tl.program_id(0).to(tl.int64), tl.program_id(1)
    if tl.load(kinds + row) != 0:
        masked = tl.load(masks_used + row)
        place = span * length + tl.arange(0, lanes)
        top = tl.full([lanes], float("-inf"), tl.float32)
        low = tl.full([lanes], float("inf"), tl.float32)
        first = place
        for start in range(0, length, lanes):
            value = _logit(logits, masks, masked, row, place + start, size, stride, words)
            first = tl.where(value > top, place + start, first)
            top = tl.maximum(top, value)
            low = tl.minimum(low, tl.where(value > float("-inf"), value, float("inf")))
        high = tl.max(top, 0)
        at = row * spans + span
        tl.store(tops + at, high)
        tl.store(places + at, tl.min(tl.where(top == high, first, 2147483647), 0))
        tl.store(lows + at, tl.min(low, 0))


@triton.jit
def _coarse(
    logits, masks, masks_used, kinds, divisors, top_ks, top_ps, tops, places, lows, numbers, weights, edges, size,
    stride, words, spans, length, sure: tl.constexpr, count: tl.constexpr, lanes: tl.constexpr, most: tl.constexpr,
):  # fmt: skip
    row, span = tl.program_id(0).to(tl.int64), tl.program_id(1)
    kind = tl.load(kinds + row)
    if (kind == 2) | (sure and kind == 1):
        high, _first = _peak(tops, places, row, spans, most)
        _sampled, by_number, by_weight = _cuts(kind, tl.load(top_ks + row), tl.load(top_ps + row), high, size)
        whole = (high > float("-inf")) & (high < float("inf"))
        if by_number | by_weight | (sure and whole):
            divisor = tl.load(divisors + row)
            other = tl.arange(0, most)
            low = tl.min(tl.load(lows + row * spans + other, mask=other < spans, other=float("inf")), 0)
            # Below 27.73 temperatures a weight is 0. By number, the best 32 units of logits hold any usual cut.
            reach = tl.where(by_number, 32.0, -27.73 * divisor)
            reach = tl.minimum(reach, high.to(tl.float64) - low.to(tl.float64))
            step = tl.arange(0, count)
            edge = (high.to(tl.float64) - reach * ((step + 1).to(tl.float64) / count)).to(tl.float32)
            edge = tl.where(step == count - 1, float("-inf"), edge)
            if span == 0:
                tl.store(edges + row * count + step, edge)
            _count(
                logits, masks, tl.load(masks_used + row), row, span * length, span * length + length, size, stride,
                words, high, divisor, edge, numbers, weights, row * spans + span, count, lanes,
            )  # fmt: skip


@triton.jit
def _fine(
    logits, masks, masks_used, kinds, divisors, top_ks, top_ps, tops, places, lows, coarse_numbers, coarse_weights,
    coarse_edges, numbers, weights, edges, size, stride, words, spans, length, count: tl.constexpr,
    lanes: tl.constexpr, most: tl.constexpr, allowed: tl.constexpr,
):  # fmt: skip
    row, span = tl.program_id(0).to(tl.int64), tl.program_id(1)
    kind = tl.load(kinds + row)
    if kind == 2:
        high, _first = _peak(tops, places, row, spans, most)
        top_k, top_p = tl.load(top_ks + row), tl.load(top_ps + row)
        _sampled, by_number, by_weight = _cuts(kind, top_k, top_p, high, size)
        if by_number | by_weight:
            total = tl.max(_totals(coarse_weights, row, spans, count, most), 0)
            needed = tl.where(by_weight, _needed(total, top_p), 0)
            _place, lower, upper, number, _mass, down = _step(
                coarse_numbers, coarse_weights, coarse_edges, row, spans, by_number, top_k, needed, count, most
            )
            if tl.where(by_number & by_weight, down, down - number) > allowed:
                other = tl.arange(0, most)
                low = tl.min(tl.load(lows + row * spans + other, mask=other < spans, other=float("inf")), 0)
                above = tl.minimum(upper, high).to(tl.float64)
                below = tl.maximum(lower, low).to(tl.float64)
                index = tl.arange(0, count)
                edge = (above + (below - above) * ((index + 1).to(tl.float64) / count)).to(tl.float32)
                edge = tl.where(index == count - 1, lower, tl.maximum(edge, lower))
                if span == 0:
                    tl.store(edges + row * count + index, edge)
                _count(
                    logits, masks, tl.load(masks_used + row), row, span * length, span * length + length, size, stride,
                    words, high, tl.load(divisors + row), edge, numbers, weights, row * spans + span, count, lanes,
                )  # fmt: skip


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
def _gather(
    logits, masks, masks_used, ids, kinds, seeds, divisors, top_ks, top_ps, reaches, positions, tops, places,
    coarse_numbers, coarse_weights, coarse_edges, fine_numbers, fine_weights, fine_edges, scores, ranks, list_values,
    list_places, size, stride, words, spans, length, named: tl.constexpr, count: tl.constexpr,
    lanes: tl.constexpr, most: tl.constexpr, allowed: tl.constexpr,
):  # fmt: skip
    row, span = tl.program_id(0).to(tl.int64), tl.program_id(1)
    kind = tl.load(kinds + row)
    if kind == 2:
        high, _first = _peak(tops, places, row, spans, most)
        top_k, top_p = tl.load(top_ks + row), tl.load(top_ps + row)
        sampled, by_number, by_weight = _cuts(kind, top_k, top_p, high, size)
        # Without a cut every candidate is sure to stay, and none is listed.
        lower, upper, base, crowded = float("-inf"), float("-inf"), tl.full([], 0, tl.int64), False
        if by_number | by_weight:
            is_fine, step, lower, upper, _number, _mass, listed, _need = _found(
                coarse_numbers, coarse_weights, coarse_edges, fine_numbers, fine_weights, fine_edges, row, spans,
                by_number, by_weight, top_k, top_p, allowed, count, most,
            )  # fmt: skip
            crowded = listed > allowed
            upper = tl.where(by_number & by_weight, float("inf"), upper)
            other = tl.arange(0, most)
            before = other < span
            at = (row * spans + other) * count + step
            if is_fine:
                down = tl.load(fine_numbers + at, mask=before, other=0)
                over = tl.load(fine_numbers + at - tl.minimum(step, 1), mask=before, other=0)
            else:
                down = tl.load(coarse_numbers + at, mask=before, other=0)
                over = tl.load(coarse_numbers + at - tl.minimum(step, 1), mask=before, other=0)
            over = tl.where((step == 0) | (by_number & by_weight), 0, over)
            base = tl.sum((down - over).to(tl.int64), 0)
        best = tl.full([lanes], float("-inf"), tl.float64)
        best_rank = tl.full([lanes], -1, tl.int64)
        if sampled & (crowded == 0):
            masked, divisor = tl.load(masks_used + row), tl.load(divisors + row)
            seed, position, reach = tl.load(seeds + row), tl.load(positions + row), tl.load(reaches + row)
            for start in range(span * length, span * length + length, lanes):
                place = start + tl.arange(0, lanes)
                value = _logit(logits, masks, masked, row, place, size, stride, words)
                sure = (value > upper) & (value > float("-inf"))
                if tl.max(sure.to(tl.int32), 0) > 0:
                    token = tl.load(ids + place, mask=place < size, other=0) if named else place
                    score = _score(value, token, seed, position, divisor)
                    sure = sure & _kept_by_min_p(value, high, divisor, reach)
                    score = tl.where(sure, score, float("-inf"))
                    rank = tl.where(sure, _rank(value, place), -1)
                    best, best_rank = _better(score, rank, best, best_rank)
                chosen = ((value > lower) & (value <= upper)).to(tl.int32)
                found = tl.sum(chosen, 0)
                if found > 0:
                    to = row * allowed + base + tl.cumsum(chosen, 0) - 1
                    tl.store(list_values + to, value, mask=chosen != 0)
                    tl.store(list_places + to, place, mask=chosen != 0)
                    base += found.to(tl.int64)
        top, top_rank = _best(best, best_rank)
        tl.store(scores + row * spans + span, top)
        tl.store(ranks + row * spans + span, top_rank)


@triton.jit
def _cut(rank, value, target):
    """The greatest rank c such that the `value`s of candidates of rank c and better reach `target`; rank -1 is none.

    First among logits alone, then, where several share the logit of the cut, among their places.
    """
    level = rank >> 22
    low = tl.min(tl.where(rank >= 0, level, 9223372036854775807), 0)
    high = tl.max(level, 0)
    while low < high:
        middle = low + (high - low + 1) // 2
        enough = tl.sum(tl.where(level >= middle, value, 0), 0) >= target
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle - 1)
    low = low << 22
    if tl.sum((level == (low >> 22)).to(tl.int32), 0) > 1:
        high = low + 4194303
        while low < high:
            middle = low + (high - low + 1) // 2
            enough = tl.sum(tl.where(rank >= middle, value, 0), 0) >= target
            low = tl.where(enough, middle, low)
            high = tl.where(enough, high, middle - 1)
    return low


@triton.jit
def _row_sum(logits, masks, masked, row, size, stride, words, high, divisor, least, by_number, block: tl.constexpr):
    """Over a whole row: how many candidates have rank `least` or better, or what they weigh."""
    total = tl.zeros([block], tl.int64)
    for start in range(0, size, block):
        place = start + tl.arange(0, block)
        value = _logit(logits, masks, masked, row, place, size, stride, words)
        worth = tl.where(by_number, 1, _weight(value, high, divisor))
        total += tl.where((value > float("-inf")) & (_rank(value, place) >= least), worth, 0)
    return tl.sum(total, 0)


@triton.jit
def _row_cut(
    logits, masks, masked, row, size, stride, words, high, divisor, least, by_number, target, block: tl.constexpr
):
    """`_cut` over a whole row's candidates of rank `least` and better."""
    low = least
    top = _rank(high, 0)
    while low < top:
        middle = low + (top - low + 1) // 2
        enough = _row_sum(logits, masks, masked, row, size, stride, words, high, divisor, middle, by_number, block)
        low = tl.where(enough >= target, middle, low)
        top = tl.where(enough >= target, top, middle - 1)
    return low


@triton.jit
def _settle_list(
    values, places, listed, number, weight, needed, by_number, by_weight, ids, seed, position, divisor, reach, top_k,
    top_p, high, named: tl.constexpr, allowed: tl.constexpr,
):  # fmt: skip
    """The winner among listed candidates, `number` of which, weighing `weight`, are surely kept above them."""
    index = tl.arange(0, allowed)
    real = index < listed
    value = tl.load(values + index, mask=real, other=float("-inf"))
    place = tl.load(places + index, mask=real, other=0)
    rank = tl.where(real, _rank(value, place), -1)
    if by_number:
        left = top_k - tl.where(by_weight, 0, number)
        if left < listed:
            rank = tl.where(rank >= _cut(rank, real.to(tl.int64), left), rank, -1)
    if by_weight:
        mass = tl.where(rank >= 0, _weight(value, high, divisor), 0)
        target = needed - weight
        if by_number:
            target = _needed(tl.sum(mass, 0), top_p)
        rank = tl.where(rank >= _cut(rank, mass, target), rank, -1)
    kept = (rank >= 0) & _kept_by_min_p(value, high, divisor, reach)
    name = tl.load(ids + place, mask=real, other=0) if named else place
    score = tl.where(kept, _score(value, name, seed, position, divisor), float("-inf"))
    return _best(score, tl.where(kept, rank, -1))


@triton.jit
def _settle_row(
    logits, masks, masked, row, size, stride, words, by_number, by_weight, ids, seed, position, divisor, reach, top_k,
    top_p, high, named: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """The winner of a row whose cut lies in a crowd: the row is read once for each step of the searches."""
    least = tl.full([], 0, tl.int64)
    if by_number:
        present = _row_sum(logits, masks, masked, row, size, stride, words, high, divisor, least, True, block)
        if top_k < present:
            number = top_k.to(tl.int64)
            least = _row_cut(logits, masks, masked, row, size, stride, words, high, divisor, least, True, number, block)
    if by_weight:
        total = _row_sum(logits, masks, masked, row, size, stride, words, high, divisor, least, False, block)
        need = _needed(total, top_p)
        least = _row_cut(logits, masks, masked, row, size, stride, words, high, divisor, least, False, need, block)
    best = tl.full([block], float("-inf"), tl.float64)
    best_rank = tl.full([block], -1, tl.int64)
    for start in range(0, size, block):
        place = start + tl.arange(0, block)
        value = _logit(logits, masks, masked, row, place, size, stride, words)
        rank = _rank(value, place)
        kept = (value > float("-inf")) & (rank >= least) & _kept_by_min_p(value, high, divisor, reach)
        name = tl.load(ids + place, mask=place < size, other=0) if named else place
        score = tl.where(kept, _score(value, name, seed, position, divisor), float("-inf"))
        best, best_rank = _better(score, tl.where(kept, rank, -1), best, best_rank)
    return _best(best, best_rank)


@triton.jit
def _settle(
    logits, masks, masks_used, ids, kinds, seeds, divisors, top_ks, top_ps, reaches, positions, tops, places,
    coarse_numbers, coarse_weights, coarse_edges, fine_numbers, fine_weights, fine_edges, scores, ranks, list_values,
    list_places, tokens, shares, size, stride, words, spans, named: tl.constexpr, sure: tl.constexpr,
    count: tl.constexpr, most: tl.constexpr, allowed: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    kind = tl.load(kinds + row)
    token = tl.full([], -1, tl.int32)
    if kind != 0:
        high, winner = _peak(tops, places, row, spans, most)
        divisor, masked = tl.load(divisors + row), tl.load(masks_used + row)
        top_k, top_p = tl.load(top_ks + row), tl.load(top_ps + row)
        sampled, by_number, by_weight = _cuts(kind, top_k, top_p, high, size)
        if sampled:
            other = tl.arange(0, most)
            their_score = tl.load(scores + row * spans + other, mask=other < spans, other=float("-inf"))
            best, best_rank = _best(their_score, tl.load(ranks + row * spans + other, mask=other < spans, other=-1))
            if by_number | by_weight:
                seed, position, reach = tl.load(seeds + row), tl.load(positions + row), tl.load(reaches + row)
                _deep, _place, _lower, _upper, number, weight, listed, needed = _found(
                    coarse_numbers, coarse_weights, coarse_edges, fine_numbers, fine_weights, fine_edges, row, spans,
                    by_number, by_weight, top_k, top_p, allowed, count, most,
                )  # fmt: skip
                if listed <= allowed:
                    score, rank = _settle_list(
                        list_values + row * allowed, list_places + row * allowed, listed, number, weight, needed,
                        by_number, by_weight, ids, seed, position, divisor, reach, top_k, top_p, high, named, allowed,
                    )  # fmt: skip
                else:
                    score, rank = _settle_row(
                        logits, masks, masked, row, size, stride, words, by_number, by_weight, ids, seed, position,
                        divisor, reach, top_k, top_p, high, named, allowed,
                    )  # fmt: skip
                best, best_rank = _better(score, rank, best, best_rank)
            winner = (4194303 - (best_rank & 4194303)).to(tl.int32)
        token = tl.load(ids + winner) if named else winner
        if sure:
            share = tl.full([], 1.0, tl.float64)
            if (high > float("-inf")) & (high < float("inf")):
                total = tl.max(_totals(coarse_weights, row, spans, count, most), 0)
                value = tl.load(logits + row * stride + winner).to(tl.float32)
                share = _weight(value, high, divisor).to(tl.float64) / total.to(tl.float64)
            tl.store(shares + row, share.to(tl.float32))
    tl.store(tokens + row, token)


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
    """Room for the draws of R rows: about 110 KiB a row, used by one launch at a time."""

    tops: Tensor  # float32 [R, spans]
    places: Tensor  # int32 [R, spans]
    lows: Tensor  # float32 [R, spans]
    coarse: tuple[Tensor, Tensor, Tensor]  # int32 and int64 [R, spans, 16], float32 [R, 16]
    fine: tuple[Tensor, Tensor, Tensor]  # int32 and int64 [R, spans, 16], float32 [R, 16]
    scores: Tensor  # float64 [R, spans]
    ranks: Tensor  # int64 [R, spans]
    values: Tensor  # float32 [R, LISTED]
    listed: Tensor  # int32 [R, LISTED]


def scratch(rows: int, empty: Any, kinds: Any) -> Scratch:
    """Scratch for up to `rows` rows; `empty(shape, kind)` allocates, `kinds` names int32, int64, float32, float64."""
    spans = _MOST_SPANS

    def steps() -> tuple[Tensor, Tensor, Tensor]:
        shape = (rows, spans, _STEPS)
        return empty(shape, kinds.int32), empty(shape, kinds.int64), empty((rows, _STEPS), kinds.float32)

    return Scratch(
        empty((rows, spans), kinds.float32),
        empty((rows, spans), kinds.int32),
        empty((rows, spans), kinds.float32),
        steps(),
        steps(),
        empty((rows, spans), kinds.float64),
        empty((rows, spans), kinds.int64),
        empty((rows, LISTED), kinds.float32),
        empty((rows, LISTED), kinds.int32),
    )


def spans_of(rows: int, size: int) -> tuple[int, int]:
    """Into how many spans rows are cut, and their length: enough programs for a card, no more than are merged fast."""
    wanted = min(size * rows // _WANTED_PROGRAMS, _MOST_TURNS * _LANES - _PEAK_LANES)
    length = -(-max(2 * _PEAK_LANES, wanted, -(-size // _MOST_SPANS)) // _PEAK_LANES) * _PEAK_LANES
    return -(-size // length), length


def draw_rows(
    logits: Tensor, rules: Rules, room: Scratch, tokens: Tensor, masks: Tensor | None = None, ids: Tensor | None = None,
    shares: Tensor | None = None,
) -> None:  # fmt: skip
    """`tokens` int32 [R]: the draws from float32 `logits` [R, V], V at most 4,194,304.

    `masks` int32 [R, ceil(V / 32)]: allowed ids, bit t % 32 of word t // 32, of rows whose `masked` is set. `ids` int32
    [V], ascending: the tokens that the logits belong to, where they are not all. `shares` float32 [R] gets the
    probability of the drawn token among them at the row's temperature.
    """
    rows, size = logits.shape
    spans, length = spans_of(rows, size)
    most = triton.next_power_of_2(spans)
    stride = logits.stride(0)
    words = 0 if masks is None else masks.shape[1]
    # A pointer that is not read may be any; without words no row is masked.
    mask, flags = tokens if masks is None else masks, rules.masked
    names, share = tokens if ids is None else ids, tokens if shares is None else shares
    sure, grid, r = shares is not None, (rows, spans), room
    shape = (size, stride, words, spans, length)
    _peaks[grid](logits, mask, flags, rules.kinds, r.tops, r.places, r.lows, *shape, _PEAK_LANES, num_warps=4)
    peaks = (rules.kinds, rules.divisors, rules.top_ks, rules.top_ps, r.tops, r.places, r.lows)
    _coarse[grid](logits, mask, flags, *peaks, *r.coarse, *shape, sure, _STEPS, _LANES, most, num_warps=8)
    _fine[grid](logits, mask, flags, *peaks, *r.coarse, *r.fine, *shape, _STEPS, _LANES, most, LISTED, num_warps=8)
    settings = (
        names, rules.kinds, rules.seeds, rules.divisors, rules.top_ks, rules.top_ps, rules.reaches, rules.positions,
    )  # fmt: skip
    found = (r.tops, r.places, *r.coarse, *r.fine, r.scores, r.ranks, r.values, r.listed)
    named = ids is not None
    _gather[grid](
        logits, mask, flags, *settings, *found, *shape, named, _STEPS, _GATHER_LANES, most, LISTED, num_warps=4
    )
    _settle[(rows,)](
        logits, mask, flags, *settings, *found, tokens, share, *shape[:-1], named, sure, _STEPS, most, LISTED,
        num_warps=16,
    )  # fmt: skip
