"""What a model's own head holds of one lane, and a chain that was queued for it behind a launch.

Knows which entries are in the head's pages and which kept rows wait in its pool; the passes over them are the head's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.heads.head import Behind, KeptRows, Taps, copied_pages
from tensorfold.adapters.cuda.heads.mtp_passes import Entries, Following, Told
from tensorfold.adapters.cuda.lane_book import LaneEntry
from tensorfold.adapters.cuda.rows import Tensor
from tensorfold.adapters.cuda.sampler import RowDraw
from tensorfold.application.ports.target_model import Chain, ProposeSpec

if TYPE_CHECKING:
    from tensorfold.adapters.cuda.heads.mtp import MtpDrafts


class MtpLane:
    """`count` entries in the head's pages, and kept rows that wait: the last for its token, others to be entered."""

    def __init__(self, head: MtpDrafts, entry: LaneEntry) -> None:
        self._head, self._entry = head, entry
        self._base = entry.slot * head.rows_each
        self.count = 0
        self._rows: list[int] = []  # flat rows of the pool that wait, in order
        self._tokens: list[int] = []  # those behind them, the last one's missing
        self._held: Tensor | None = None  # the row that waits, beside a kept state
        self._passes = 0

    @property
    def ready(self) -> bool:
        """Whether it can draft."""
        return bool(self._rows)

    @property
    def waiting(self) -> int:
        """Kept rows that are not entered."""
        return len(self._rows)

    @property
    def turn(self) -> int:
        """Changes with every pass that writes its keys; -1 once its pages were given back."""
        return self._passes if self._entry.pages else -1

    def absorb(self, tokens: tuple[int, ...], taps: Taps) -> None:
        """Take in a prompt's span."""
        if len(tokens) > self._head.width:
            self._absorb_span(tokens, taps[self._head.tap])
        else:
            self._head.take([KeptRows(self, tokens, range(len(tokens)))], taps)

    def wait(self, tokens: tuple[int, ...]) -> range:
        """Further kept tokens; the flat rows of the pool in which theirs wait."""
        if len(self._rows) + len(tokens) > self._head.width:
            self.enter()
        rows = self._next_rows(len(tokens))
        if rows.start == self._base:
            self.enter()
        self._tokens += tokens if self._rows else tokens[1:]
        self._rows += rows
        return rows

    @property
    def follows(self) -> bool:
        """Whether drafts can be queued behind a launch of it: one row waits, whose token will be the launch's first."""
        return len(self._rows) == 1 and self._entry.slot >= 0

    def following(self, behind: Behind) -> Following:
        """What it will enter behind a launch."""
        self._passes += 1
        draw = RowDraw(self.count + 2, behind.spec.sampling)
        room = self._next_rows(behind.rows)
        return Following(self._entry.slot, self.count, self._rows[0], room, behind.line, behind.start, draw)

    def wait_in(self, room: range, tokens: tuple[int, ...]) -> None:
        """Further kept tokens, whose rows lie in `room` already."""
        self._tokens += tokens
        self._rows += room[: len(tokens)]

    def _next_rows(self, count: int) -> range:
        """Rows of the pool behind those that wait, or the lane's first ones."""
        start = self._rows[-1] + 1 if self._rows else self._base
        if start + count > self._base + self._head.rows_each:
            start = self._base
        return range(start, start + count)

    def _absorb_span(self, tokens: tuple[int, ...], stream: Tensor) -> None:
        self.enter()
        hidden, behind = stream[:-1], tokens[1:]
        if self._rows:
            hidden, behind = torch.cat([self._head.pool[self._rows[0] : self._rows[0] + 1], hidden]), tokens
        self._passes += 1
        self._head.enter_span(self._entry, self.count, behind, hidden)
        self.count += len(behind)
        self._wait_with(stream[-1])

    def _wait_with(self, row: Tensor) -> None:
        self._head.pool[self._base].copy_(row)
        self._rows, self._tokens = [self._base], []

    def enter(self) -> None:
        """Enter the rows whose tokens are known."""
        if self._tokens:
            self._passes += 1
            self._head.enter(Entries(self._entry.slot, self.count, self._tokens, self._rows[:-1]))
            self.entered()

    def entries(self, spec: ProposeSpec) -> Entries:
        """What waits, with `spec.pending` behind the last row, and the draw of the token behind that."""
        self._passes += 1
        # The pending token stands one place behind the last entered row.
        position = self.count + len(self._rows) + 1
        draw = RowDraw(position, spec.sampling)
        return Entries(self._entry.slot, self.count, [*self._tokens, spec.pending], list(self._rows), draw)

    def entered(self) -> None:
        """The rows whose tokens are known have been entered."""
        self.count += len(self._tokens)
        self._rows, self._tokens = self._rows[-1:], []

    def propose(self, spec: ProposeSpec) -> Chain | None:
        """A chain behind the pending token."""
        return self._head.propose([(self, spec)])[0]

    def fork(self, entry: LaneEntry) -> MtpLane:
        """A copy for another entry with the same committed tokens."""
        self.enter()
        twin = self._head.open(entry)
        twin.count = self.count
        pairs = copied_pages(self._entry, entry, self.count)
        for block in self._head.layers.keyed:
            block.copy_pages(pairs)
        row = self._waiting()
        if row is not None:
            if entry.slot >= 0:
                twin._wait_with(row)
            else:
                twin._held = row.clone()
        return twin

    def _waiting(self) -> Tensor | None:
        return self._head.pool[self._rows[-1]] if self._rows else self._held

    def export(self) -> tuple[bytes, ...]:
        """The buffers of its layers, and the row that waits."""
        self.enter()
        parts = [part for block in self._head.layers.keyed for part in block.export(self._entry.pages, self.count)]
        row = self._waiting()
        held = self._head.pool.new_zeros(self._head.pool.shape[1]) if row is None else row
        return (*parts, held.cpu().contiguous().view(torch.uint8).numpy().tobytes())

    def load(self, parts: Sequence[bytes], length: int) -> None:
        """Become the state behind `length` tokens. Raises ValueError on a wrong size."""
        pool = self._head.pool
        if len(parts[-1]) != pool.shape[1] * pool.element_size():
            raise ValueError(f"a draft head's row of {len(parts[-1])} bytes; it has {pool.shape[1]} numbers")
        self.count = max(0, length - 1)
        for at, block in enumerate(self._head.layers.keyed):
            block.load(self._entry.pages, parts[2 * at : 2 * at + 2], self.count)
        if length:
            row = torch.from_numpy(np.frombuffer(parts[-1], np.uint8).copy()).view(pool.dtype)
            self._wait_with(torch.nan_to_num(row).to(pool.device))


class QueuedChain:
    """A chain of one lane behind a launch, in column `column` of what is told."""

    def __init__(self, head: MtpDrafts, behind: Behind, room: range, told: Told, column: int) -> None:
        self._head, self._lane, self._asked = head, behind.lane, behind.spec
        self._room, self._told, self._column = room, told, column

    def take(self, tokens: tuple[int, ...]) -> None:
        """The lane keeps what was found."""
        self._lane.wait_in(self._room, tokens)

    def drafts(self, spec: ProposeSpec) -> Chain | None:
        """The chain, with more steps if more are asked for."""
        if spec.sampling != self._asked.sampling:
            return None
        made = self._head.chain(self._told, self._column, spec)
        if made is not None:
            self._lane.entered()
        return made
