"""Which chunk files of a folder make up a record, and their ids as they are read. Changes nothing on the disk.

A folder is hostile: whatever has not a chunk's name, or is no plain file, is none. What cannot be read is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tensorfold.adapters.filesystem.record_files import RecordFiles
from tensorfold.adapters.filesystem.record_format import chunk_name, decode, sequence_of
from tensorfold.adapters.filesystem.record_trouble import cause
from tensorfold.application.ports.stores import StoredChunk
from tensorfold.domain.recall.layout import ID_BYTES


def chunk_sizes(files: RecordFiles) -> dict[int, int]:
    """Bytes of every chunk file by sequence number, oldest first; empty without a folder. Raises OSError."""
    try:
        entries = files.entries()
    except FileNotFoundError:
        return {}
    numbered = ((sequence_of(entry.name), entry) for entry in entries if entry.regular)
    return dict(sorted((sequence, entry.size) for sequence, entry in numbered if sequence is not None))


def newest(sizes: dict[int, int], most: int) -> dict[int, int]:
    """The newest `most` chunks, oldest first."""
    return dict(list(sizes.items())[-most:])


def read_chunks(
    files: RecordFiles, vocabulary: int, *, most_chunks: int, chunk_ids: int, log: Callable[[str], None]
) -> Iterator[StoredChunk]:
    """The newest `most_chunks`, oldest first, at most `chunk_ids` values of each.

    A file that vanished is nothing new: another server may be deleting its oldest. Empty ones are passed over.
    """
    try:
        sizes = newest(chunk_sizes(files), most_chunks)
    except OSError as error:
        log(f"recall: the record's folder could not be read: {cause(error)}")
        return
    for sequence, size in sizes.items():
        name = chunk_name(sequence)
        if size > chunk_ids * ID_BYTES:
            log(f"recall: {name} has {size} bytes, what is behind {chunk_ids * ID_BYTES} is ignored")
        try:
            ids = decode(files.read(name, chunk_ids * ID_BYTES), vocabulary)
        except FileNotFoundError:
            continue
        except OSError as error:
            log(f"recall: {name} was skipped: {cause(error)}")
            continue
        if len(ids):
            yield StoredChunk(sequence, ids)
