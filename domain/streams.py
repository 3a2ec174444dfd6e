"""One reply in the making: the tokens so far, what may still come, and the one step that adds to them.

`Stream.commit` alone changes a stream. After it, the lane's state must be the state after every token but the last:
`Committed.kept` names the rows that make it so, wherever inside a window the reply was cut. Knows no lane and no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorfold.domain.gates.constraint import Constraint
from tensorfold.domain.gates.gate import Cut, Finish, Gate, earliest_cut
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.verification import Acceptance
from tensorfold.domain.windows import Window

__all__ = ["Committed", "Finish", "Stream"]

_Ending = tuple[tuple[int, ...], Finish | None, bytes | None, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Committed:
    """What one round added to a reply.

    `tokens` joined it; `kept` are the window's rows whose state stays, row 0 first, one for each token; `drafts_kept`
    of them are drafts. `finish` tells why the reply ended here, `stop` the string that ended it.
    """

    tokens: tuple[int, ...]
    kept: tuple[int, ...]
    drafts_kept: int
    finish: Finish | None
    stop: bytes | None


class Stream:
    """A prompt and its growing reply.

    `tokens` are both together, append-only; the last one is pending: part of the reply, not yet in the lane's state.
    `absorbed` counts the tokens in the lane's state. `forced` tokens are settled by a gate and join the reply when the
    next window has fed them behind the pending token. `drafts` False asks for one row a round. `constraint` is the
    grammar of the reply, behind the last token, if it has one.
    """

    __slots__ = (
        "_gates",
        "absorbed",
        "constraint",
        "drafts",
        "emitted_count",
        "finish",
        "forced",
        "max_tokens",
        "prompt",
        "sampling",
        "stop_ids",
        "tokens",
    )

    def __init__(
        self,
        prompt: Sequence[int],
        *,
        max_tokens: int,
        sampling: Sampling,
        stop_ids: frozenset[int],
        gates: Sequence[Gate] = (),
        drafts: bool = True,
        constraint: Constraint | None = None,
    ) -> None:
        if not prompt:
            raise ValueError("a stream needs a prompt of at least one token")
        if max_tokens < 1:
            raise ValueError(f"a stream needs room for at least one token, not {max_tokens}")
        self.prompt = tuple(prompt)
        self.tokens = list(prompt)
        self.max_tokens = max_tokens
        self.sampling = sampling
        self.stop_ids = stop_ids
        self.drafts = drafts
        self.emitted_count = 0
        self.absorbed = 0
        self.forced: tuple[int, ...] = ()
        self.finish: Finish | None = None
        self.constraint = constraint
        self._gates = tuple(gates)

    @property
    def emitted(self) -> list[int]:
        """The reply so far."""
        return self.tokens[len(self.prompt) :]

    @property
    def pending(self) -> int:
        """The token that heads the next window."""
        return self.tokens[-1]

    @property
    def position(self) -> int:
        """Absolute position of the pending token."""
        return self.absorbed

    @property
    def room(self) -> int:
        """Tokens that the next window may add, forced ones included: up to the limit or the first cut known already."""
        room = self.max_tokens - self.emitted_count
        for gate in self._gates:
            known = gate.room()
            if known is not None and known < room:
                room = known
        return room

    def absorb_prompt(self) -> None:
        """Note that the lane has absorbed all of the prompt but its last token, which is now pending."""
        self.absorbed = len(self.prompt) - 1

    def commit(self, window: Window, acceptance: Acceptance) -> Committed:
        """Add a verified window's tokens to the reply, up to where it ends or a gate cuts.

        Raises ValueError, and changes no token, when the window is not the next one of this stream or a token does not
        fit its grammar.
        """
        run = self._run(window, acceptance)
        room = self.max_tokens - self.emitted_count
        finish: Finish | None = None
        stop: bytes | None = None
        forced = self.forced[window.forced + 1 :]
        if len(run) >= room:
            run, finish = run[:room], Finish.LENGTH
        if not self.stop_ids.isdisjoint(run):
            run, finish = run[: _first_of(self.stop_ids, run) + 1], Finish.STOP
        if self._gates:
            cut = earliest_cut(self._gates, run)
            if cut is not None:
                run, finish, stop, forced = self._apply(cut, run, room)
        if self.constraint is not None:
            self.constraint = self.constraint.advanced(run)
        if self._gates:
            for gate in self._gates:
                gate.observe(run)
        self.tokens += run
        self.emitted_count += len(run)
        self.absorbed += len(run)
        self.forced = forced
        self.finish = finish
        return Committed(run, acceptance.path[: len(run)], max(0, len(run) - 1 - window.forced), finish, stop)

    def _run(self, window: Window, acceptance: Acceptance) -> tuple[int, ...]:
        """The tokens that a window offers: its forced ones, then the accepted ones.

        A window may feed only the first of the fixed tokens; the next of them then stands in for the draw behind it.
        """
        forced = window.forced
        if self.finish is not None or self.absorbed != len(self.tokens) - 1:
            raise ValueError("the stream takes no window: its reply has ended or its prompt is not absorbed")
        run = window.tokens[1 : 1 + forced] + acceptance.tokens if forced else acceptance.tokens
        if forced < len(self.forced):
            run = (*run[:forced], self.forced[forced])
        fits = run[:forced] == self.forced[:forced] and forced <= len(self.forced)
        if window.tokens[0] != self.tokens[-1] or not fits or len(run) != len(acceptance.path):
            raise ValueError("the window does not follow the stream's pending and forced tokens")
        return run

    def _apply(self, cut: Cut, run: tuple[int, ...], room: int) -> _Ending:
        """The run as a gate leaves it: what joins the reply, why it ends, the stop string, the tokens forced next."""
        if cut.finish is None:
            # The drawn token never was part of the reply: the fixed one stands in its place, and may itself end it.
            run = (*run[: cut.index], cut.fix[0])
            end = earliest_cut(self._gates, run)
            if end is None or end.finish is None:
                if run[-1] in self.stop_ids:
                    return run, Finish.STOP, None, ()
                if len(run) == room:
                    return run, Finish.LENGTH, None, ()
                return run, None, None, cut.fix[1 : 1 + room - len(run)]
            cut = end
        return run[: cut.index + 1], cut.finish, cut.stop, ()


def _first_of(stop_ids: frozenset[int], run: Sequence[int]) -> int:
    return next(index for index, token in enumerate(run) if token in stop_ids)
