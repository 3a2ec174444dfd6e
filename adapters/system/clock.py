"""The machine's clock. The only place of the product that asks it for the time of day."""

from __future__ import annotations

import time


class SystemClock:
    """The Clock of the operating system."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        return time.monotonic()

    def wall(self) -> float:
        """Unix seconds; may jump when the machine's time is set."""
        return time.time()
