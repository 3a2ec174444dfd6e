"""The parts of a loaded model on the device: pools, passes, prompts, copies of lanes; the model above counts lanes.

Work is queued on one stream, so a later copy or launch reads what an earlier one wrote. Knows no ticket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]
from numpy.typing import NDArray

from tensorfold.adapters.cuda.acceptance import WindowPaths
from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.adapters.cuda.control import ControlBlock, Table
from tensorfold.adapters.cuda.decoder import Decoder, Taps
from tensorfold.adapters.cuda.images import check_image, image_of, load_image
from tensorfold.adapters.cuda.lane_book import LaneBook, LaneEntry
from tensorfold.adapters.cuda.passes import CardGraphs, Pass, Recorder
from tensorfold.adapters.cuda.plans import left_in_ring
from tensorfold.adapters.cuda.rows import SAVE, Chunk, Tensor
from tensorfold.adapters.cuda.sampler import Sampler
from tensorfold.application.ports.target_model import LaneImage, ModelIdentity
from tensorfold.domain.memory.cuda_holding import Room

MakeSampler = Callable[[int, int, Any], Sampler]
MakePaths = Callable[[int, int, int, Any], WindowPaths]


class EngineParts:
    """One decoder over its pools; `head` is its draft head or None.

    `sampler` makes the draws of a pass, of its rows, the vocabulary and the device; `recorder` the graphs, if any;
    `paths` what finds kept rows on the device.
    """

    def __init__(
        self,
        assembly: Assembly,
        decoder: Decoder,
        head: Any,
        *,
        graphs: bool,
        sampler: MakeSampler = Sampler,
        recorder: Recorder | None = None,
        paths: MakePaths = WindowPaths,
    ) -> None:
        self.room: Room = assembly.room
        self.assembly, self.decoder, self.head = assembly, decoder, head
        self.book = LaneBook(self.room)
        self.taps = frozenset[int]() if head is None else frozenset(head.taps)
        self.graphs = graphs
        self._device = assembly.device
        self.table = Table(self.room, self._device, self.book.nobody.pages)
        self._passes: dict[int, Pass] = {}
        self._make_sampler, self._make_paths = sampler, paths
        self._recorder = (recorder or CardGraphs()) if graphs else None
        self._replay = ControlBlock(self.room, 1, self.table.device, self._device)

    # -- passes --------------------------------------------------------------------------------------------------

    def passes(self, rows: int) -> Pass:
        """The pass of a row count, made when it is first asked for."""
        if rows not in self._passes:
            control = ControlBlock(self.room, rows, self.table.device, self._device)
            sampler = self._make_sampler(rows, self.decoder.plan.head.vocabulary, self._device)
            self._passes[rows] = Pass(self.decoder, sampler, control, self.taps, self._recorder)
        return self._passes[rows]

    def paths(self) -> WindowPaths:
        """What finds the kept rows of any launch."""
        return self._make_paths(self.room.lanes, self.room.width, self.room.rows, self._device)

    @property
    def on_card(self) -> bool:
        """Whether this runs on a GPU."""
        return bool(torch.device(self._device).type == "cuda")

    def to_host(self, tokens: Tensor) -> tuple[Any, Any]:
        """A host copy that is under way, and the event after which it is whole."""
        if not self.on_card:
            return tokens.clone(), None
        host = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=True)
        host.copy_(tokens, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        return host, event

    def wait(self) -> None:
        """Wait for everything queued."""
        if self.on_card:
            torch.cuda.synchronize()

    # -- lanes ---------------------------------------------------------------------------------------------------

    def open(self, capacity: int) -> LaneEntry:
        """An empty lane. Raises NoRoomError."""
        entry = self.book.open(capacity)
        with self._given_back_on_a_fault(entry):
            self.table.set(entry.slot, entry.pages)
            for block in self.assembly.recurrent:
                block.clear(entry.committed)
        return entry

    @contextmanager
    def _given_back_on_a_fault(self, entry: LaneEntry) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.book.close(entry)
            raise

    def settle(self, entry: LaneEntry) -> None:
        """Commit what is to be replayed, so that the committed state is that of all tokens.

        The state is made in the spare place, so that a fault between two layers leaves the lane as it stood.
        """
        if not entry.replay:
            return
        steps = [(row - entry.own.start, -1, 0) for row in entry.replay]
        steps[-1] = (steps[-1][0], -1, SAVE)
        self._replay.send_replay({entry.slot: steps}, {entry.slot: (entry.committed, entry.spare)})
        for block in self.assembly.recurrent:
            block.replay(self._replay.rows)
        entry.rotate()
        entry.replay = ()

    def keep(self, entry: LaneEntry) -> LaneEntry:
        """A copy of a lane's committed state that holds no slot. Raises NoRoomError."""
        self.settle(entry)
        other, pages = self.book.keep(entry)
        with self._given_back_on_a_fault(other):
            self._copied(entry, other, pages)
        return other

    def resume(self, source: LaneEntry, capacity: int) -> LaneEntry:
        """A lane behind what a kept state, or another lane, holds. Raises NoRoomError."""
        self.settle(source)
        other, pages = self.book.resume(source, capacity)
        with self._given_back_on_a_fault(other):
            self.table.set(other.slot, other.pages)
            self._copied(source, other, pages)
        return other

    def _copied(self, source: LaneEntry, target: LaneEntry, pages: Sequence[tuple[int, int]]) -> None:
        rows = [(old, new) for old, new in zip(source.last, target.last, strict=True) if old >= 0]
        for keys in self.assembly.keyed:
            keys.copy_pages(pages)
        for state in self.assembly.recurrent:
            state.copy_place(source.committed, target.committed)
            state.copy_ring(rows)

    def move(self, moves: Sequence[tuple[int, int, int]]) -> None:
        """Bring the keys of kept rows of trees to their own positions."""
        rows = torch.tensor(moves, dtype=torch.int32, device=self._device)
        for keys in self.assembly.keyed:
            keys.move(rows, self.table.device)
        if self.head is not None:
            self.head.move(rows)

    # -- prompts -------------------------------------------------------------------------------------------------

    def prompt(self, entry: LaneEntry, ids: NDArray[np.int64]) -> Taps:
        """Absorb a span behind the lane's tokens; what the head reads of it. A span that raises changes nothing."""
        self.settle(entry)
        count = len(ids)
        last, leave = left_in_ring(entry, count)
        for state in self.assembly.recurrent:
            state.copy_place(entry.committed, entry.spare)
        chunk = Chunk(
            lane=entry.slot,
            start=entry.length,
            count=count,
            ids=self._ints(ids),
            positions=torch.arange(entry.length, entry.length + count, dtype=torch.int32, device=self._device),
            table=self.table.device[entry.slot],
            place=entry.spare,
            tail=self._ints(entry.last),
            leave=tuple(leave),
        )
        _, taps = self.decoder.prompt(chunk, self.taps)
        entry.rotate()
        entry.length += count
        entry.last = last
        return taps

    def _ints(self, values: Any) -> Tensor:
        host = torch.from_numpy(np.asarray(values, np.int32).copy())
        return host.to(self._device)

    # -- images --------------------------------------------------------------------------------------------------

    def image(self, entry: LaneEntry, head: Any, identity: ModelIdentity) -> LaneImage:
        """A lane's committed state, and its head's, in host memory."""
        self.settle(entry)
        return image_of(self, entry, head, identity)

    def check_image(self, image: LaneImage, identity: ModelIdentity) -> None:
        """Raise ValueError for an image of another engine or of another form."""
        check_image(self, image, identity)

    def load_image(self, image: LaneImage, entry: LaneEntry, head: Any) -> bool:
        """Make an empty lane's state that of an image; False where the head's part of it is missing."""
        return load_image(self, image, entry, head)

    def close(self) -> None:
        """Drop graphs, passes, pools and weights; no call follows."""
        self._passes.clear()
        self._recorder = self.decoder = self.head = self.assembly = self.table = self._replay = None  # type: ignore[assignment]
