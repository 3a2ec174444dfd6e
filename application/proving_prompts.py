"""The modes of a proof in which prompts resume from kept states: from memory, and from disk behind a restart.

Prompts are two turns of the serial replies, cut in short chunks so that short prompts have several. The reference reads
each from its start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorfold.application.prompt_cache import PromptCache
from tensorfold.application.proof import Case, Row
from tensorfold.application.proof_runner import ProofRunner
from tensorfold.application.snapshots import SnapshotShelf
from tensorfold.domain.prompts.chunks import ChunkRule

RULE = ChunkRule(32, least=16)
BUDGET = 4 << 30
_SAID = 40
"""Ids of a reply that the next turn's prompt holds."""

_ROOM = 256
MakeShelf = Callable[[ChunkRule], SnapshotShelf]
"""Opens what is on disk of prompts that are cut so."""


class PromptRows:
    """Runs the modes. The engine must be idle before and after; it plans and keeps prompts as before then."""

    def __init__(self, runner: ProofRunner, tell: Callable[[Row], None], shelf: MakeShelf | None = None) -> None:
        self._runner = runner
        self._engine = runner.scheduler.engine
        self._tell = tell
        self._shelf = shelf
        self._before = self._engine.prompts

    def run(self, cases: Sequence[Case]) -> list[Row]:
        """One row a mode; none where the window has no room for two turns."""
        if self._runner.limits.context < _ROOM:
            return []
        before = self._before = self._engine.prompts
        try:
            self._keep(0)
            turns = [self._runner.serial(self._next_turn(case)) for case in cases]
            rows = [self._resumed(cases, turns)]
            return [*rows, self._restarted(cases, turns)] if self._shelf is not None else rows
        finally:
            before.succeed(self._engine.prompts)
            self._engine.prompts = before

    def _resumed(self, cases: Sequence[Case], turns: Sequence[Case]) -> Row:
        self._keep(BUDGET)
        row = Row("prompts resumed", counts_drafts=False, resumed=0)
        self._ask(Row("first turns"), [_beginning(turn) for turn in turns])
        self._ask(row, turns)
        self._ask(row, turns)
        self._tell(row)
        return row

    def _restarted(self, cases: Sequence[Case], turns: Sequence[Case]) -> Row:
        assert self._shelf is not None
        row = Row("prompts from disk", counts_drafts=False, resumed=0)
        for turn in turns:
            shelf = self._shelf(RULE)
            cache = self._keep(BUDGET, shelf)
            self._ask(Row("first turns"), [_beginning(turn)])
            self._keep(0)
            cache.close()
            shelf.close()
            shelf = self._shelf(RULE)
            self._keep(BUDGET, shelf)
            self._ask(row, [turn])
            shelf.close()
        self._tell(row)
        return row

    def _ask(self, row: Row, turns: Sequence[Case]) -> None:
        """Each alone; those without a serial reply are only read."""
        for index, turn in enumerate(turns):
            read = self._runner.start(turn).finish()
            if turn.reply:
                self._runner.compare(row, index, turn, read)

    def _keep(self, budget: int, shelf: SnapshotShelf | None = None) -> PromptCache:
        made, old = PromptCache(self._engine.model, RULE, budget, shelf=shelf), self._engine.prompts
        if old is not self._before:
            made.succeed(old)
        self._engine.prompts = made
        return made

    def _next_turn(self, case: Case) -> Case:
        return Case((*case.prompt, *case.reply[:_SAID], *case.prompt), case.sampling)


def _beginning(turn: Case) -> Case:
    """A prompt whose plan keeps a state that the turn's passes through."""
    return Case(turn.prompt[: max(2, len(turn.prompt) - 8)], turn.sampling)
