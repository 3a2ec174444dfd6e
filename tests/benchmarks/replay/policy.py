"""What is compared: a policy remembers requests and gives draft sources, as a server's record does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tensorfold.domain.drafting.copies import CopySourceFactory
from tensorfold.domain.drafting.sources import DraftSourceFactory


class Policy(Protocol):
    """One way to draft. Every stream has its own drafts too, whatever the policy."""

    @property
    def name(self) -> str:
        """The policy's name in the table."""
        ...

    @property
    def sources(self) -> Sequence[DraftSourceFactory]:
        """The sources of a stream, first asked first; the last is the one whose look-ups are timed and counted."""
        ...

    def remember(self, run: Sequence[int], reply: int) -> None:
        """Take in what a request read and wrote; the last `reply` ids were written."""
        ...


class Off:
    """Own drafts and copies from the stream's own context, as without Recall."""

    name = "off"

    def __init__(self) -> None:
        self.sources: tuple[DraftSourceFactory, ...] = (CopySourceFactory(),)

    def remember(self, run: Sequence[int], reply: int) -> None:
        """Nothing is kept."""


class WithSource:
    """As off, with one more source; `keep` is told of every run, or of its reply alone.

    Without `own_context` the source stands for copies from the stream's own context too.
    """

    def __init__(
        self, name: str, factory: DraftSourceFactory, keep: Keep, *, replies: bool = False, own_context: bool = True
    ) -> None:
        self.name = name
        self.sources: tuple[DraftSourceFactory, ...] = (*((CopySourceFactory(),) if own_context else ()), factory)
        self._keep = keep
        self._replies = replies

    def remember(self, run: Sequence[int], reply: int) -> None:
        """Add a run, or its reply, to what the source looks in."""
        self._keep(run[len(run) - reply :] if self._replies else run)


class Keep(Protocol):
    """Takes in a run."""

    def __call__(self, run: Sequence[int], /) -> None:
        """Remember `run`."""
        ...
