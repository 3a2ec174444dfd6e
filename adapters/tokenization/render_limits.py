"""What rendering one conversation may cost. Values only; read on both sides of the renderer's pipe."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class RenderLimits:
    """Bounds on one rendering.

    `memory_bytes` bounds the process's address space (macOS may not enforce it; time and output hold there all the
    same). `output_bytes` bounds the answer as it crosses the pipe. `seconds` bounds wall time, and with it CPU time.
    """

    memory_bytes: int = 512 * MIB
    output_bytes: int = 16 * MIB
    seconds: float = 10.0

    @property
    def request_bytes(self) -> int:
        """The largest request: what the process can hold beside the text made from it."""
        return self.memory_bytes // 8
