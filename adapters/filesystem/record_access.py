"""Who may do what with a record's folder: its one writer holds the lock, everyone else reads; whose it is, is checked.

A folder that cannot be used is refused in one sentence that says what to change.
"""

from __future__ import annotations

from tensorfold.adapters.filesystem.record_files import RecordFiles
from tensorfold.adapters.filesystem.record_identity import check_identity, write_identity
from tensorfold.adapters.filesystem.record_reading import chunk_sizes, newest
from tensorfold.adapters.filesystem.record_trouble import cause, passing
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.recall.identity import RecordIdentity


class RecordAccess:
    """The way into one folder; `folder` is its path for messages, made safe to show."""

    def __init__(self, files: RecordFiles, identity: RecordIdentity, folder: str) -> None:
        self._files = files
        self._identity = identity
        self._folder = "".join(c if c.isprintable() else "?" for c in folder)

    def write(self) -> bool:
        """Make the folder and take the lock; False when another server has it, and then nothing was looked at.

        Raises RefusedError, with the lock given back, and OSError for a cause that may pass.
        """
        try:
            return self._taken()
        except OSError as error:
            if passing(error):
                raise
            self._files.unlock()
            raise RefusedError(
                f"The record's folder {self._folder} cannot be written ({cause(error)}); give the server access to it, "
                f"name another one with --recall-dir, or only read it with --recall-read-only."
            ) from error
        except RefusedError:
            self._files.unlock()
            raise

    def read(self, most_chunks: int) -> int:
        """Check whose record it is, changing nothing; bytes of its newest `most_chunks`. Raises RefusedError."""
        try:
            check_identity(self._files, self._identity, self._folder)
            return sum(newest(chunk_sizes(self._files), most_chunks).values())
        except OSError as error:
            raise RefusedError(
                f"The record's folder {self._folder} cannot be read ({cause(error)}); "
                f"give the server access to it, or name another one with --recall-dir."
            ) from error

    def _taken(self) -> bool:
        self._files.create_folder()
        if not self._files.lock():
            return False
        missing = check_identity(self._files, self._identity, self._folder)
        if missing is not None:
            write_identity(self._files, missing)
        else:
            # An earlier server may have been stopped between renaming the identity and making its name durable.
            self._files.sync_folder()
        return True
