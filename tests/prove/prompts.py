"""Cells of the proof of conversations: resumed, restarted, preempted, paused and sliced replies equal the serial ones.

The model notices where a prompt was cut, and the reference is a plain loop with a planner of its own. Conversations
grow, branch and are edited; servers end and begin again; streams yield, run short of memory, leave and come back.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tensorfold.application.admission import MemoryAdmission
from tensorfold.application.generation import Generation
from tensorfold.application.planting import PlantedDrafts, Tally
from tensorfold.application.ports.target_model import TargetModel
from tensorfold.application.replies import Ended, GenerationRequest, Landed
from tensorfold.application.settings import EngineSettings
from tensorfold.application.snapshots import SnapshotShelf
from tensorfold.domain.prompts.chunks import ChunkRule
from tensorfold.domain.prompts.markers import Markers
from tensorfold.domain.sampling import Sampling
from tests.application.memory_house import within
from tests.application.prompt_house import Kept, keeping
from tests.fakes.chunky_model import ChunkyModel
from tests.fakes.hash_law import HashLaw, absorb
from tests.fakes.serial import SerialCase, SerialReply, serial_references
from tests.fakes.stores import FakeSnapshotStore

CELLS = ("resumed", "restarted", "preempted", "paused", "sliced")
OPEN, USER, ASSISTANT = 1, 2, 3
STEP, LEAST = 40, 12
RULE = ChunkRule(STEP, Markers(frozenset({OPEN}), (OPEN, ASSISTANT)), LEAST)
_BATCH = 12
_BEHIND = {"preempted": 6, "paused": 4}
"""Requests of a batch that are in the background."""
_LEAVES = {"sliced": 0.4, "paused": 0.1}
"""The share of clients that leave on the way."""
_OPEN_ENDED = 64
"""Tokens of a reply whose client named no limit."""
_CROWDED = 200
"""Ids of a history at most where memory is short, so that one stream alone always fits."""
_WAIT_S = 120.0


def planned(prompt: Sequence[int]) -> list[int]:
    """Where chunks of a prompt begin, by a loop over its positions that shares nothing with the product."""
    starts, openers = [0], 0
    for at in range(1, len(prompt) - 1):
        openers += prompt[at - 1] == OPEN
        opens = prompt[at] == OPEN
        point = opens and (prompt[at + 1] == ASSISTANT or openers == 1)
        if (point and at - starts[-1] >= LEAST) or at - starts[-1] == STEP:
            starts.append(at)
    return starts if len(prompt) > 1 else []


@dataclass(frozen=True)
class ChunkyLaw(HashLaw):
    """A law whose prompts are absorbed in their chunks, cut in slices, each noticed."""

    slice_rows: int = 0

    def state_of(self, ids: Sequence[int]) -> int:
        """The state behind a prompt, its last id absorbed by a round."""
        state, starts = self.start, planned(ids)
        for start, stop in zip(starts, [*starts[1:], len(ids) - 1], strict=True):
            size = self.slice_rows or stop - start
            for at in range(start, stop, size):
                for token in ids[at : min(at + size, stop)]:
                    state = absorb(state, token)
                state = absorb(state, at)
        return absorb(state, ids[-1])


@dataclass(slots=True)
class CellReport:
    """What one cell compared and saw."""

    cell: str
    compared: int = 0
    differences: int = 0
    prompts: int = 0
    spared: int = 0
    filled: int = 0
    preempted: int = 0
    paused: int = 0
    dropped: int = 0
    left: int = 0
    loaded: int = 0
    first: str = ""

    def differ(self, what: str) -> None:
        self.differences += 1
        self.first = self.first or what


@dataclass(slots=True)
class _Asked:
    case: SerialCase
    expected: SerialReply
    generation: Generation
    leave_after: int = -1
    ids: list[int] = field(default_factory=list)


class Cell:
    """Runs one cell until enough tokens were compared, or one differs."""

    def __init__(self, cell: str, seed: int) -> None:
        self.report = CellReport(cell)
        self._cell = cell
        self._random = random.Random(f"{seed}/{cell}")

    def run(self, tokens: int) -> CellReport:
        while self.report.compared < tokens and not self.report.differences:
            self._world(tokens)
        return self.report

    def _world(self, tokens: int) -> None:
        """One law: servers over it, conversations in them."""
        rng = self._random
        law = ChunkyLaw(
            vocabulary=64,
            salt=rng.getrandbits(64),
            tie_share=0.25,
            habit_share=rng.choice((0.0, 0.5)),
            slice_rows=rng.choice((3, 4, 8)) if self._cell == "sliced" else 0,
        )
        histories = [self._system() for _ in range(3)]
        disk = FakeSnapshotStore()
        for _ in range(4):
            if self.report.differences or (self.report.compared >= tokens and self.report.spared):
                return
            self._server(law, histories, disk if self._cell == "restarted" else None)

    def _server(self, law: ChunkyLaw, histories: list[list[int]], disk: FakeSnapshotStore | None) -> None:
        rng, report = self._random, self.report
        model = ChunkyModel(law, prefill_slice=law.slice_rows, chain_width=rng.choice((16, 6)), max_lanes=8)
        parallel = rng.choice({"preempted": (1, 2), "paused": (3, 6)}.get(self._cell, (1, 4)))
        settings = EngineSettings(
            parallel=parallel,
            queue=4 * _BATCH,
            force_windows=rng.random() < 0.5,
            decode_share=rng.choice((0.0, 0.25, 2.0)),
        )
        shelf = None if disk is None else SnapshotShelf(disk)
        budget, slots = rng.choice((40, 1 << 20, 1 << 20)), rng.choice((2, 32))
        served: TargetModel = model
        admission: MemoryAdmission | None = None
        if self._cell == "paused":
            served, admission = within(model, rng.randrange(360, 700), ahead=rng.choice((16, 24, 40)))
        with keeping(
            served, budget, rule=RULE, shelf=shelf, settings=settings, slots=slots, admission=admission
        ) as server:
            for _ in range(3):
                if not report.differences:
                    self._batch(law, histories, server)
            counters = server.scheduler.counters
            report.spared += counters.cached_tokens
            report.filled += counters.filled_tokens
            report.preempted += counters.preempted
            report.paused += counters.paused
            report.dropped += counters.dropped
        report.loaded += model.restored if disk is not None else 0
        if model.misuses:
            report.differ(f"the engine broke the model's port: {model.misuses[0]}")
        if model.exported and budget == 0:
            report.differ("a state was copied though none is kept")

    def _batch(self, law: ChunkyLaw, histories: list[list[int]], server: Kept) -> None:
        rng, report = self._random, self.report
        prompts = [self._prompt(rng.choice(histories)) for _ in range(_BATCH)]
        lengths = [_OPEN_ENDED if self._cell == "paused" else rng.randrange(1, 160) for _ in prompts]
        cases = [SerialCase(tuple(p), n, self._sampling()) for p, n in zip(prompts, lengths, strict=True)]
        expected = serial_references(law, cases)
        asked = []
        for number, (case, reply) in enumerate(zip(cases, expected, strict=True)):
            behind = number < _BEHIND.get(self._cell, 0)
            if self._cell in _BEHIND and not behind:
                # So that some of those in the background hold lanes when one in the foreground comes.
                time.sleep(rng.random() * 0.01)
            asked.append(self._ask(server, case, reply, background=behind))
        for one in asked:
            if not self._finish(one):
                report.left += 1
                self._finish(self._ask(server, one.case, one.expected, may_leave=False))
        report.prompts += sum(len(p) - 1 for p in prompts)
        for case, reply in zip(cases, expected, strict=True):
            longest = _CROWDED if self._cell == "paused" else 600
            if rng.random() < 0.4 and len(case.prompt) < longest:
                histories[rng.randrange(len(histories))] = [*case.prompt, *reply.tokens[:40]]

    def _system(self) -> list[int]:
        rng = self._random
        return [OPEN, 9, *(rng.randrange(2, 64) for _ in range(rng.randrange(5, 70)))]

    def _prompt(self, history: Sequence[int]) -> list[int]:
        """A next turn; at times of an edited or shortened history, or with markers written out by its user."""
        rng = self._random
        known = list(history)
        if rng.random() < 0.3:
            known[rng.randrange(len(known))] = rng.randrange(64)
        if rng.random() < 0.2:
            known = known[: rng.randrange(1, len(known) + 1)]
        said = [rng.choice((OPEN, ASSISTANT, 7)) if rng.random() < 0.1 else rng.randrange(2, 64) for _ in range(9)]
        return [*known, OPEN, USER, *said[: rng.randrange(10)], OPEN, ASSISTANT]

    def _sampling(self) -> Sampling:
        rng = self._random
        return Sampling() if rng.random() < 0.4 else Sampling(rng.getrandbits(64), rng.choice((0.7, 1.0, 1.5)), 0, 0.95)

    def _ask(
        self, server: Kept, case: SerialCase, expected: SerialReply, *, may_leave: bool = True, background: bool = False
    ) -> _Asked:
        rng = self._random
        request = GenerationRequest(
            case.prompt,
            case.sampling,
            None if self._cell == "paused" else case.max_tokens,
            stop_ids=frozenset(),
            draft=rng.random() < 0.9,
            background=background,
        )
        lengths = iter(lambda: rng.choice((0, 1, 3, 8, 15)), None)
        oracle = PlantedDrafts(len(case.prompt), expected.tokens, lengths, "chain", 64, Tally(), rest=2)
        leaves = may_leave and rng.random() < _LEAVES.get(self._cell, 0.0)
        generation = server.scheduler.submit(request, oracle)
        return _Asked(case, expected, generation, rng.randrange(0, 20) if leaves else -1)

    def _finish(self, one: _Asked) -> bool:
        """Read a reply and compare it; False when it was left on the way."""
        while True:
            if 0 <= one.leave_after <= len(one.ids):
                one.generation.cancel()
            event = one.generation.next(_WAIT_S)
            if not isinstance(event, Landed):
                break
            one.ids += event.ids
        whole = isinstance(event, Ended)
        wanted = one.expected.tokens if whole or one.leave_after < 0 else one.expected.tokens[: len(one.ids)]
        self.report.compared += len(wanted)
        if tuple(one.ids) != wanted:
            pairs = zip(one.ids, wanted, strict=False)
            at = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one.ids), len(wanted)))
            self.report.differ(f"token {at} of a reply to {len(one.case.prompt)} ids, ended as {event}")
        return whole or one.leave_after < 0


def failures(reports: Sequence[CellReport]) -> list[str]:
    """What cells did not see that they are there for; empty when they saw it."""
    found = []
    for r in reports:
        if not r.spared:
            found.append(f"{r.cell}: no prompt was resumed")
        if r.cell == "preempted" and not r.preempted:
            found.append("preempted: nobody yielded")
        if r.cell == "paused" and not (r.paused and r.dropped and r.preempted):
            found.append(
                f"paused: {r.paused} pauses, {r.dropped} lanes given up, {r.preempted} yielded: each is needed"
            )
        if r.cell == "restarted" and not r.loaded:
            found.append("restarted: nothing was resumed behind a restart")
        if r.cell == "sliced" and not r.left:
            found.append("sliced: nobody left")
    return found
