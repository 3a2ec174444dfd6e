"""The file `identity` of a record's folder: written once, by whoever holds the lock, and compared ever after.

Ids of another tokenizer would be drafted and refused one by one, so a record that is not this tokenizer's, or does not
say whose it is, refuses to be used at all. An identity that stands is never overwritten; one in which a bit flipped is
written again as it was.
"""

from __future__ import annotations

from tensorfold.adapters.filesystem.record_files import RecordFiles
from tensorfold.adapters.filesystem.record_format import IDENTITY
from tensorfold.adapters.filesystem.record_reading import chunk_sizes
from tensorfold.adapters.filesystem.record_trouble import cause
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.recall.identity import MOST_TEXT_BYTES, RecordIdentity, mended, parse


def check_identity(files: RecordFiles, identity: RecordIdentity, folder: str) -> RecordIdentity | None:
    """What a writer is to write there: nothing where the folder says that `identity`'s tokenizer wrote it.

    `identity` where it says nothing and holds no chunk; what it said before, where one bit of that flipped. Raises
    RefusedError for every other folder, and OSError when it cannot be listed.
    """
    # Listed first: an identity is there before any chunk, so chunks without one were not just being made.
    chunks = chunk_sizes(files)
    try:
        data = files.read(IDENTITY, MOST_TEXT_BYTES + 1)
    except FileNotFoundError:
        if not chunks:
            return identity
        raise RefusedError(
            f"The record in {folder} has {len(chunks)} chunk files but no identity, so nothing says which tokenizer "
            f"wrote them; delete them, or name another folder with --recall-dir."
        ) from None
    except OSError as error:
        raise RefusedError(
            f"The record's identity in {folder} cannot be read ({cause(error)}); "
            f"give the server access to it, or name another folder with --recall-dir."
        ) from error
    found, before = _read(data)
    recorded = before or found
    if recorded is None:
        raise RefusedError(
            f"The record's identity in {folder} is malformed, so nothing says which tokenizer wrote the record; "
            f"delete that folder, or name another one with --recall-dir."
        )
    if not recorded.same_tokenizer(identity):
        raise RefusedError(
            f"The record in {folder} was written with the tokenizer of {recorded.named_model or 'an unnamed model'} "
            f"({_named(recorded)}), and this model's is another one ({_named(identity)}); "
            f"name another folder with --recall-dir, or delete that one."
        )
    return before


def _read(data: bytes) -> tuple[RecordIdentity | None, RecordIdentity | None]:
    """What the file says, and what it said before one bit of it flipped."""
    if len(data) > MOST_TEXT_BYTES:
        return None, None
    found = parse(data.decode("utf-8", "replace"))
    exact = found is not None and found.text().encode("utf-8") == data
    return found, None if exact else mended(data)


def write_identity(files: RecordFiles, identity: RecordIdentity) -> None:
    """Write it atomically and durably, before any chunk is made. Raises OSError."""
    files.replace(IDENTITY, identity.text().encode("utf-8"))
    files.sync_folder()


def _named(identity: RecordIdentity) -> str:
    return f"sha256:{identity.digest[:16]}, {identity.vocabulary} ids"
