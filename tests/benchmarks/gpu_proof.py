"""The proof on the card: no token of any reply differs, whatever is drafted, shared, resumed or copied.

The product's own prover runs over each family: chains and trees kept to every length, greedy and sampled, in company,
requests that leave and come back, prompts resumed, and the record on, read-only, poisoned and emptied. Beside it eight
streams at once, rounds without graphs against captured ones, and planted faults, each of which must be noticed.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensorfold.adapters.system.clock import SystemClock
from tensorfold.application.counters import Counters
from tensorfold.application.engine import Engine
from tensorfold.application.generation import StreamFactory
from tensorfold.application.planting import PlantedDrafts, Shape
from tensorfold.application.ports.target_model import TargetModel
from tensorfold.application.proof import Case, Report, Row
from tensorfold.application.proof_runner import ProofRunner
from tensorfold.application.proving import Prover
from tensorfold.application.proving_record import RecordUnderProof
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.conversation.token_bytes import TokenBytes
from tensorfold.domain.sampling import Sampling
from tests.benchmarks.gpu_engine import COPIES, Lent, opened_record, prompt_ids, tell
from tests.fakes.head_profiles import Profile
from tests.fakes.planted_heads import PlantedHeads

Say = Callable[[str], None]
PROFILE = Profile(((0.75, 0.1), (0.7, 0.1), (0.6, 0.1)))
"""How often a planted head's best and second candidates are right, by depth."""
CROWDS = (4, 8)
LEAST_REFUSED = 0.2
TURNS = 8
"""Times that a crowd is asked for again, its windows cut and its streams mixed in another way each time."""
_CHUNK = 64


@dataclass(slots=True)
class Proved:
    """What was compared of one model, and what was seen meanwhile."""

    compared: int = 0
    differences: int = 0
    kept: int = 0
    refused: int = 0
    copied: int = 0
    resumed: int = 0
    reasons: list[str] = field(default_factory=list)

    def take(self, rows: Sequence[Row], reasons: Sequence[str] = ()) -> None:
        """Add what some modes saw."""
        for row in rows:
            self.compared += row.compared
            self.differences += row.differences
            self.kept, self.refused = self.kept + row.kept, self.refused + row.refused
            self.copied += 0 if row.copies is None else row.copies.landed
            self.resumed += row.resumed or 0
        self.reasons += reasons

    @property
    def refused_share(self) -> float:
        """Part of the drafts that were refused."""
        return self.refused / max(1, self.kept + self.refused)

    def words(self, name: str) -> str:
        """One line."""
        return (
            f"{name}: {self.compared:,} tokens, {self.differences} differences, {self.kept:,} drafts kept, "
            f"{self.refused_share:.0%} refused, {self.copied:,} copied tokens landed, {self.resumed:,} resumed"
        )

    def lacks(self) -> list[str]:
        """Why this proves nothing."""
        lacks = list(self.reasons)
        if self.refused_share < LEAST_REFUSED:
            lacks.append(f"only {self.refused_share:.0%} of drafts were refused")
        if not self.copied:
            lacks.append("no copied token landed")
        return lacks


def prove(
    model: TargetModel,
    folder: Path,
    seed: int,
    tokens: int,
    say: Say = lambda line: None,
    *,
    turns: int = TURNS,
    until: float = math.inf,
    into: Proved | None = None,
) -> Proved:
    """Prove until so many tokens were compared or something went wrong; other prompts each time.

    Nothing is begun behind `until` of the monotonic clock. What is found is added to `into`, so that it outlasts a
    fault.
    """
    proved = Proved() if into is None else into
    for number in itertools.count():
        report = prove_once(model, folder / f"record-{number}", seed + number, CROWDS[number % len(CROWDS)])
        proved.take(report.rows, report.reasons)
        if not proved.reasons:
            known = cases(model, seed + number, CROWDS[-1])
            crowds = [crowd(model, known, streams, turns) for streams in CROWDS]
            proved.take(crowds, [reason for row in crowds for reason in wrong(row)])
        say(f"  {proved.compared:,} tokens, {proved.differences} differences")
        if proved.compared >= tokens or proved.reasons or proved.differences or time.monotonic() >= until:
            return proved
    raise AssertionError


def prove_once(model: TargetModel, folder: Path, seed: int, streams: int) -> Report:
    """Every mode of the product's prover, once."""
    known: dict[tuple[tuple[int, ...], Sampling], Sequence[int]] = {}

    def learned(case: Case) -> None:
        known[case.prompt, case.sampling] = case.reply

    vocabulary = model.limits.vocabulary
    record = RecordUnderProof(lambda name, read_only: opened_record(folder / name, vocabulary, read_only=read_only))
    planted = PlantedHeads(model, lambda prompt, sampling: known.get((prompt, sampling)), PROFILE)
    headed = planted if model.limits.head is not None else model
    with scheduled(headed, streams, record) as scheduler:
        try:
            prompts: Any = SeededPrompts(vocabulary, seed)
            return Prover(scheduler, prompts, seed=seed, record=record, on_reference=learned).run()
        finally:
            record.rest()


