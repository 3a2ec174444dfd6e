"""What the scheduler tells whoever keeps a record of the ids that were read and written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Recorder(Protocol):
    """Called by the engine's thread; neither call may wait."""

    def began(self) -> int:
        """A mark of the record as it stands when a stream opens."""
        ...

    def record(self, tokens: Sequence[int], resumed: int, began: int) -> None:
        """A stream is over: prompt and reply are `tokens`, which stay as they are; `resumed` were kept before.

        `began` is the mark taken when the stream opened.
        """
        ...
