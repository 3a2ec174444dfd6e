"""Messages between the server and the renderer's process: four bytes of length, then JSON in UTF-8.

Plain data only, on both sides; whoever reads states the largest frame it takes, so a lying length costs nothing.
"""

from __future__ import annotations

import json
import struct
from typing import Any

HEADER = struct.Struct(">I")


def packed(message: Any) -> bytes:
    """A whole frame. Half surrogate pairs are carried as they are. Raises RecursionError on endless nesting."""
    body = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return HEADER.pack(len(body)) + body


def unpacked(body: bytes | bytearray) -> Any:
    """The message of a frame's body. Raises ValueError or RecursionError when it is none."""
    return json.loads(body.decode("utf-8", "surrogatepass"))


def body_size(header: bytes | bytearray, limit: int) -> int:
    """The size a header states. Raises ValueError when it passes `limit` bytes."""
    (size,) = HEADER.unpack(header)
    if size > limit:
        raise ValueError("the frame is larger than its reader takes")
    return int(size)
