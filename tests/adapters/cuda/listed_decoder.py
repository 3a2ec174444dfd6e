"""A decoder that reads control tensors exactly as blocks do, and computes hashes of what it finds there.

Keys lie in pages, inputs in rings, states in places, all of them int64. A row's logits are a hash of every key, input
and state that its integers lead to, so a wrong integer shows as another token. Pools begin as noise: what nobody wrote
is no zero. Work goes through a `Tape`, which may record it as a graph does: once, without running it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]
from numpy.typing import NDArray

from tensorfold.adapters.cuda.assembly import Assembly, Pairs
from tensorfold.adapters.cuda.rows import COMMIT, CONV_PAST, PAGE, RESET, RETURN, SAVE, Chunk, Rows, Tensor
from tensorfold.adapters.cuda.sampler import RowDraw
from tensorfold.domain.families.state import StateEntry
from tensorfold.domain.memory.cuda_holding import Room
from tensorfold.domain.sampling import draw

Hashes = NDArray[np.uint64]
VOCABULARY = 96
_A, _B, _STEP = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB), np.uint64(0x9E3779B97F4A7C15)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)
_WHOLE = 2**64 - 1


def mixed(x: Any) -> Hashes:
    """Splitmix64's finaliser."""
    x = np.asarray(x, np.uint64)
    x = (x ^ (x >> _30)) * _A
    x = (x ^ (x >> _27)) * _B
    made: Hashes = x ^ (x >> _31)
    return made


def mixed_int(x: int) -> int:
    """The same of one number."""
    x = (x ^ (x >> 30)) * int(_A) & _WHOLE
    x = (x ^ (x >> 27)) * int(_B) & _WHOLE
    return x ^ (x >> 31)


def hashes(tensor: Tensor) -> Hashes:
    """A tensor's own memory as numbers to hash."""
    found: Hashes = tensor.numpy().view(np.uint64)
    return found


class Tape:
    """Runs work at once, or records it; `record` gives what plays it again.

    The results of one graph are spoiled when another is played: graphs share one pool of memory.
    """

    def __init__(self) -> None:
        self._recording: list[Callable[[], None]] | None = None
        self._outputs: list[Tensor] = []
        self._graphs: list[list[Tensor]] = []
        self.reach: Callable[[], None] = lambda: None
        """Called before any work; a test may raise from it."""
        self.played = self.cut = 0

    def _cut(self) -> None:
        """A piece of a graph ends: the rest is another one, which finds its memory once it was played before."""
        assert self._recording
        self.cut += 1

    def run(self, work: Callable[[], None], *outputs: Tensor) -> None:
        """Run work that writes `outputs`, or record it."""
        if self._recording is not None:
            self._recording.append(work)
            self._outputs += outputs
            return
        self.reach()
        work()

    def record(self, queue: Callable[[Callable[[], None]], None]) -> Callable[[], None]:
        """Record what a call queues."""
        self.reach()
        self._recording, self._outputs = [], []
        try:
            queue(self._cut)
        finally:
            steps, self._recording = self._recording, None
        own = self._outputs
        self._graphs.append(own)

        def play() -> None:
            self.reach()
            self.played += 1
            for outputs in self._graphs:
                if outputs is not own:
                    for tensor in outputs:
                        tensor.fill_(-7)
            for step in steps:
                step()

        return play


def noise(*shape: int) -> Tensor:
    """What lies in memory that nobody wrote."""
    chance = np.random.default_rng(sum(shape))
    return torch.from_numpy(chance.integers(-(2**62), 2**62, shape, np.int64))


