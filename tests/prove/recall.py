"""The record's proof: with it off, on, read-only, second, poisoned or emptied under running streams, no token changes.

Every reply goes through the real scheduler over the hash model with a record in a temporary folder, alone and in
crowds, greedy and sampled, and is compared with the serial reference. A cell that saw too few copies land or miss has
proved nothing, and fails.
"""

from __future__ import annotations

import multiprocessing
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tensorfold.application.counters import Counters
from tensorfold.application.engine import Engine
from tensorfold.application.generation import StreamFactory
from tensorfold.application.recall import RecallService
from tensorfold.application.replies import Ended, GenerationRequest, Landed
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.conversation.token_bytes import TokenBytes
from tensorfold.domain.drafting.copies import CopySourceFactory
from tensorfold.domain.recall.identity import RecordIdentity
from tensorfold.domain.recall.layout import CHUNK_BYTES, LEAST_CHUNKS
from tensorfold.domain.recall.policy import OfferSettings
from tensorfold.domain.recall.source import RECALL
from tensorfold.domain.sampling import Sampling
from tensorfold.entrypoints.container import Container
from tests.fakes.clock import MachineClock
from tests.fakes.hash_head import random_head
from tests.fakes.hash_law import HashLaw
from tests.fakes.hash_model import HashModel
from tests.fakes.serial import BYTE_IDS, SerialCase, SerialReply, serial_references
from tests.prove.proof_flags import proof_flags

MODES = ("off", "on", "read-only", "second", "poisoned", "deleted")
CELLS = tuple((mode, crowd, sampled) for mode in MODES for crowd in (False, True) for sampled in (False, True))
_BATCH = 24
_WAIT_S = 120.0
_AT_ONCE = 32
_LEAST_SHARE = 0.002
"""Copied ids that must land, and that must miss, for each compared token."""
_MOST_TIMES = 8
"""A cell that saw too few copies goes on to so many times its tokens."""


@dataclass(slots=True)
class CellReport:
    """What one cell compared and saw."""

    mode: str
    crowd: bool
    sampled: bool
    compared: int = 0
    differences: int = 0
    landed: int = 0
    missed: int = 0
    first: str = ""

    @property
    def name(self) -> str:
        return f"{self.mode} {'crowd' if self.crowd else 'solo'} {'sampled' if self.sampled else 'greedy'}"


