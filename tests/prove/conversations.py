"""The proof of conversations: whatever becomes of a stream on its way, its reply is the serial one, token for token.

Nine cells: prompts resumed, restarted, preempted, paused and read in slices, and replies under a budget, a forced call
or a grammar, and forms whose streams give their lanes up. Each runs through the real scheduler until it compared enough
tokens; the last line has the figures.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Sequence

from tests.prove import grammar, prompts
from tests.prove.grammar import GIVEN_UP
from tests.prove.prompts import CellReport
from tests.prove.proof_flags import proof_flags
from tests.prove.shares import shares

CELLS = (*grammar.CELLS, *prompts.CELLS)
"""The slowest first, so that no worker is left with one of them at the end."""
LEAST_CELL, LEAST = 100_000, 1_000_000
"""Tokens that each cell, and all of them, must compare."""


def run(job: tuple[str, int, int]) -> CellReport:
    """One cell until `tokens` were compared; also run in a process of its own."""
    name, tokens, seed = job
    if name in prompts.CELLS:
        return prompts.Cell(name, seed).run(tokens)
    tally = grammar.cell(name, tokens, seed)
    return CellReport(name, tally.tokens, tally.differences, dropped=tally.dropped, first=tally.first)


def failures(reports: Sequence[CellReport], least_cell: int, least: int) -> list[str]:
    """Why the proof does not hold; empty when it does."""
    found = [f"{r.cell}: {r.first}" for r in reports if r.differences]
    found += [f"{name}: nothing was run" for name in CELLS if name not in {r.cell for r in reports}]
    found += [
        f"{r.cell}: {r.compared:,} tokens compared, {least_cell:,} are needed"
        for r in reports
        if r.compared < least_cell
    ]
    if (compared := sum(r.compared for r in reports)) < least:
        found.append(f"{compared:,} tokens compared in all, {least:,} are needed")
    found += [f"{r.cell}: no lane was" for r in reports if r.cell == GIVEN_UP and not r.dropped]
    return [*found, *prompts.failures([r for r in reports if r.cell in prompts.CELLS])]


def _told(report: CellReport) -> str:
    said = f"{report.cell:11} {report.compared:9,} tokens, {report.differences} differences {report.first}".rstrip()
    if report.cell == GIVEN_UP:
        return f"{said}; {report.dropped} lanes given up"
    if report.cell not in prompts.CELLS:
        return said
    return (
        f"{said}; {report.spared:,} of {report.prompts:,} prompt tokens spared, {report.paused} pauses, "
        f"{report.dropped} lanes given up, {report.preempted} yielded, {report.left} left, {report.loaded} from disk"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every cell and print the figures; 1 when one differs or falls short."""
    flags = proof_flags(__doc__, 130_000, arguments, "tokens to compare in each cell")
    seed, began = flags.seed, time.monotonic()
    print(f"conversations proof: seed {seed}", flush=True)
    reports: list[CellReport] = []
    with multiprocessing.get_context("spawn").Pool(flags.processes) as pool:
        for report in pool.imap_unordered(run, [(name, flags.tokens, seed) for name in CELLS]):
            print(_told(report), flush=True)
            reports.append(report)
    found = [*failures(reports, LEAST_CELL, LEAST), *shares(seed)]
    for line in found:
        print(f"  - {line}")
    print(
        f"conversations: {sum(r.compared for r in reports):,} tokens in {len(reports)} cells, least cell "
        f"{min(r.compared for r in reports):,}, {sum(r.differences for r in reports)} differences, "
        f"{sum(r.spared for r in reports):,} prompt tokens spared, {sum(r.paused for r in reports)} pauses, "
        f"{sum(r.dropped for r in reports)} lanes given up, {len(found)} faults, seed {seed}, "
        f"{time.monotonic() - began:.0f} s"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
