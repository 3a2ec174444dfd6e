"""The core proof: drafted, shared, cancelled and stopped replies equal the serial ones, over millions of tokens.

Every reply goes through the real scheduler over the hash model, whose next token is a hash of everything absorbed, and
is compared with a reference made by a plain loop that shares nothing with the engine but the sampler rule.
"""

from __future__ import annotations

import itertools
import multiprocessing
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tensorfold.application.counters import Counters
from tensorfold.application.engine import Engine
from tensorfold.application.generation import Generation, StreamFactory
from tensorfold.application.planting import PlantedDrafts, Shape, Tally
from tensorfold.application.replies import Ended, Event, GenerationRequest, Landed
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.conversation.token_bytes import TokenBytes
from tensorfold.domain.drafting.copies import CopySourceFactory
from tensorfold.domain.sampling import Sampling
from tests.fakes.clock import MachineClock
from tests.fakes.hash_head import random_head
from tests.fakes.hash_law import HashLaw
from tests.fakes.hash_model import DEFAULT_COSTS, HashModel
from tests.fakes.serial import BYTE_IDS, SerialCase, SerialReply, serial_references
from tests.prove.proof_flags import proof_flags

CELLS = ("chains", "trees", "heads", "crowd", "cancel", "stops", "ignore_eos")
PARALLEL = {"chains": (1,), "trees": (1,), "heads": (1, 4, 16)}
HEADED = 0.2
"""The share of models with a head beside planted drafts; in the cell of heads all have one, and nothing is planted."""
LEAST_REFUSED = 0.2
"""Of a cell's drafts: a proof whose drafts are nearly all right would not see what refusing one breaks."""
HEAD_COSTS = replace(DEFAULT_COSTS, head_ms=(0.01,) * 16)
_BATCH = 48
_WAIT_S = 120.0


@dataclass(slots=True)
class CellReport:
    """What one cell compared and saw."""

    cell: str
    sampled: bool
    compared: int = 0
    differences: int = 0
    drafted: int = 0
    kept: int = 0
    ties: int = 0
    tie_rows: int = 0
    first: str = ""

    @property
    def refused_share(self) -> float:
        return (self.drafted - self.kept) / self.drafted if self.drafted else 0.0


@dataclass(slots=True)
class _Run:
    """One submitted case on its way to its end."""

    case: SerialCase
    expected: SerialReply
    generation: Generation
    leave_after: int = -1