class Cell:
    """Runs one cell until enough tokens have been compared."""

    def __init__(self, mode: str, crowd: bool, sampled: bool, seed: int) -> None:
        self.report = CellReport(mode, crowd, sampled)
        self._random = random.Random(f"{seed}/{mode}/{crowd}/{sampled}")

    def run(self, tokens: int) -> CellReport:
        """At least `tokens`; where the first laws left the record little to copy, some more under others."""
        report = self.report
        while not report.differences:
            if report.compared >= tokens and (not too_few(report) or report.compared >= _MOST_TIMES * tokens):
                break
            with tempfile.TemporaryDirectory(prefix="tensorfold-prove-") as folder:
                until = max(tokens, report.compared + 1)
                self._with_a_new_law(min(until, report.compared + 40_000), Path(folder))
        return report

    def _with_a_new_law(self, until: int, folder: Path) -> None:
        rng = self._random
        law = HashLaw(
            vocabulary=rng.choice((64, 96, 256)),
            salt=rng.getrandbits(64),
            tie_share=0.25,
            habit_share=rng.choice((0.0, 0.3, 0.9)),
        )
        ends = frozenset(rng.sample(range(law.vocabulary), 1))
        while self.report.compared < until and not self.report.differences:
            cases = [self._case(law, ends) for _ in range(_BATCH)]
            replies = serial_references(law, cases)
            self._batch(law, list(zip(cases, replies, strict=True)), ends, folder / f"{rng.getrandbits(48):x}")

    def _case(self, law: HashLaw, ends: frozenset[int]) -> SerialCase:
        rng = self._random
        prompt = tuple(rng.randrange(law.vocabulary) for _ in range(rng.randrange(1, 40)))
        stops = tuple(bytes([rng.randrange(law.vocabulary)]) * rng.choice((1, 2)) for _ in range(rng.choice((0, 0, 1))))
        return SerialCase(prompt, rng.randrange(40, 400), self._sampling(), ends, stops)

    def _sampling(self) -> Sampling:
        rng = self._random
        if not self.report.sampled:
            return Sampling()
        return Sampling(rng.getrandbits(64), rng.choice((0.3, 1.0, 1.5)), rng.choice((0, 20)), rng.choice((1.0, 0.9)))

    # -- one batch -----------------------------------------------------------------------------------------------

    def _batch(
        self, law: HashLaw, pairs: Sequence[tuple[SerialCase, SerialReply]], ends: frozenset[int], folder: Path
    ) -> None:
        """Every case twice: the second time the record has seen it, where it may."""
        mode = self.report.mode
        writer = self._record(law, folder, read_only=False) if mode != "off" else None
        services = [writer] if writer is not None else []
        if writer is not None:
            self._fill(writer, law, pairs)
        if mode == "poisoned":
            self._spoil(law, folder)
        service = writer
        if mode in ("read-only", "second", "poisoned"):
            service = self._record(law, folder, read_only=mode != "second")
            services.append(service)
        scheduler = self._scheduler(law, ends, service)
        scheduler.start()
        scheduler.wait_ready()
        try:
            for number in range(2):
                if number and mode == "deleted" and writer is not None:
                    self._fill(writer, law, pairs)
                self._run(scheduler, pairs, service)
        finally:
            stopped = scheduler.stop(60.0)
            for each in reversed(services):
                each.close()
        if not stopped:
            raise RuntimeError("the scheduler did not stop")

    def _record(self, law: HashLaw, folder: Path, *, read_only: bool) -> RecallService:
        service: RecallService = Container(cache=folder).recall(
            folder=folder,
            identity=RecordIdentity(f"{law.salt:064x}", law.vocabulary, "hash"),
            budget_bytes=LEAST_CHUNKS * CHUNK_BYTES,
            read_only=read_only,
            log=lambda line: None,
            offers=OfferSettings(eager=self._random.random() < 0.7),
        )
        service.open()
        service.start()
        service.wait_loaded(_WAIT_S)
        return service

    def _scheduler(self, law: HashLaw, ends: frozenset[int], service: RecallService | None) -> Scheduler:
        rng = self._random
        parallel = rng.choice((4, 16)) if self.report.crowd else 1
        model = HashModel(
            law,
            max_lanes=parallel,
            prefill_slice=16,
            chain_width=rng.choice((16, 16, 64, 5)),
            tree_width=rng.choice((16, 1, 1, 9)),
            head=random_head(rng) if rng.random() < 0.4 else None,
        )
        settings = EngineSettings(parallel=parallel, queue=2 * _BATCH, force_windows=rng.random() < 0.8)
        clock, counters = MachineClock(), Counters()
        sources = (CopySourceFactory(),) if service is None else (CopySourceFactory(), service.factory)

        def load() -> tuple[Engine, StreamFactory]:
            engine = Engine(model, settings, clock, sources=sources, counters=counters)
            return engine, StreamFactory(context=4096, max_tokens=4096, stop_ids=ends, token_bytes=TokenBytes(BYTE_IDS))

        return Scheduler(load, settings, clock, counters=counters, recorder=service)

    def _fill(self, service: RecallService, law: HashLaw, pairs: Sequence[tuple[SerialCase, SerialReply]]) -> None:
        """What the record holds before: right replies of some cases, wrong continuations of others, noise."""
        rng = self._random
        runs: list[list[int]] = []
        for case, reply in pairs:
            text = [*case.prompt, *reply.tokens]
            if self.report.mode == "poisoned" or rng.random() < 0.4:
                runs += self._wrong(law, text, len(case.prompt))
            elif rng.random() < 0.8:
                runs.append(text)
        runs.append([rng.randrange(law.vocabulary) for _ in range(500)])
        for first in range(0, len(runs), _AT_ONCE):
            for run in runs[first : first + _AT_ONCE]:
                service.record(run, 0, service.began())
            service.settle(_WAIT_S)

    def _spoil(self, law: HashLaw, folder: Path) -> None:
        """Files that no server wrote: ids of any size, and one that ends inside an id."""
        rng = np.random.default_rng(self._random.getrandbits(32))
        noise = rng.integers(-2, 2 * law.vocabulary, 3000, dtype=np.int32)
        (folder / "00000500.ids").write_bytes(noise.tobytes())
        (folder / "00000501.ids").write_bytes(noise.tobytes()[:-3])

    def _wrong(self, law: HashLaw, text: list[int], prompt: int) -> Iterator[list[int]]:
        """Right up to a place and wrong behind it, at places all along the reply."""
        at = max(prompt, 17)
        while at < len(text):
            yield text[max(0, at - 40) : at] + [(token + 1) % law.vocabulary for token in text[at : at + 12]] + [0, 1]
            at += self._random.choice((5, 9, 17))

    def _run(
        self,
        scheduler: Scheduler,
        pairs: Sequence[tuple[SerialCase, SerialReply]],
        service: RecallService | None,
    ) -> None:
        deleting = self.report.mode == "deleted" and service is not None
        deleter = threading.Thread(target=self._delete_soon, args=(service,)) if deleting else None
        generations = [scheduler.submit(_request(case)) for case, _ in pairs]
        if deleter is not None:
            deleter.start()
        for generation, (case, reply) in zip(generations, pairs, strict=True):
            ids: list[int] = []
            while isinstance(event := generation.next(_WAIT_S), Landed):
                ids += event.ids
            self._compare(case, reply, ids, event)
        if deleter is not None:
            deleter.join()
        if service is not None:
            service.settle(_WAIT_S)

    def _delete_soon(self, service: RecallService) -> None:
        time.sleep(0.02 + self._random.random() * 0.2)
        service.delete()

    def _compare(self, case: SerialCase, reply: SerialReply, ids: list[int], event: object) -> None:
        report = self.report
        report.compared += len(reply.tokens)
        if tuple(ids) != reply.tokens or not isinstance(event, Ended) or event.reason != reply.finish:
            at = int(np.argmin([a == b for a, b in zip(ids, reply.tokens, strict=False)] + [False]))
            report.differences += 1
            report.first = report.first or f"reply position {at} of prompt {case.prompt}, {case.sampling}: {event}"
            return
        for source in event.stats.sources:
            if RECALL in source.source:
                report.landed += source.kept
                report.missed += source.drafted - source.kept


