"""The state a record is in, with its reason. Whatever changes there is told once in the log."""

from __future__ import annotations

from collections.abc import Callable

from tensorfold.application.ports.stores import RecordState

WRITING: tuple[RecordState, ...] = ("on", "paused", "delete-failed")
"""States of the server that writes the record."""


class Standing:
    """Begins as `off`."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self.state: RecordState = "off"
        self.reason = "not opened"

    @property
    def adding(self) -> bool:
        """Whether pieces are added, or would be but for a pause."""
        return self.state in ("on", "paused")

    def become(self, state: RecordState, reason: str = "") -> None:
        """Another state, of which whoever asked for it tells."""
        self.state, self.reason = state, reason

    def pause(self, reason: str) -> None:
        """Nothing is added for now; changes no state but `on`."""
        if self.adding:
            if (self.state, self.reason) != ("paused", reason):
                self._log(f"recall: nothing is added to the record: {reason}")
            self.become("paused", reason)

    def resume(self) -> None:
        """A pause is over; changes no other state."""
        if self.state == "paused":
            self._log("recall: the record is added to again")
            self.become("on")

    def stay_full(self, reason: str) -> None:
        """The record could not be emptied."""
        if (self.state, self.reason) != ("delete-failed", reason):
            self._log(f"recall: {reason}; nothing is added until the record could be emptied")
        self.become("delete-failed", reason)

    def emptied(self) -> None:
        """Ends what `stay_full` began; changes no other state."""
        if self.state == "delete-failed":
            self._log("recall: the record was emptied")
            self.become("on")