class Cell:
    """Runs one cell until enough tokens have been compared."""

    def __init__(self, cell: str, sampled: bool, seed: int) -> None:
        self.report = CellReport(cell, sampled)
        self._random = random.Random(f"{seed}/{cell}/{sampled}")
        self._cell = cell
        self._sampled = sampled
        self._numbers = itertools.count()

    def run(self, tokens: int) -> CellReport:
        """Compare `tokens`, and up to three times as many where one law's habits are drafted too well to be refused."""
        report = self.report
        while report.compared < tokens and not report.differences:
            self._with_a_new_law(min(tokens, report.compared + 60_000))
        while report.refused_share < LEAST_REFUSED and report.compared < 3 * tokens and not report.differences:
            self._with_a_new_law(report.compared + min(tokens // 2 + 1, 60_000))
        return report

    def _with_a_new_law(self, until: int) -> None:
        rng = self._random
        law = HashLaw(
            vocabulary=rng.choice((64, 64, 96, 128, 256)),
            salt=rng.getrandbits(64),
            tie_share=0.25,
            habit_share=rng.choice((0.0, 0.3, 0.9)),
        )
        ends = frozenset(rng.sample(range(law.vocabulary), 2 if self._cell in ("stops", "ignore_eos") else 1))
        parallel = rng.choice(PARALLEL.get(self._cell, (4, 16)))
        model = HashModel(
            law,
            max_lanes=parallel,
            prefill_slice=16,
            chain_width=rng.choice((16, 16, 16, 5)),
            tree_width=rng.choice((16, 16, 9, 1) if self._cell == "heads" else (16, 16, 9)),
            head=random_head(rng) if self._cell == "heads" or rng.random() < HEADED else None,
            costs=HEAD_COSTS,
        )
        scheduler = self._scheduler(model, parallel, ends)
        scheduler.start()
        scheduler.wait_ready()
        try:
            while self.report.compared < until and not self.report.differences:
                self._batch(law, ends, scheduler)
        finally:
            if not scheduler.stop(60.0):
                raise RuntimeError("the scheduler did not stop")
        if model.misuses:
            self.report.differences += 1
            self.report.first = self.report.first or f"the engine broke the model's port: {model.misuses[0]}"

    def _scheduler(self, model: HashModel, parallel: int, ends: frozenset[int]) -> Scheduler:
        settings = EngineSettings(parallel=parallel, queue=2 * _BATCH, force_windows=self._random.random() < 0.7)
        clock, counters = MachineClock(), Counters()

        def load() -> tuple[Engine, StreamFactory]:
            engine = Engine(model, settings, clock, sources=(CopySourceFactory(),), counters=counters)
            token_bytes = TokenBytes(BYTE_IDS)
            return engine, StreamFactory(context=4096, max_tokens=4096, stop_ids=ends, token_bytes=token_bytes)

        return Scheduler(load, settings, clock, counters=counters)

    # -- one batch -----------------------------------------------------------------------------------------------

    def _batch(self, law: HashLaw, ends: frozenset[int], scheduler: Scheduler) -> None:
        cases = [self._case(law, ends) for _ in range(_BATCH)]
        replies = serial_references(law, cases)
        self._count_ties(law, cases, replies)
        runs = [self._start(scheduler, law, c, r) for c, r in zip(cases, replies, strict=True)]
        for run in runs:
            if not self._finish(run):
                again = self._start(scheduler, law, run.case, run.expected, may_leave=False)
                self._finish(again)

    def _case(self, law: HashLaw, ends: frozenset[int]) -> SerialCase:
        rng = self._random
        prompt = tuple(rng.randrange(law.vocabulary) for _ in range(rng.randrange(1, 24)))
        stop_ids = frozenset() if self._cell == "ignore_eos" else ends
        stops: tuple[bytes, ...] = ()
        if self._cell == "stops" and rng.random() < 0.7:
            stops = tuple(
                bytes(rng.randrange(law.vocabulary) for _ in range(rng.choice((1, 2, 2, 3))))
                for _ in range(rng.choice((1, 2)))
            )
        return SerialCase(prompt, rng.randrange(1, 260), self._sampling(), stop_ids, stops)

    def _sampling(self) -> Sampling:
        rng = self._random
        if not self._sampled:
            return Sampling()
        return Sampling(
            rng.getrandbits(64),
            rng.choice((0.3, 0.7, 1.0, 1.5)),
            rng.choice((0, 0, 5, 20)),
            rng.choice((1.0, 0.95, 0.8)),
            rng.choice((0.0, 0.0, 0.05)),
        )

    def _start(
        self, scheduler: Scheduler, law: HashLaw, case: SerialCase, expected: SerialReply, may_leave: bool = True
    ) -> _Run:
        rng = self._random
        request = GenerationRequest(
            case.prompt,
            case.sampling,
            case.max_tokens,
            stops=case.stops,
            ignore_eos=self._cell == "ignore_eos",
            draft=rng.random() < 0.97,
        )
        shape: Shape = "tree" if self._cell == "trees" or (self._cell != "chains" and rng.random() < 0.5) else "chain"
        if self._cell == "heads":
            return _Run(case, expected, scheduler.submit(request), -1)
        oracle = PlantedDrafts(
            len(case.prompt),
            expected.tokens,
            self._lengths(),
            shape,
            law.vocabulary,
            Tally(),
            rest=rng.choice((0, 2, 5)),
        )
        leaving = may_leave and self._cell == "cancel" and rng.random() < 0.5
        leave = rng.randrange(0, max(1, len(expected.tokens))) if leaving else -1
        return _Run(case, expected, scheduler.submit(request, oracle), leave)

    def _lengths(self) -> Iterator[int]:
        rng = random.Random(self._random.getrandbits(64))
        while True:
            yield rng.choice((0, 1, 2, 3, 5, 8, 12, 15, 15))

    def _finish(self, run: _Run) -> bool:
        """Read a reply to its end and compare it; False when it was left on the way."""
        ids: list[int] = []
        while True:
            if 0 <= run.leave_after <= len(ids):
                run.generation.cancel()
            event = run.generation.next(_WAIT_S)
            if not isinstance(event, Landed):
                break
            ids += event.ids
        left = run.leave_after >= 0 and not isinstance(event, Ended)
        self._compare(run, ids, None if left else event)
        return not left

    def _compare(self, run: _Run, ids: Sequence[int], event: Event | None) -> None:
        report = self.report
        expected = run.expected.tokens[: len(ids)] if event is None else run.expected.tokens
        report.compared += len(expected)
        if tuple(ids) != expected:
            at = next(
                (i for i, (a, b) in enumerate(zip(ids, expected, strict=False)) if a != b), min(len(ids), len(expected))
            )
            report.differences += 1
            report.first = (
                report.first or f"reply position {at} of prompt {run.case.prompt}, {run.case.sampling}: {event}"
            )
        if event is None:
            return
        if not isinstance(event, Ended) or event.reason != run.expected.finish or event.stop != run.expected.stop:
            report.differences += 1
            report.first = report.first or f"ended as {event}, serially as {run.expected.finish} {run.expected.stop!r}"
            return
        report.drafted += event.stats.drafted
        report.kept += event.stats.accepted

    def _count_ties(self, law: HashLaw, cases: Sequence[SerialCase], replies: Sequence[SerialReply]) -> None:
        """How many first draws had equal top logits, over this batch."""
        states = np.array([law.state_of(c.prompt) for c in cases], dtype=np.uint64)
        rows = np.sort(law.logits(states, [c.prompt[-1] for c in cases]), axis=1)
        self.report.ties += int((rows[:, -1] == rows[:, -2]).sum())
        self.report.tie_rows += len(cases)


def _work(job: tuple[str, bool, int, int]) -> CellReport:
    cell, sampled, tokens, seed = job
    return Cell(cell, sampled, seed).run(tokens)


def prove(tokens: int, seed: int, processes: int = 2, say: bool = True) -> list[CellReport]:
    """Every cell, greedy and sampled, `tokens` in all; reports in order."""
    each = -(-tokens // (2 * len(CELLS)))
    jobs = [(cell, sampled, each, seed) for sampled in (True, False) for cell in CELLS]
    reports = []
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for report in pool.imap(_work, jobs):
            reports.append(report)
            if say:
                kind = "sampled" if report.sampled else "greedy"
                print(
                    f"{report.cell:11} {kind:8} {report.compared:10,} tokens, {report.differences} differences, "
                    f"{100 * report.refused_share:.0f}% of {report.drafted:,} drafts refused, "
                    f"{100 * report.ties / max(report.tie_rows, 1):.0f}% of the first rows tied {report.first}",
                    flush=True,
                )
    return reports


def failures(reports: Sequence[CellReport], tokens: int) -> list[str]:
    """Why the proof fails; empty when it holds."""
    each = tokens // (2 * len(CELLS))
    found = []
    for r in reports:
        name = f"{r.cell} {'sampled' if r.sampled else 'greedy'}"
        if r.differences:
            found.append(f"{name}: {r.first}")
        if r.compared < each:
            found.append(f"{name}: {r.compared} tokens compared, {each} are needed")
        if r.refused_share < LEAST_REFUSED:
            found.append(
                f"{name}: {100 * r.refused_share:.0f}% of the drafts were refused, "
                f"at least {100 * LEAST_REFUSED:.0f}% are needed"
            )
        if not r.ties:
            found.append(f"{name}: no tie was seen")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    flags = proof_flags(__doc__, 10_000_000, arguments, "tokens to compare in all cells")
    began = time.monotonic()
    print(f"core proof: seed {flags.seed}", flush=True)
    reports = prove(flags.tokens, flags.seed, flags.processes)
    found = failures(reports, flags.tokens)
    for line in found:
        print(f"  - {line}")
    compared = sum(r.compared for r in reports)
    sampled = sum(r.compared for r in reports if r.sampled)
    drafted, kept = sum(r.drafted for r in reports), sum(r.kept for r in reports)
    print(
        f"core: {compared:,} tokens ({100 * sampled / max(compared, 1):.0f}% sampled), "
        f"{sum(r.differences for r in reports)} differences, least cell {min(r.compared for r in reports):,}, "
        f"{100 * (drafted - kept) / max(drafted, 1):.0f}% of drafts refused, {sum(r.ties for r in reports):,} ties in "
        f"{sum(r.tie_rows for r in reports):,} rows looked at, seed {flags.seed}, {time.monotonic() - began:.0f} s"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