def _request(case: SerialCase) -> GenerationRequest:
    return GenerationRequest(case.prompt, case.sampling, case.max_tokens, stops=case.stops, stop_ids=case.stop_ids)


def _work(job: tuple[str, bool, bool, int, int]) -> CellReport:
    mode, crowd, sampled, tokens, seed = job
    return Cell(mode, crowd, sampled, seed).run(tokens)


def prove(tokens: int, seed: int, processes: int = 2, say: bool = True) -> list[CellReport]:
    """Every cell, `tokens` in all; reports in order."""
    each = -(-tokens // len(CELLS))
    jobs = [(*cell, each, seed) for cell in CELLS]
    reports = []
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for report in pool.imap(_work, jobs):
            reports.append(report)
            if say:
                print(
                    f"{report.name:26} {report.compared:9,} tokens, {report.differences} differences, "
                    f"{report.landed:,} copied tokens landed, {report.missed:,} missed {report.first}",
                    flush=True,
                )
    return reports


def too_few(report: CellReport) -> list[str]:
    """Which copies a cell saw too few of to prove anything."""
    least, found = _LEAST_SHARE * report.compared, []
    if report.mode != "off" and report.missed < least:
        found.append(f"{report.missed} copied tokens missed, {least:.0f} are needed")
    if report.mode not in ("off", "poisoned") and report.landed < least:
        found.append(f"{report.landed} copied tokens landed, {least:.0f} are needed")
    return found


def failures(reports: Sequence[CellReport], tokens: int) -> list[str]:
    """Why the proof fails; empty when it holds."""
    each = tokens // len(CELLS)
    found = []
    for report in reports:
        if report.differences:
            found.append(f"{report.name}: {report.first}")
        if report.compared < each:
            found.append(f"{report.name}: {report.compared} tokens compared, {each} are needed")
        found += [f"{report.name}: {lack}" for lack in too_few(report)]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    flags = proof_flags(__doc__, 2_000_000, arguments, "tokens to compare in all cells")
    began = time.monotonic()
    print(f"record proof: seed {flags.seed}", flush=True)
    reports = prove(flags.tokens, flags.seed, flags.processes)
    found = failures(reports, flags.tokens)
    for line in found:
        print(f"  - {line}")
    print(
        f"recall: {sum(r.compared for r in reports):,} tokens, {sum(r.differences for r in reports)} differences, "
        f"{len(reports)} cells, least cell {min(r.compared for r in reports):,}, "
        f"{sum(r.landed for r in reports):,} copied tokens landed, {sum(r.missed for r in reports):,} missed, "
        f"seed {flags.seed}, {time.monotonic() - began:.0f} s"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