class SeededPrompts:
    """A tokenizer of a proof: any text is ids spread over the vocabulary, others with every seed."""

    def __init__(self, vocabulary: int, seed: int) -> None:
        self._vocabulary, self._seed = vocabulary, seed

    def encode(self, text: str) -> list[int]:
        """As many ids as the text has characters, at most 40, some of them said again."""
        count = min(len(text), 40)
        ids = prompt_ids(self._vocabulary, count, 10_000 + 97 * self._seed + len(text))
        return [*ids[: count // 2], *ids[: count - count // 2]]


@contextmanager
def scheduled(model: TargetModel, streams: int, record: RecordUnderProof | None = None) -> Iterator[Scheduler]:
    """The product's scheduler, windows forced whatever they cost."""
    settings = EngineSettings(parallel=streams, force_windows=True, prefill_chunk=_CHUNK)
    clock, counters, lent = SystemClock(), Counters(), Lent(model)
    sources = COPIES if record is None else (*COPIES, record)

    def load() -> tuple[Engine, StreamFactory]:
        engine = Engine(lent, settings, clock, sources=sources, counters=counters, log=tell)
        table = TokenBytes(tuple(bytes([token % 256]) for token in range(lent.limits.vocabulary)))
        context = lent.limits.context
        return engine, StreamFactory(context=context, max_tokens=context, stop_ids=frozenset(), token_bytes=table)

    scheduler = Scheduler(load, settings, clock, counters=counters, recorder=record, log=tell)
    scheduler.start()
    scheduler.wait_ready()
    try:
        yield scheduler
    finally:
        scheduler.stop(60.0)


def cases(model: TargetModel, seed: int, count: int) -> list[Case]:
    """Serial replies to so many prompts of different lengths, every other one sampled."""
    vocabulary = model.limits.vocabulary
    made = []
    with scheduled(model, 1) as scheduler:
        runner = ProofRunner(scheduler)
        for number in range(count):
            prompt = prompt_ids(vocabulary, 5 + 37 * number % 150, 50_000 + 131 * seed + number)
            sampling = Sampling(seed + number, 1.1, 40 * (number % 3), 0.95) if number % 2 else Sampling()
            made.append(runner.serial(Case(prompt, sampling)))
    return made


def crowd(model: TargetModel, known: Sequence[Case], streams: int, turns: int = 1) -> Row:
    """So many streams at once, chains beside trees, right and wrong drafts planted in all of them.

    Each turn asks for all of `known`, whose replies are serial ones, in company that changes: who streams together,
    which of them draft trees, and how many drafts of their windows are right.
    """
    row = Row(f"{streams} streams", counts_drafts=False)
    with scheduled(model, streams) as scheduler:
        runner = ProofRunner(scheduler)
        for turn in range(turns):
            order = [*known[turn % len(known) :], *known[: turn % len(known)]]
            for start in range(0, len(order), streams):
                group = order[start : start + streams]
                reads = [runner.start(case, _planted(model, case, row, turn, at)) for at, case in enumerate(group)]
                for index, (case, read) in enumerate(zip(group, reads, strict=True)):
                    runner.compare(row, index, case, read.finish())
            if row.differences:
                break
    return row


def wrong(row: Row) -> list[str]:
    """What went wrong in a crowd, in words."""
    told = [row.note] if row.note else []
    told += [row.first.sentence()] if row.first is not None else []
    return [f"{row.mode}: {each}" for each in told]


def _planted(model: TargetModel, case: Case, row: Row, turn: int, at: int) -> PlantedDrafts | None:
    limits = model.limits
    tree = (at + turn) % 2 == 1 and limits.tree_width >= 2
    width = limits.tree_width if tree else limits.chain_width
    if width < 2:
        return None
    falling = range(min(width, 16), -1, -1)
    lengths = itertools.islice(itertools.cycle(falling), 3 * turn + at, None)
    shape: Shape = "tree" if tree else "chain"
    return PlantedDrafts(len(case.prompt), case.reply, lengths, shape, limits.vocabulary, row.tally, 5, width - 1)


def caught(model: TargetModel, known: Sequence[Case]) -> bool:
    """Whether a crowd over a model with a planted fault shows a difference from a sound one's serial replies."""
    return crowd(model, known, CROWDS[-1]).differences > 0


class FaultyDecoder:
    """A decoder with one planted fault, as a kernel that breaks the promise would have it: small, and never in a row
    that is launched alone.

    "width": rows of launches of more than four rows are off. "neighbour": a row is off by a little of the row before
    it. "stale": the last row of a launch is that of the launch before.
    """

    def __init__(self, decoder: Any, fault: str) -> None:
        self._decoder, self._fault = decoder, fault
        self._before: dict[int, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)

    def decode(self, at: Any, taps: Any = (), *reached: Any) -> tuple[Any, Any, Any]:
        """The decoder's, spoilt."""
        logits, rows, tapped = self._decoder.decode(at, taps, *reached)
        count = logits.shape[0]
        if self._fault == "width" and count > 4:
            logits = logits * (1 + 2.0**-12)
        elif self._fault == "neighbour" and count > 1:
            logits = logits + logits.roll(1, 0) * 2.0**-12
        elif self._fault == "stale" and count > 1:
            before = self._before.setdefault(count, logits.clone())
            now = logits[-1].clone()
            logits = logits.clone()
            logits[-1] = before[-1]
            before[-1].copy_(now)
        return logits, rows, tapped


FAULTS = ("width", "neighbour", "stale")


def totals(all_proved: Iterable[Proved]) -> Proved:
    """Everything together."""
    total = Proved()
    for one in all_proved:
        total = Proved(
            compared=total.compared + one.compared,
            differences=total.differences + one.differences,
            kept=total.kept + one.kept,
            refused=total.refused + one.refused,
            copied=total.copied + one.copied,
            resumed=total.resumed + one.resumed,
            reasons=[*total.reasons, *one.reasons],
        )
    return total
