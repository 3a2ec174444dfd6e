"""The model a backend serves, as the engine sees it: lanes that absorb tokens, rows that draw them.

Tensors never cross this port. Only the engine thread calls it, from loading to closing. The two promises that make
decoding exact are kept behind it: a row's bits do not depend on the rows beside it, and a draw follows
`domain.sampling`. The engine does not trust a device's acceptance: it checks every path against `domain.verification`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.drafting.lattice import Lattice as Lattice
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.windows import Window

Lane = int
Resume = Literal["chunk", "prompt_end"]
Path = tuple[int, ...]
HeadKind = Literal["chain", "lattice"]


@dataclass(frozen=True, slots=True)
class HeadLimits:
    """The draft head loaded with the model: its own, or a drafter with a checkpoint of its own.

    A head of `kind` "chain" drafts token after token and answers with a Chain; one of kind "lattice" drafts a block in
    one pass and answers with a Lattice. `most` drafts may be asked of one call; `drafts` and `min_confidence` are what
    its family publishes as defaults. With `whole_run` a confidence below the least ends a chain when the product of
    all its confidences falls below, otherwise when a draft's own does. `title` names it in the startup report.
    """

    kind: HeadKind
    most: int
    drafts: int
    min_confidence: float = 0.0
    whole_run: bool = False
    title: str = "the model's own head"


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What the load checks left standing.

    `chain_width` and `tree_width` are the widest windows (rows, pending row included) whose rows equal serial steps;
    1 means no drafts. `batch_rows` bounds the rows of one launch over all streams. `shares_rounds` tells whether rows
    of several lanes in one launch keep their bits. `prefill_slice` is the number of rows into which a planned chunk may
    be cut without changing bits; 0 when a chunk must run whole. `draft_context` caps the positions at which drafts are
    allowed (0: no cap). `notes` are one-line sentences for the startup report on everything that was narrowed. `head`
    is None where nothing but copies can draft.
    """

    vocabulary: int
    context: int
    chain_width: int
    tree_width: int
    max_streams: int
    batch_rows: int
    shares_rounds: bool
    resume: Resume
    prefill_slice: int
    sampler_rule: str
    draft_context: int = 0
    notes: tuple[str, ...] = ()
    head: HeadLimits | None = None


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """Measured times. `rows_ms` holds (rows, ms of one launch to its draws), ascending; at least one entry.

    `prefill_row_ms` is the time of one absorbed prompt row; `head_ms[d - 1]` the time in which the draft head makes d
    drafts (empty: not measured, or no head).
    """

    rows_ms: tuple[tuple[int, float], ...]
    prefill_row_ms: float
    head_ms: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Span:
    """Half-open range of prompt positions to absorb; `stop` of one span is `start` of the next."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class LaneWindow:
    """One stream's rows in a launch.

    `position` is the absolute position of row 0 (the tokens already absorbed by the lane); a row at depth d sits at
    `position + d` and draws the token of `position + d + 1`. `masks`, when given, holds for each row the packed
    allowed-token bits (uint32 words, bit t % 32 of word t // 32) or None. `audit` asks for a fingerprint of each drawn
    row's logits, so that a proof can compare bits and not only tokens.
    """

    lane: Lane
    position: int
    window: Window
    sampling: Sampling
    masks: tuple[NDArray[np.uint32] | None, ...] | None = None
    audit: bool = False


@dataclass(frozen=True, slots=True)
class RoundBatch:
    """The rows of one launch, window after window. Each lane appears at most once."""

    windows: tuple[LaneWindow, ...]

    @property
    def rows(self) -> int:
        """Rows over all windows."""
        return sum(len(w.window.tokens) for w in self.windows)


@dataclass(frozen=True, slots=True)
class Ticket:
    """A launched or prefilled piece of work. `id` is the adapter's; a ticket is collected at most once."""

    id: int
    rows: int


@dataclass(frozen=True, slots=True)
class Draws:
    """`tokens[w][r]` is the draw of row r of window w, -1 where the row was forced; `logprobs` likewise when asked.

    `prints[w][r]` is a 64-bit digest of the row's logits for windows that asked for an audit, None for others; the
    tuple is empty when no window asked.
    """

    tokens: tuple[Sequence[int], ...]
    logprobs: tuple[Sequence[float], ...] | None = None
    prints: tuple[Sequence[int] | None, ...] = ()


@dataclass(frozen=True, slots=True)
class ProposeSpec:
    """What one lane's head should draft: at most `depth` >= 1 tokens behind `pending`.

    `pending` is the token that follows everything the lane has absorbed; where the lane has absorbed n tokens it stands
    at position n, and draft d (from 1) at n + d. A head draws with the stream's own `sampling`, with the noise of each
    draft's position, so that it drafts what the target will draw where the two agree. A chain may end before a draft
    whose confidence is below `min_confidence`, as `HeadLimits.whole_run` says; its first draft is always made.
    """

    lane: Lane
    pending: int
    depth: int
    sampling: Sampling
    min_confidence: float = 0.0


@dataclass(frozen=True, slots=True)
class Chain:
    """Drafts one after another, with the head's own probability of each when those before it are right."""

    tokens: tuple[int, ...]
    confidence: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LaneImage:
    """A lane's state in host memory: buffers named and ordered by the plan's `state_spec`, for `length` tokens."""

    length: int
    buffers: tuple[tuple[str, bytes], ...]
    identity: str


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """What replies are exact against: digests and versions that together name this engine."""

    name: str
    weights: str
    runtime: str
    device: str
    kernels: str
    sampler_rule: str
    extra: tuple[tuple[str, str], ...] = field(default=())


class TargetModel(Protocol):
    """One loaded model. All calls come from the thread that loaded it.

    Committed state changes only in `prefill` and `keep`: after a `launch` or `collect` that raised, and after
    `discard`, every lane stands where it stood before the launch. After a `keep` that raised, the lanes of that ticket
    are in an unknown state and the engine closes them.

    A draft head's state belongs to its lane: `prefill` and `keep` absorb into it every row that they absorb into the
    lane, with the token that followed that row (the last row's once it is known: the next call brings it), whoever
    drafted and whether or not `propose` is called; `fork`, `export` and `restore` carry it. A head that cannot absorb
    raises nothing there: its lane answers None from then on.
    """

    @property
    def identity(self) -> ModelIdentity:
        """The engine that replies are exact against."""
        ...

    @property
    def limits(self) -> ModelLimits:
        """Capacities and what the load checks allow."""
        ...

    @property
    def costs(self) -> ModelCosts:
        """Times measured at load."""
        ...

    def open(self, capacity: int) -> Lane:
        """A fresh lane that can absorb `capacity` tokens. Raises CapacityError when it cannot be had."""
        ...

    def close(self, lane: Lane) -> None:
        """Free a lane. Closing an unknown lane raises KeyError."""
        ...

    def fork(self, lane: Lane) -> Lane:
        """A second lane with the same state."""
        ...

    def lanes(self) -> tuple[Lane, ...]:
        """Every open lane, for the integrity check."""
        ...

    def prefill(self, lane: Lane, ids: NDArray[np.int64], span: Span) -> Ticket:
        """Absorb `ids[span.start:span.stop]` of the prompt; `span.start` must equal the tokens absorbed so far."""
        ...

    def launch(self, batch: RoundBatch) -> Ticket:
        """Queue the rows of a round; committed state is untouched until `keep`."""
        ...

    def collect(self, ticket: Ticket) -> Draws:
        """Wait for a launch's draws. For a prefill's ticket: wait, and return no draws."""
        ...

    def keep(self, ticket: Ticket, paths: Sequence[Path]) -> None:
        """Commit exactly the rows of `paths[w]` in window w, in that order; an empty path keeps none."""
        ...

    def discard(self, ticket: Ticket) -> None:
        """Forget a launch as if it had not been made."""
        ...

    def propose(self, specs: Sequence[ProposeSpec]) -> Sequence[Chain | Lattice | None]:
        """Drafts of the head for several lanes, each named once and without a launch in flight; None: nothing to say.

        May be called after a `prefill`, a `keep`, a `fork` or a `restore`, or not at all. It changes no state: asked
        twice it answers twice the same, and what it chained is forgotten before anything is absorbed. A call that
        raises costs the drafts of its lanes.
        """
        ...

    def export(self, lane: Lane) -> LaneImage:
        """Copy a lane's committed state to host memory."""
        ...

    def restore(self, image: LaneImage, capacity: int) -> Lane:
        """A lane with an exported state. Raises ValueError when the image is not of this engine or malformed."""
        ...

    def shutdown(self) -> None:
        """Free everything; no call follows."""
        ...


class PromptEndModel(TargetModel, Protocol):
    """A model whose limits say that it resumes from "prompt_end": states of prompts are kept as forks on its device.

    A fork that takes part in no launch costs no lane: its state, and the keys that nothing else shares.
    """

    def resume(self, lane: Lane, capacity: int) -> Lane:
        """A lane of `capacity` tokens with the state of another, which stays as it is.

        Raises CapacityError when it cannot be had.
        """
        ...


class CapacityError(Exception):
    """A lane or its memory cannot be had now; `message` is a sentence for the user."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
