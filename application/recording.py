"""What the scheduler tells whoever keeps a record of the ids that were read and written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Recorder(Protocol):
    """Neither call may wait; `began` is called by any thread, `record` by the engine's."""

    def began(self) -> int:
        """A mark of the record as it stands when a request comes."""
        ...

    def record(self, tokens: Sequence[int], resumed: int, began: int) -> None:
        """A stream is over: prompt and reply are `tokens`, which stay as they are; `resumed` were kept before.

        `began` is the mark taken when its request came.
        """
        ...
