"""Every family on tiny weights, through the real engine with its own drafts: no token differs from the serial reply.

Each family runs on real arithmetic with the draft heads that it has, whose answers the planting oracle makes right and
wrong by a stated profile: chains and trees kept to every length, greedy and sampled, alone and in company, requests
that leave and come back, and the record on, read-only, poisoned and emptied. Prompts and replies pass every edge that
the tiny shapes have. A mode that saw too little has proved nothing, and fails.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tensorfold.adapters.mlx.rows_cpu import CpuRows
from tensorfold.application.counters import Counters
from tensorfold.application.engine import Engine
from tensorfold.application.generation import StreamFactory
from tensorfold.application.proof import Case, Report
from tensorfold.application.proving import Prover
from tensorfold.application.proving_record import RecordUnderProof
from tensorfold.application.recall import RecallService
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import DraftSettings, EngineSettings
from tensorfold.domain.conversation.token_bytes import TokenBytes
from tensorfold.domain.drafting.copies import CopySourceFactory
from tensorfold.domain.recall.identity import RecordIdentity
from tensorfold.domain.recall.layout import CHUNK_BYTES, LEAST_CHUNKS
from tensorfold.domain.recall.policy import OfferSettings
from tensorfold.domain.sampling import Sampling, keyed_hash
from tensorfold.entrypoints.container import Container
from tests.adapters.mlx.tiny_families import TinyFamily, tiny_family, with_drafter
from tests.fakes.clock import MachineClock
from tests.fakes.head_profiles import Profile
from tests.fakes.planted_heads import PlantedHeads
from tests.synthetic.plan_checkpoints import LAYOUTS
from tests.synthetic.tiny_configs import FAMILIES

SUBJECTS = (*((family, "own") for family in FAMILIES), ("qwen3_5", "drafter"), ("qwen3_5", "none"))
PROFILE = Profile(((0.75, 0.1), (0.7, 0.1), (0.6, 0.1)))
"""How often a planted head's best and second candidates are right, by depth."""
_CONTEXT, _STREAMS = 512, 8


@dataclass(slots=True)
class Subject:
    """One family with one kind of draft head, and what was proved of it."""

    family: str
    head: str
    compared: int = 0
    differences: int = 0
    headed: int = 0
    reasons: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.family}, {self.head}"


