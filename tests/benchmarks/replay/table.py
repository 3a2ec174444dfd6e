"""The results as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.benchmarks.replay.compare import OFF, Result
from tests.benchmarks.replay.costs import Machine
from tests.benchmarks.replay.tally import Tally

_HEAD = ("tokens/round", "tokens/time", "rounds saved", "windows landed", "rows wasted", "look-up us")


def lines(result: Result, machines: Sequence[Machine]) -> Iterator[str]:
    """One workload: every figure on the first machine, tokens in the time of one row on the others."""
    first, *others = [machine.name for machine in machines]
    yield f"{result.workload.name}: {result.workload.about}; {result.workload.reply_ids} ids"
    yield "  " + " ".join(["policy".ljust(14), *(f"{head:>14}" for head in _HEAD), *(f"{n:>22}" for n in others)])
    off = result.tallies[OFF][first]
    for policy, cells in result.tallies.items():
        figures = [f"{figure:>14}" for figure in _figures(cells[first], off)]
        yield "  " + " ".join([policy.ljust(14), *figures, *(f"{cells[name].per_time:>22.2f}" for name in others)])


def _figures(tally: Tally, off: Tally) -> tuple[str, ...]:
    return (
        f"{tally.per_round:.2f}",
        f"{tally.per_time:.2f}",
        f"{100 * (1 - tally.rounds / off.rounds):.1f}%",
        f"{100 * tally.landed:.1f}%" if tally.window_ids else "-",
        f"{tally.wasted_rows / tally.rounds:.2f}",
        f"{tally.look_up_us:.0f}",
    )
