"""The drafts that will most likely be asked for next, queued behind a launch's draws before the host has read them.

For a stream that drafts round after round the device finds which rows stand, and the head goes on from there. What was
queued counts only where the host keeps exactly those rows and asks for drafts behind that token; otherwise the head is
given the rows that were kept, and asked as ever: what it wrote ahead lies behind all that its lane holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensorfold.adapters.cuda.acceptance import WindowPaths
from tensorfold.adapters.cuda.heads.blocks import Reading
from tensorfold.adapters.cuda.heads.head import Behind, Found, QueuedDrafts
from tensorfold.adapters.cuda.tickets import Launched, LaunchedWindow
from tensorfold.application.ports.target_model import Chain, Lane, Lattice, Path, ProposeSpec

DRAFTED_ROUNDS = 2
"""Rounds behind drafts in a row after which a stream is expected to ask again."""
MOST_FAULTS = 3
"""Launches behind which drafts could not be queued; from then on none are, since trying takes time."""
_NO_LIMIT = 2**31 - 1


@dataclass(slots=True)
class _Queued:
    """Drafts of one lane; `pending` is the token behind the kept rows once these are what was found."""

    launched: Launched
    line: int
    paths: Reading
    drafts: QueuedDrafts
    pending: int | None = None
    used: bool = False


class DraftsAhead:
    """Queues drafts for the lanes of a model; `paths` finds which rows of a launch stand.

    `queued`, `used` and `missed` count lanes: whose drafts were queued, were what was asked for, and were not. `faults`
    counts launches behind which nothing could be queued.
    """

    def __init__(self, head: Any, paths: WindowPaths) -> None:
        self._head, self._paths = head, paths
        self._asked: dict[Lane, ProposeSpec] = {}
        self._rounds: dict[Lane, int] = {}
        self._queued: dict[Lane, _Queued] = {}
        self.queued = self.used = self.missed = self.faults = 0

    def asked(self, spec: ProposeSpec) -> None:
        """A lane's head was asked."""
        self._asked[spec.lane] = spec

    def launched(self, windows: Sequence[LaunchedWindow]) -> dict[Lane, ProposeSpec]:
        """Take in a round; its lanes whose head is expected to be asked again, with what it was asked before."""
        expected = {}
        for window in windows:
            lane = window.lane
            self.forget(lane)
            spec = self._asked.pop(lane, None)
            self._rounds[lane] = 0 if spec is None else self._rounds.get(lane, 0) + 1
            if spec is not None and self._rounds[lane] >= DRAFTED_ROUNDS and window.asked.masks is None:
                expected[lane] = spec
        return expected

    def queue(self, launched: Launched, expected: Mapping[Lane, ProposeSpec], heads: Mapping[Lane, Any]) -> bool:
        """Queue drafts behind the windows of some lanes of a launch; whether any were. Never raises."""
        lines = {w.lane: line for line, w in enumerate(launched.windows) if w.lane in expected and w.lane in heads}
        if not lines or self.faults >= MOST_FAULTS:
            return False
        try:
            return self._queue(launched, lines, expected, heads)
        except Exception:
            # What only hides time may not end a round; a fault of the device shows when its draws are collected.
            self.faults += 1
            return False

    def _queue(
        self,
        launched: Launched,
        lines: Mapping[Lane, int],
        expected: Mapping[Lane, ProposeSpec],
        heads: Mapping[Lane, Any],
    ) -> bool:
        behind = []
        for lane, line in lines.items():
            window = launched.windows[line]
            behind.append(Behind(heads[lane], line, window.start, window.rows, expected[lane]))
        self._paths.send([(window.asked.window, _NO_LIMIT, ()) for window in launched.windows])
        kept = self._paths.follow(launched.drawn)
        paths = Reading(kept)
        made = self._head.queue(behind, Found(kept, self._paths.tokens, launched.taps))
        for (lane, line), drafts in zip(lines.items(), made, strict=True):
            if drafts is not None:
                self._queued[lane] = _Queued(launched, line, paths, drafts)
                self.queued += 1
        return any(drafts is not None for drafts in made)

    def takes(self, launched: Launched, window: LaunchedWindow, path: Path) -> bool:
        """Whether a lane's head has the rows that are kept; it has taken them in then."""
        queued = self._queued.get(window.lane)
        if queued is None or queued.launched is not launched:
            return False
        found: list[int] = queued.paths.get()[queued.line].tolist()
        pending = launched.draws.tokens[queued.line][path[-1]] if path else None
        if found[: 2 + len(path)] != [len(path), pending, *path]:
            self._miss(window.lane)
            return False
        tokens = window.asked.window.tokens
        queued.drafts.take(tuple(tokens[row] for row in path))
        queued.pending = pending
        return True

    def drafts(self, spec: ProposeSpec) -> Chain | Lattice | None:
        """The answer that was queued for a lane; None where there is none to what is asked."""
        queued = self._queued.get(spec.lane)
        if queued is None:
            return None
        made = queued.drafts.drafts(spec) if queued.pending == spec.pending else None
        if made is None:
            self._miss(spec.lane)
        elif not queued.used:
            queued.used = True
            self.used += 1
        return made

    def _miss(self, lane: Lane) -> None:
        used = self._queued.pop(lane).used
        self.missed += not used

    def forget(self, lane: Lane) -> None:
        """What was queued for a lane is not asked for any more."""
        self._queued.pop(lane, None)

    def shutdown(self) -> None:
        """Hold nothing of the model; no call follows."""
        self._head = self._paths = None  # type: ignore[assignment]
        for known in (self._asked, self._rounds, self._queued):
            known.clear()

    def close(self, lane: Lane) -> None:
        """A lane is gone."""
        for known in (self._asked, self._rounds, self._queued):
            known.pop(lane, None)