class SeededPrompts:
    """A tokenizer of a proof: any text is ids spread over the vocabulary, others with every seed."""

    def __init__(self, vocabulary: int, seed: int) -> None:
        self._vocabulary, self._seed = vocabulary, seed

    def encode(self, text: str) -> list[int]:
        """As many ids as the text has characters, at most 40, some of them said again."""
        count = min(len(text), 40)
        drawn = [int(keyed_hash(self._seed, at, np.array([len(text)]))[0]) for at in range(count)]
        ids = [3 + value % (self._vocabulary - 3) for value in drawn]
        return [*ids[: count // 2], *ids[: count - count // 2]]


def proved(family: str, head: str, seed: int, tokens: int) -> Subject:
    """Prove until enough tokens were compared or something went wrong; the same weights, other prompts each time."""
    subject = Subject(family, head)
    with tempfile.TemporaryDirectory(prefix="tensorfold-prove-") as folder:
        one = tiny_family(Path(folder), family, 1 + seed % 1_000, quantization=LAYOUTS[family] if seed % 2 else None)
        if head == "drafter":
            one, _ = with_drafter(one, Path(folder))
        drafts = DraftSettings(drafter_bits=0, mtp_drafts=0 if head == "none" else None)
        model = one.loading(drafts).checked(CpuRows(), Path(folder) / "checks", family, _CONTEXT, _STREAMS)
        while subject.compared < tokens and not subject.reasons:
            number = seed + subject.compared
            report = _report(one, model, Path(folder) / f"record-{number}", number)
            subject.compared += report.compared
            subject.differences += report.differences
            subject.reasons = report.reasons
            subject.headed += sum(pair[1] for row in report.rows for name, pair in row.drafts.items() if "head" in name)
    return subject


def _report(one: TinyFamily, model: Any, folder: Path, seed: int) -> Report:
    known: dict[tuple[tuple[int, ...], Sampling], Sequence[int]] = {}

    def learned(case: Case) -> None:
        known[case.prompt, case.sampling] = case.reply

    planted = PlantedHeads(model, lambda prompt, sampling: known.get((prompt, sampling)), PROFILE)
    vocabulary = one.plan.head.vocabulary
    record = RecordUnderProof(lambda name, read_only: _record(folder / name, vocabulary, read_only))
    scheduler = _scheduler(planted if model.limits.head is not None else model, record, vocabulary)
    scheduler.start()
    scheduler.wait_ready()
    try:
        prompts: Any = SeededPrompts(vocabulary, seed)
        return Prover(scheduler, prompts, seed=seed, record=record, on_reference=learned).run()
    finally:
        scheduler.stop(60.0)
        record.rest()


def _scheduler(model: Any, record: RecordUnderProof, vocabulary: int) -> Scheduler:
    settings = EngineSettings(parallel=_STREAMS, force_windows=True, prefill_chunk=16)
    clock, counters = MachineClock(), Counters()

    def load() -> tuple[Engine, StreamFactory]:
        engine = Engine(model, settings, clock, sources=(CopySourceFactory(), record), counters=counters)
        tokens = TokenBytes(tuple(bytes([token % 256]) for token in range(vocabulary)))
        return engine, StreamFactory(context=_CONTEXT, max_tokens=_CONTEXT, stop_ids=frozenset(), token_bytes=tokens)

    return Scheduler(load, settings, clock, counters=counters, recorder=record)


def _record(folder: Path, vocabulary: int, read_only: bool) -> RecallService:
    folder.mkdir(parents=True, exist_ok=True)
    service: RecallService = Container(cache=folder).recall(
        folder=folder,
        identity=RecordIdentity("5e" * 32, vocabulary, "tiny"),
        budget_bytes=LEAST_CHUNKS * CHUNK_BYTES,
        read_only=read_only,
        log=lambda line: None,
        offers=OfferSettings(eager=True),
    )
    service.open()
    return service


def _run(task: tuple[str, str, int, int]) -> Subject:
    return proved(*task)


def main() -> int:
    """Every subject, two at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=105_000, help="over all families; at least this many")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--family", choices=FAMILIES)
    flags = parser.parse_args()
    began = time.monotonic()
    chosen = [subject for subject in SUBJECTS if flags.family in (None, subject[0])]
    tasks = [(family, head, flags.seed, -(-flags.tokens // len(chosen))) for family, head in chosen]
    subjects = []
    with multiprocessing.get_context("spawn").Pool(2, maxtasksperchild=1) as pool:
        for subject in pool.imap_unordered(_run, tasks):
            print(
                f"{subject.name:20} {subject.compared:7,} tokens, {subject.differences} differences, "
                f"{subject.headed:6,} drafts of heads kept",
                flush=True,
            )
            for reason in subject.reasons:
                print(f"   {reason}")
            subjects.append(subject)
    total, differences = sum(s.compared for s in subjects), sum(s.differences for s in subjects)
    unheaded = [s.name for s in subjects if s.head != "none" and s.family != "gemma4" and not s.headed]
    failed = [s.name for s in subjects if s.reasons] + unheaded + ([] if total >= flags.tokens else ["too few tokens"])
    print(
        f"families {'hold' if not failed else 'FAILED: ' + '; '.join(failed)}: {total:,} tokens, {differences} "
        f"differences, {len(subjects)} subjects, least {min(s.compared for s in subjects):,}, seed {flags.seed}, "
        f"{time.monotonic() - began:.0f} s"
    )
    return 1 if failed or differences else 0


if __name__ == "__main__":
    sys.exit(main())
