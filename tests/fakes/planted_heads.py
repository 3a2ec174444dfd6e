"""A model whose draft head is right as often as a stated profile says, for benchmarks of weights that cannot be had.

The head runs at its full cost and every answer it gives is then rewritten: by the serial reply's own ids where the
profile says right, by others where it says wrong. Verification is untouched. A figure made with it is a figure for the
stated profile and says nothing of any head's own acceptance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tensorfold.application.ports.target_model import (
    Chain,
    Lane,
    LaneWindow,
    Lattice,
    Path,
    ProposeSpec,
    RoundBatch,
    Span,
    TargetModel,
    Ticket,
)
from tensorfold.domain.sampling import Sampling, derive_seed
from tests.fakes.head_profiles import Profile, scores_for
from tests.fakes.wrapped_model import WrappedModel

_DEPTHS = 16
"""Depths whose ranks are worked out at once."""
Replies = Callable[[tuple[int, ...], Sampling], Sequence[int] | None]
"""The serial reply to a prompt under its settings, where it is known."""


@dataclass(slots=True)
class _Lane:
    """What a lane was given: its whole prompt with the key of it, and how many tokens it has absorbed.

    `ranks` are those of a position at every depth: they are asked for as often as windows reach it. `reply` is the
    serial one under the settings that were asked for last.
    """

    prompt: tuple[int, ...]
    key: int
    absorbed: int
    ranks: dict[int, tuple[int | None, ...]] = field(default_factory=dict)
    reply: tuple[Sampling, Sequence[int] | None] | None = None


class PlantedHeads(WrappedModel):
    """`inner` with its head's answers rewritten by `profile`; lanes whose reply is not known answer as they are.

    What a restored lane holds is not known.
    """

    def __init__(self, inner: TargetModel, replies: Replies, profile: Profile) -> None:
        super().__init__(inner)
        self._replies = replies
        self._profile = profile
        self._lanes: dict[Lane, _Lane] = {}
        self._launches: dict[int, tuple[Lane, ...]] = {}
        self._greedy: dict[tuple[int, int], NDArray[np.float64]] = {}
        self._pairless: dict[tuple[tuple[int, ...], ...], tuple[NDArray[np.float64], ...]] = {}

    # -- proposing -----------------------------------------------------------------------------------------------

    def propose(self, specs: Sequence[ProposeSpec]) -> Sequence[Chain | Lattice | None]:
        """The head's answers for its full depth, rewritten: no lack of confidence of its own spares it a draft."""
        offers = self.inner.propose([replace(spec, min_confidence=0.0) for spec in specs])
        return [self._planted(spec, offer) for spec, offer in zip(specs, offers, strict=True)]

    def _planted(self, spec: ProposeSpec, offer: Chain | Lattice | None) -> Chain | Lattice | None:
        lane = self._lanes.get(spec.lane)
        if offer is None or lane is None:
            return offer
        if lane.reply is None or lane.reply[0] != spec.sampling:
            lane.reply = spec.sampling, self._replies(lane.prompt, spec.sampling)
        reply = lane.reply[1]
        if reply is None:
            return offer
        right = reply[lane.absorbed + 1 - len(lane.prompt) :]
        if isinstance(offer, Chain):
            return self._chain(offer, right, lane)
        return self._lattice(offer, right, lane, spec.sampling)

    def _chain(self, offer: Chain, right: Sequence[int], lane: _Lane) -> Chain:
        tokens = list(offer.tokens)
        for depth in range(len(tokens)):
            true = right[depth] if depth < len(right) else None
            if self._rank(lane, depth, lane.absorbed + 1 + depth) == 0 and true is not None:
                tokens[depth] = true
                continue
            tokens[depth] = self._other(tokens[depth], true)
            break
        return Chain(tuple(tokens), tuple(self._profile.at(depth)[0] for depth in range(len(tokens))))

    def _lattice(self, offer: Lattice, right: Sequence[int], lane: _Lane, sampling: Sampling) -> Lattice:
        ids, scores = [], []
        for depth, given in enumerate(offer.ids):
            true = right[depth] if depth < len(right) else None
            position = lane.absorbed + 1 + depth
            placed = self._placed(given, true, self._rank(lane, depth, position))
            ids.append(placed)
            if not sampling.greedy:
                scores.append(scores_for(self._profile.at(depth), placed, position, sampling))
        if sampling.greedy:
            scores = [self._greedy_scores(depth, len(given)) for depth, given in enumerate(ids)]
        return Lattice(tuple(ids), tuple(scores), self._no_pairs(offer.pair))

    def _no_pairs(self, pairs: tuple[NDArray[np.float64], ...]) -> tuple[NDArray[np.float64], ...]:
        shapes = tuple([pair.shape for pair in pairs])
        if shapes not in self._pairless:
            self._pairless[shapes] = tuple(np.zeros(shape) for shape in shapes)
        return self._pairless[shapes]

    def _rank(self, lane: _Lane, depth: int, position: int) -> int | None:
        ranks = lane.ranks.get(position, ())
        if depth >= len(ranks):
            ranks = lane.ranks[position] = self._profile.ranks_from(lane.key, position, max(depth + 1, _DEPTHS))
        return ranks[depth]

    def _greedy_scores(self, depth: int, count: int) -> NDArray[np.float64]:
        """Scores of candidates, which hang on neither ids nor position."""
        known = self._greedy.get((depth, count))
        if known is None:
            nothing = np.zeros(count, np.int64)
            known = self._greedy[depth, count] = scores_for(self._profile.at(depth), nothing, 0, Sampling())
        return known

    def _placed(self, given: NDArray[np.int64], true: int | None, rank: int | None) -> NDArray[np.int64]:
        """The candidates, best first, with the right id at `rank` or nowhere."""
        found = given.tolist()
        known = true in found
        if true is None or rank is None or rank >= len(found):
            return self._without(found, true) if known else given
        if known:
            found.remove(true)
        found.insert(rank, true)
        return np.array(found[: len(given)], np.int64)

    def _without(self, found: list[int], true: int | None) -> NDArray[np.int64]:
        placed = [token for token in found if token != true]
        while len(placed) < len(found):
            placed.append(self._unlike(placed, true))
        return np.array(placed, np.int64)

    def _other(self, token: int, true: int | None) -> int:
        return token if token != true else (token + 1) % self.inner.limits.vocabulary

    def _unlike(self, taken: Sequence[int], true: int | None) -> int:
        """The lowest id that is neither taken nor right."""
        return next(i for i in range(self.inner.limits.vocabulary) if i != true and i not in taken)

    # -- what lanes hold -----------------------------------------------------------------------------------------

    def prefill(self, lane: Lane, ids: NDArray[np.int64], span: Span) -> Ticket:
        """As the port says; `ids` is the lane's prompt."""
        ticket = self.inner.prefill(lane, ids, span)
        if span.start == 0:
            self._begin(lane, tuple(ids.tolist()))
        if lane in self._lanes:
            self._lanes[lane].absorbed = span.stop
        return ticket

    def _begin(self, lane: Lane, prompt: tuple[int, ...]) -> None:
        self._lanes[lane] = _Lane(prompt, derive_seed(prompt, self._profile.seed), 0)

    def launch(self, batch: RoundBatch) -> Ticket:
        """As the port says; a lane that begins with a window has a prompt of one id."""
        ticket = self.inner.launch(batch)
        for window in batch.windows:
            if window.position == 0:
                self._begin(window.lane, window.window.tokens[:1])
        self._launches[ticket.id] = tuple(window.lane for window in batch.windows)
        for window in batch.windows:
            self._look_ahead(window)
        return ticket

    def _look_ahead(self, asked: LaneWindow) -> None:
        """Work out, while rows run, the ranks that the next answers will ask for: no head would take that time."""
        lane = self._lanes.get(asked.lane)
        if lane is not None and self.inner.limits.head is not None:
            first = asked.position + 1
            for position in range(first, first + len(asked.window) + _DEPTHS):
                self._rank(lane, 0, position)

    def keep(self, ticket: Ticket, paths: Sequence[Path]) -> None:
        """As the port says."""
        self.inner.keep(ticket, paths)
        for lane, path in zip(self._launches.pop(ticket.id, ()), paths, strict=True):
            if lane in self._lanes:
                self._lanes[lane].absorbed += len(path)

    def discard(self, ticket: Ticket) -> None:
        """As the port says."""
        self._launches.pop(ticket.id, None)
        self.inner.discard(ticket)

    def close(self, lane: Lane) -> None:
        """As the port says."""
        self._lanes.pop(lane, None)
        self.inner.close(lane)

    def fork(self, lane: Lane) -> Lane:
        """As the port says."""
        copy = self.inner.fork(lane)
        if lane in self._lanes:
            self._lanes[copy] = replace(self._lanes[lane])
        return copy

    def resume(self, lane: Lane, capacity: int) -> Lane:
        """As the port says, of a model that resumes from prompt ends."""
        copy = super().resume(lane, capacity)
        if lane in self._lanes:
            self._lanes[copy] = replace(self._lanes[lane])
        return copy
