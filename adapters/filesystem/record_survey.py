"""What an earlier server, or a hostile hand, left in the chunk files, brought to what a writer can go on with."""

from __future__ import annotations

from collections.abc import Callable

from tensorfold.adapters.filesystem.record_files import RecordFiles
from tensorfold.adapters.filesystem.record_format import chunk_name
from tensorfold.adapters.filesystem.record_tail import ChunkTail
from tensorfold.adapters.filesystem.record_trouble import cause


def shortened(files: RecordFiles, sizes: dict[int, int], most: int, log: Callable[[str], None]) -> dict[int, int]:
    """Sizes after files of more than `most` bytes were cut: the rest would count on the disk, and is never read.

    Where a file cannot be cut its rest is ignored.
    """
    return {sequence: _shortened(files, sequence, size, most, log) for sequence, size in sizes.items()}


def gone_on(tail: ChunkTail, size: int, log: Callable[[str], None]) -> bool:
    """Whether pieces can go behind the `size` bytes of the newest chunk: its end is readable, and it has room."""
    try:
        tail.take_up(size)
    except OSError as error:
        log(f"recall: {tail.name} is not added to: {cause(error)}")
        return False
    return tail.room > 0


def _shortened(files: RecordFiles, sequence: int, size: int, most: int, log: Callable[[str], None]) -> int:
    if size <= most:
        return size
    name = chunk_name(sequence)
    try:
        files.truncate(name, most)
    except OSError as error:
        log(f"recall: {name} is longer than a chunk and could not be cut back: {cause(error)}")
        return size
    log(f"recall: {name} had {size} bytes and was cut back to {most}")
    return most
