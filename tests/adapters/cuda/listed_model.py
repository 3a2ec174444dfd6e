"""A `CudaModel` over the listed decoder, and what it should answer, from a prompt read on a lane of its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.acceptance import WindowPaths
from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.adapters.cuda.engine_parts import EngineParts
from tensorfold.adapters.cuda.loader import identity_of, wanted_limits
from tensorfold.adapters.cuda.model import CudaModel
from tensorfold.adapters.cuda.rows import Chunk
from tensorfold.adapters.cuda.sampler import RowDraw
from tensorfold.application.ports.target_model import Chain, ModelCosts, ProposeSpec
from tensorfold.domain.memory.cuda_holding import Room, room
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.verification import accept
from tensorfold.domain.windows import Window
from tests.adapters.cuda.listed_decoder import VOCABULARY, ListedDecoder, ListedSampler, Tape, drawn, hashes, logits_of
from tests.adapters.cuda.listed_head import TAP, ListedHead, absorbed, drafted

CONTEXT = 1400


@dataclass(frozen=True, slots=True)
class Listed:
    """A model, the tape its work goes through, and its head."""

    model: CudaModel
    tape: Tape
    head: ListedHead | None

    @property
    def held(self) -> tuple[int, int, int]:
        """Slots, pages and kept places that are free."""
        book = self.model.parts.book
        return book.free_slots, book.free_pages, book.free_kept


class ListedPaths(WindowPaths):
    """Paths by the rule itself; `wrong` finds all but the last of a path's rows, as a broken kernel might."""

    wrong = False

    def send(self, windows: Sequence[tuple[Window, int, Collection[int]]]) -> None:
        """The windows, whose tokens go to the device as ever."""
        self._windows_sent = [(window, space, frozenset(ends)) for window, space, ends in windows]
        super().send(windows)

    def follow(self, draws: Any) -> Any:
        """The paths."""
        at, drawn_tokens = 0, draws.tolist()
        for line, (window, space, ends) in zip(self.kept, self._windows_sent, strict=False):
            found = accept(window, drawn_tokens[at : at + len(window)], space, ends)
            path = found.path[: max(1, len(found.path) - self.wrong)]
            line[:2] = torch.tensor([len(path), drawn_tokens[at + path[-1]]])
            line[2:] = -1
            line[2 : 2 + len(path)] = torch.tensor(path)
            at += len(window)
        return self.kept


def _assembly(sizes: Room) -> Assembly:
    return Assembly(None, None, sizes, torch.device("cpu"), torch.int64, "int64")


def listed(
    *,
    graphs: bool = False,
    head: bool = False,
    looks_ahead: bool = True,
    streams: int = 6,
    kept: int = 3,
    pages: int | None = None,
) -> Listed:
    """A model with room for so many streams, and so many states beside them."""
    tape, sizes = Tape(), room(streams, CONTEXT, kept, pages)
    assembly = _assembly(sizes)
    decoder = cast(Any, ListedDecoder(assembly, tape))
    own = ListedHead(sizes) if head else None

    def sampler(rows: int, vocabulary: int, device: Any) -> Any:
        return ListedSampler(tape, rows)

    parts = EngineParts(assembly, decoder, own, graphs=graphs, sampler=sampler, recorder=tape, paths=ListedPaths)
    plan: Any = SimpleNamespace(head=SimpleNamespace(vocabulary=VOCABULARY), tree_window=16)
    limits = wanted_limits(plan, sizes, CONTEXT, streams, None if own is None else own.limits)
    costs = ModelCosts(((1, 1.0),), 0.1)
    identity = identity_of("listed", "w", "r", "cpu", ())
    return Listed(CudaModel(parts, identity, limits, costs, looks_ahead=looks_ahead), tape, own)


@lru_cache(maxsize=4096)
def read(history: tuple[int, ...]) -> tuple[Any, Any]:
    """The head's input and the tapped rows behind each token of a history that is absorbed as one span."""
    sizes = room(1, CONTEXT)
    decoder = ListedDecoder(_assembly(sizes), Tape())
    for block in decoder.layers[::2]:
        block.clear(0)
    chunk = Chunk(
        lane=0,
        start=0,
        count=len(history),
        ids=torch.tensor(history, dtype=torch.int32),
        positions=torch.arange(len(history), dtype=torch.int32),
        table=torch.arange(sizes.pages_per_lane, dtype=torch.int32),
        place=0,
        tail=torch.full((3,), -1, dtype=torch.int32),
        leave=(),
    )
    stream, taps = decoder.prompt(chunk, {TAP}, read=True)
    return hashes(stream), hashes(taps[TAP])


def expected(history: Sequence[int], sampling: Sampling, mask: Any = None) -> int:
    """What the last token's row draws."""
    stream, _ = read(tuple(history))
    return drawn(logits_of(stream[-1:], VOCABULARY)[0], RowDraw(len(history), sampling, mask))


def expected_drafts(history: Sequence[int], spec: ProposeSpec) -> Chain:
    """What a head that absorbed a history drafts."""
    rows = read(tuple(history))[1].tolist() if history else []
    return drafted(absorbed(0, history, rows), spec)


def ids(tokens: Sequence[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Tokens as the port takes prompts."""
    return np.asarray(tokens, np.int64)
