"""In a process of its own: how much memory a record takes once it is loaded, by the store that a server loads it with.

Run with the record's folder; prints the growth of the resident memory in bytes, and what the index says it takes. What
reading took for a moment and gave back to the allocator is no part of the record: the allocator hands it to the system
before each look where it knows how.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import subprocess
import sys
from pathlib import Path

from tensorfold.domain.recall.index import RecordIndex
from tensorfold.domain.recall.layout import CHUNK_BYTES
from tests.benchmarks.record.contents import CHUNKS, VOCABULARY, stored


def resident() -> int:
    """Bytes of this process that lie in memory."""
    gc.collect()
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    told = subprocess.run(["ps", "-o", "rss=", "-p", str(os.getpid())], capture_output=True, text=True, check=True)
    return 1024 * int(told.stdout)


def main() -> int:
    folder = Path(sys.argv[1])
    before = resident()
    index = RecordIndex(CHUNKS * CHUNK_BYTES, VOCABULARY)
    for chunk in stored(folder):
        index.load(chunk.sequence, chunk.ids)
    del chunk
    print(resident() - before, index.memory_bytes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
