"""How states of prompts are kept: as images in the host's memory, or as forks on the model's own device.

An image is a copy that anyone may restore again and again. A fork is a lane of the model that takes part in no launch:
its recurrent state is a copy, its whole pages of keys are shared with the lane it was made of and with those that go on
from it. Knows no prompt's ids and no eviction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from tensorfold.application.ports.target_model import Lane, LaneImage, PromptEndModel, TargetModel
from tensorfold.domain.prompts.retained import Prefix
from tensorfold.domain.prompts.shared_pages import PageBook, Pages, distinct


@dataclass(frozen=True, slots=True)
class ForkSizes:
    """Bytes of a page of keys, and of all that a kept end takes besides whole pages; the positions of a page."""

    page: int
    state: int
    positions: int


NO_SIZES = ForkSizes(0, 1, 1 << 62)
"""Where nothing is known of a model's memory: the number of kept ends alone is bounded, and no page is ever whole."""


@dataclass(slots=True, eq=False)
class Fork:
    """A kept end: its lane, and the whole pages behind it."""

    lane: Lane
    pages: Pages


@dataclass(slots=True, eq=False)
class Footing:
    """What the lane of one prompt stands on: its first whole pages, as far as anything was kept of them."""

    pages: Pages = ()


class KeptStates(Protocol):
    """One way to keep states."""

    def copy(self, lane: Lane, length: int, footing: Footing) -> tuple[Any, int]:
        """A state behind so many tokens of a lane, and its bytes. Raises what the model raises."""
        ...

    def lane(self, state: Any, capacity: int, footing: Footing) -> Lane:
        """A lane that goes on from a kept state, which stays. Raises what the model raises."""
        ...

    def drop(self, state: Any) -> None:
        """A state is kept no more."""
        ...

    def size(self, kept: Iterable[Prefix[Any]]) -> int:
        """Bytes that these take together."""
        ...

    def held(self, kept: Iterable[Prefix[Any]], lanes: Iterable[Footing], but: Prefix[Any] | None = None) -> int:
        """Bytes that giving all of these up would leave to others; `but` is one that a lane is about to stand on."""
        ...

    @property
    def on_host(self) -> bool:
        """Whether states lie in the host's memory."""
        ...


class Images:
    """Copies in the host's memory."""

    on_host = True

    def __init__(self, model: TargetModel) -> None:
        self._model = model

    def copy(self, lane: Lane, length: int, footing: Footing) -> tuple[LaneImage, int]:
        """As the port says."""
        image = self._model.export(lane)
        return image, image_size(image)

    def lane(self, state: LaneImage, capacity: int, footing: Footing) -> Lane:
        """As the port says."""
        return self._model.restore(state, capacity)

    def drop(self, state: LaneImage) -> None:
        """Nothing is left of it."""

    def size(self, kept: Iterable[Prefix[Any]]) -> int:
        """All of them."""
        return sum(entry.size for entry in kept)

    def held(self, kept: Iterable[Prefix[Any]], lanes: Iterable[Footing], but: Prefix[Any] | None = None) -> int:
        """All of them: a restored lane is a copy."""
        return self.size(kept)


class Forks:
    """Lanes that take part in no launch; whole pages are counted once, however many share them."""

    on_host = False

    def __init__(self, model: TargetModel, sizes: ForkSizes, log: Callable[[str], None]) -> None:
        self._model = cast(PromptEndModel, model)
        self._sizes = sizes
        self._log = log
        self._book = PageBook(sizes.positions)

    def copy(self, lane: Lane, length: int, footing: Footing) -> tuple[Fork, int]:
        """As the port says."""
        fork = self._model.fork(lane)
        footing.pages = self._book.behind(footing.pages, length)
        return Fork(fork, footing.pages), self._sizes.state + self._sizes.page * len(footing.pages)

    def lane(self, state: Fork, capacity: int, footing: Footing) -> Lane:
        """As the port says."""
        lane = self._model.resume(state.lane, capacity)
        footing.pages = state.pages
        return lane

    def drop(self, state: Fork) -> None:
        """Close the lane; a model that will not is told of in the log."""
        try:
            self._model.close(state.lane)
        except Exception as fault:
            self._log(f"a kept state did not close: {fault!r}")

    def size(self, kept: Iterable[Prefix[Any]]) -> int:
        """States, and pages once each."""
        entries = list(kept)
        return self._sizes.state * len(entries) + self._sizes.page * distinct(_pages(entries))

    def held(self, kept: Iterable[Prefix[Any]], lanes: Iterable[Footing], but: Prefix[Any] | None = None) -> int:
        """Pages that no lane stands on. Room for states is there whether it is used or not."""
        standing = [footing.pages for footing in lanes] + ([] if but is None else [but.state.pages])
        return self._sizes.page * distinct(_pages(kept), standing)


def image_size(image: LaneImage) -> int:
    """Bytes of an image's buffers."""
    return sum(len(data) for _, data in image.buffers)


def _pages(kept: Iterable[Prefix[Any]]) -> Sequence[Pages]:
    return [entry.state.pages for entry in kept]