class ListedKeys:
    """Keys and values [pages, 512] of one layer; a row's result is a hash of those it reads, in order."""

    def __init__(self, tape: Tape, room: Room, salt: int) -> None:
        self._tape, self._salt = tape, np.uint64(mixed_int(salt))
        self.pools = (noise(room.pages, PAGE), noise(room.pages + 1, PAGE)[1:].clone())
        self._held = [hashes(pool) for pool in self.pools]

    def entries(self, path: str) -> list[StateEntry]:
        """What an image holds of it."""
        return [
            StateEntry(f"{path}.keys", "keys", "int64", (1,), per=1),
            StateEntry(f"{path}.values", "values", "int64", (1,), per=1),
        ]

    def _place(self, x: Hashes, positions: Any, pages: Any, at: Any) -> None:
        key = mixed(x + self._salt + positions.astype(np.uint64) * _STEP)
        self._held[0][pages, at] = key
        self._held[1][pages, at] = mixed(key + _STEP)

    def _read(self, x: Hashes, pages: Any, at: Any, lengths: Any) -> Hashes:
        order = np.arange(at.shape[1], dtype=np.uint64)
        found = mixed(self._held[0][pages, at] + order * _STEP) + mixed(self._held[1][pages, at] ^ order)
        found[order[None, :] >= lengths.astype(np.uint64)[:, None]] = 0
        return mixed(found.sum(axis=1, dtype=np.uint64) + x)

    def decode(self, x: Tensor, at: Rows) -> Tensor:
        """Rows [R]."""
        out = torch.empty_like(x)

        def work() -> None:
            rows, table = hashes(x), at.table.numpy()
            lanes, slots, lengths = at.lanes.numpy(), at.slots.numpy(), at.lengths.numpy()
            self._place(rows, at.positions.numpy(), table[lanes, slots // PAGE], slots % PAGE)
            order = np.arange(lengths.max())[None, :]
            inside = order - at.committed.numpy()[:, None]
            path, width = at.path.numpy(), at.path.shape[1]
            within = np.take_along_axis(path, np.clip(inside, 0, width - 1), axis=1)
            read = np.where(inside < 0, order, within)
            read = np.where(order < lengths[:, None], read, 0)
            hashes(out)[:] = self._read(rows, table[lanes[:, None], read // PAGE], read % PAGE, lengths)

        self._tape.run(work, out)
        return out

    def prompt(self, x: Tensor, at: Chunk) -> Tensor:
        """Rows [T]."""
        out = torch.empty_like(x)

        def work() -> None:
            rows, table = hashes(x), at.table.numpy()
            positions = at.positions.numpy()
            assert positions.tolist() == list(range(at.start, at.start + at.count))
            self._place(rows, positions, table[positions // PAGE], positions % PAGE)
            order = np.broadcast_to(np.arange(at.start + at.count)[None, :], (at.count, at.start + at.count))
            hashes(out)[:] = self._read(rows, table[order // PAGE], order % PAGE, positions + 1)

        self._tape.run(work, out)
        return out

    def move(self, moves: Tensor, table: Tensor) -> None:
        """Keys of kept rows to their own places, one after another."""
        self._tape.reach()
        for lane, source, target in moves.tolist():
            pages = table[lane].tolist()
            for held in self._held:
                held[pages[target // PAGE], target % PAGE] = held[pages[source // PAGE], source % PAGE]

    def copy_pages(self, pairs: Pairs) -> None:
        """Whole pages."""
        self._tape.reach()
        for source, target in pairs:
            for held in self._held:
                held[target] = held[source]

    def export(self, pages: Sequence[int], length: int) -> tuple[bytes, ...]:
        """Both pools' first positions."""
        self._tape.reach()
        return tuple(held[list(pages)].reshape(-1)[:length].tobytes() for held in self._held)

    def load(self, pages: Sequence[int], parts: Sequence[bytes], length: int) -> None:
        """Write them."""
        self._tape.reach()
        for held, part in zip(self._held, parts, strict=True):
            for position, value in enumerate(np.frombuffer(part, np.uint64).tolist()):
                held[pages[position // PAGE], position % PAGE] = value


class ListedStates:
    """States and rings: a state is a hash of all inputs behind it, an input one of its own row and three before."""

    def __init__(self, tape: Tape, room: Room, salt: int) -> None:
        self._tape, self._salt, self._room = tape, np.uint64(mixed_int(salt)), room
        self._raw = hashes(noise(room.ring_rows))
        self._made = hashes(noise(room.lanes * room.ring))
        self.places = hashes(noise(room.places))

    def entries(self, path: str) -> list[StateEntry]:
        """What an image holds of it."""
        return [
            StateEntry(f"{path}.conv", "conv", "int64", (CONV_PAST,)),
            StateEntry(f"{path}.state", "recurrent", "int64", (1,)),
        ]

    def decode(self, x: Tensor, at: Rows) -> Tensor:
        """Rows [R]."""
        out = torch.empty_like(x)

        def work() -> None:
            own, taps = mixed(hashes(x) + self._salt), at.taps.numpy()
            past = np.where(taps >= 0, self._raw[np.maximum(taps, 0)], np.where(taps == -1, np.uint64(0), 0))
            past = np.where(taps < -1, own[np.maximum(-(taps + 2), 0)], past).astype(np.uint64)
            made = self._joined(own, past)
            ring = at.ring_at.numpy()
            self._raw[ring], self._made[ring] = own, made
            result = np.zeros(len(own), np.uint64)
            self._steps(at, result)
            hashes(out)[:] = mixed(result + hashes(x))

        self._tape.run(work, out)
        return out

    def _joined(self, own: Hashes, past: Hashes) -> Hashes:
        joined = own.copy()
        for tap in range(CONV_PAST):
            joined = mixed(joined + past[:, tap])
        return joined

    def _steps(self, at: Rows, result: Hashes | None) -> None:
        counts, places = at.counts.tolist(), at.places.tolist()
        for lane, count in enumerate(counts):
            if not count:
                continue
            base, aside = places[lane]
            state = int(self.places[base])
            for source, target, flags in at.schedule[lane, :count].tolist():
                state = int(self.places[base]) if flags & RESET else state
                state = int(self.places[aside]) if flags & RETURN else state
                state = mixed_int(state + int(self._made[lane * self._room.ring + source]) & _WHOLE)
                if target >= 0:
                    assert result is not None
                    result[target] = state
                if flags & COMMIT:
                    self.places[base] = state
                if flags & SAVE:
                    self.places[aside] = state

    def replay(self, at: Rows) -> None:
        """The schedule alone."""
        self._tape.run(lambda: self._steps(at, None))

    def prompt(self, x: Tensor, at: Chunk) -> Tensor:
        """Rows [T]."""
        out = torch.empty_like(x)

        def work() -> None:
            own, tail = mixed(hashes(x) + self._salt), at.tail.numpy()
            before = np.where(tail >= 0, self._raw[np.maximum(tail, 0)], np.uint64(0))
            line = np.concatenate([before, own])
            past = np.stack([line[tap : tap + at.count] for tap in range(CONV_PAST)], axis=1)
            for target, source in at.leave:
                self._raw[target] = own[source]
            state, result = int(self.places[at.place]), np.zeros(at.count, np.uint64)
            for row, made in enumerate(self._joined(own, past).tolist()):
                state = result[row] = mixed_int(state + made & _WHOLE)
            self.places[at.place] = state
            hashes(out)[:] = mixed(result + hashes(x))

        self._tape.run(work, out)
        return out

    def copy_place(self, source: int, target: int) -> None:
        """One state into another place."""
        self._tape.reach()
        self.places[target] = self.places[source]

    def copy_ring(self, pairs: Pairs) -> None:
        """Inputs from row to row."""
        self._tape.reach()
        for source, target in pairs:
            self._raw[target] = self._raw[source]

    def clear(self, place: int) -> None:
        """The state behind no token."""
        self._tape.reach()
        self.places[place] = 0

    def export(self, place: int, last: Sequence[int]) -> tuple[bytes, ...]:
        """The last inputs, then the state."""
        self._tape.reach()
        tail = np.array([self._raw[row] if row >= 0 else 0 for row in last], np.uint64)
        return tail.tobytes(), self.places[place : place + 1].tobytes()

    def load(self, place: int, last: Sequence[int], parts: Sequence[bytes]) -> None:
        """Write them."""
        self._tape.reach()
        self.places[place] = np.frombuffer(parts[1], np.uint64)[0]
        for row, value in zip(last, np.frombuffer(parts[0], np.uint64), strict=True):
            if row >= 0:
                self._raw[row] = value


class ListedDecoder:
    """Four layers, states and keys in turn, of which every row goes through all."""

    def __init__(self, assembly: Assembly, tape: Tape, vocabulary: int = VOCABULARY) -> None:
        self.plan: Any = SimpleNamespace(head=SimpleNamespace(vocabulary=vocabulary))
        self._tape, self._vocabulary = tape, vocabulary
        self.layers: list[Any] = []
        for number in range(4):
            block: Any = (ListedKeys if number % 2 else ListedStates)(tape, assembly.room, number + 1)
            self.layers.append(block)
            (assembly.keyed if number % 2 else assembly.recurrent).append(block)
            assembly.order.append(block)
            assembly.entries += block.entries(f"layers.{number}.listed")

    def decode(
        self, at: Rows, taps: Collection[int] = (), reached: Callable[[int], None] = lambda count: None
    ) -> tuple[Tensor, Tensor, dict[int, Tensor]]:
        """Logits float32 [R, V], the head's input [R], and the tapped streams [R]."""
        stream, tapped = self._embedded(at.ids), {}
        for number, layer in enumerate(self.layers):
            reached(number)
            if number in taps:
                tapped[number] = stream
            stream = layer.decode(stream, at)
        return self._logits(stream), stream, tapped

    def prompt(
        self, at: Chunk, taps: Collection[int] = (), *, read: bool = False
    ) -> tuple[Tensor | None, dict[int, Tensor]]:
        """The same for a span, without logits."""
        stream, tapped = self._embedded(at.ids), {}
        for number, layer in enumerate(self.layers):
            if number in taps:
                tapped[number] = stream
            stream = layer.prompt(stream, at)
        return stream if read else None, tapped

    def _embedded(self, ids: Tensor) -> Tensor:
        out = torch.empty(len(ids), dtype=torch.int64)

        def work() -> None:
            hashes(out)[:] = mixed(ids.numpy().astype(np.uint64) * _STEP + np.uint64(1))

        self._tape.run(work, out)
        return out

    def _logits(self, stream: Tensor) -> Tensor:
        out = torch.empty((len(stream), self._vocabulary), dtype=torch.float32)

        def work() -> None:
            out.numpy()[:] = logits_of(hashes(stream), self._vocabulary)

        self._tape.run(work, out)
        return out


def logits_of(stream: Hashes, vocabulary: int) -> NDArray[np.float32]:
    """Logits [R, V] between -4 and 4."""
    ids = np.arange(vocabulary, dtype=np.uint64) * _STEP
    spread = mixed(stream[:, None] + ids[None, :]) >> np.uint64(40)
    made: NDArray[np.float32] = (spread.astype(np.float32) * np.float32(2.0**-21) - np.float32(4.0)).astype(np.float32)
    return made


class ListedSampler:
    """Draws by the rule itself, in numpy. `tokens` int32 [rows] holds the last ones."""

    def __init__(self, tape: Tape, rows: int) -> None:
        self._tape, self._draws = tape, [None] * rows
        self.tokens: Tensor = torch.full((rows,), -1, dtype=torch.int32)

    _draws: list[RowDraw | None]

    def send(self, draws: Sequence[RowDraw | None]) -> None:
        """What the next `draw` draws."""
        self._tape.reach()
        self._draws[:] = [*draws, *[None] * (len(self._draws) - len(draws))]

    def draw(self, logits: Tensor) -> Tensor:
        """The draws int32 [R], -1 for rows that are not drawn."""
        tokens = self.tokens[: len(logits)]

        def work() -> None:
            rows = logits.numpy()
            tokens.numpy()[:] = [
                -1 if each is None else drawn(rows[row], each) for row, each in enumerate(self._draws[: len(rows)])
            ]

        self._tape.run(work)
        return tokens


def drawn(logits: NDArray[np.float32], asked: RowDraw) -> int:
    """One draw, among the ids that a mask allows."""
    if asked.mask is not None:
        bits = np.unpackbits(asked.mask.view(np.uint8), bitorder="little")[: len(logits)]
        logits = np.where(bits == 1, logits, -np.inf).astype(np.float32)
    return draw(logits, asked.position, asked.sampling)
