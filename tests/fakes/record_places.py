"""The reader's side of a record as a plain list of pieces: obviously right, and slow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensorfold.domain.recall.layout import KEY_IDS
from tensorfold.domain.recall.places import Place

_STRIDE = 1 << 20


class ListPlaces:
    """Pieces in the order they were added. Place `at` n names id n % 2**20 of piece n // 2**20.

    `finds` counts searches.
    """

    def __init__(self, pieces: Iterable[Sequence[int]] = ()) -> None:
        self.pieces: list[tuple[int, ...]] = [tuple(piece) for piece in pieces]
        self.era = 0
        self.finds = 0

    def add(self, piece: Sequence[int]) -> None:
        """Add a piece, which becomes the newest."""
        self.pieces.append(tuple(piece))

    def drop(self, piece: int) -> None:
        """Evict one piece: its places keep their names and lose what follows them."""
        self.pieces[piece] = ()

    def clear(self) -> None:
        """Forget everything."""
        self.pieces = []
        self.era += 1

    def find(self, tokens: Sequence[int], most: int) -> list[Place]:
        """Every end of every run that matches, measured id by id."""
        self.finds += 1
        key = tuple(tokens[-KEY_IDS:])
        found = []
        for number, piece in enumerate(self.pieces):
            for end in range(KEY_IDS, len(piece)):
                if piece[end - KEY_IDS : end] == key:
                    found.append(Place(_shared(piece[:end], tokens), number * _STRIDE + end))
        found.sort(key=lambda place: (-place.length, -place.at))
        return found[:most]

    def advance(self, places: Sequence[Place], fresh: Sequence[int]) -> list[Place]:
        """Those whose following ids begin with `fresh` and go on behind it."""
        count = len(fresh)
        moved = []
        for length, at in places:
            ids = self.following(at, count + 1)
            if len(ids) > count and list(ids[:count]) == list(fresh):
                moved.append(Place(length + count, at + count))
        return moved

    def following(self, at: int, count: int) -> tuple[int, ...]:
        """Ids of one piece from a place on."""
        number, start = divmod(at, _STRIDE)
        return self.pieces[number][start : start + count] if 0 <= number < len(self.pieces) else ()


def _shared(left: Sequence[int], right: Sequence[int]) -> int:
    most = min(len(left), len(right))
    return next((i for i in range(most) if left[-1 - i] != right[-1 - i]), most)
