"""How many drafts each stream of a round may verify: the rows that give the most expected tokens per millisecond.

Pure arithmetic over chances and a cost curve. Fixed rows (the pending token and forced ones) are never cut. The same
rule serves one stream, where it decides whether a window pays at all and how wide it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

from tensorfold.domain.drafting.costs import CostCurve


@dataclass(frozen=True, slots=True)
class RowRequest:
    """One stream's wish: `fixed` rows that run whatever happens, then drafts with the chance of each to be kept.

    Drafts are granted from the first; a chance behind a lower one waits for it.
    """

    fixed: int
    chances: tuple[float, ...] = ()


def allocate(
    requests: Sequence[RowRequest], curve: CostCurve, *, batch_rows: int, overhead_ms: float
) -> tuple[int, ...]:
    """Granted drafts per stream, at most `batch_rows` rows in all unless the fixed rows alone are more.

    Rows are added likeliest first (of equal ones the earlier stream's), and the count is taken at which
    expected tokens / (`curve` + `overhead_ms`) is highest, the smallest of equal ones. Each stream is expected to
    commit one token besides its kept drafts. Cost: O(rows log streams).
    """
    heap = [(-request.chances[0], stream) for stream, request in enumerate(requests) if request.chances]
    if not heap:
        return (0,) * len(requests)
    fixed = sum(request.fixed for request in requests)
    most = min(batch_rows - fixed, sum(len(request.chances) for request in requests))
    if most <= 0:
        return (0,) * len(requests)
    costs = curve.span(fixed, fixed + most)
    heapify(heap)
    tokens = float(len(requests))
    best_rate, best_count = tokens / (costs[0] + overhead_ms), 0
    taken = [0] * len(requests)
    order: list[int] = []
    for count in range(1, most + 1):
        negative, stream = heap[0]
        order.append(stream)
        taken[stream] += 1
        chances = requests[stream].chances
        if taken[stream] < len(chances):
            heapreplace(heap, (-chances[taken[stream]], stream))
        else:
            heappop(heap)
        tokens -= negative
        rate = tokens / (costs[count] + overhead_ms)
        if rate > best_rate:
            best_rate, best_count = rate, count
    for stream in order[best_count:]:
        taken[stream] -= 1
    return tuple(taken)
