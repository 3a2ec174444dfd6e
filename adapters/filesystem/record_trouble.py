"""What went wrong on a disk, in words that a client may read: the file, and one of a few known causes.

An operating system's own text and numbers stay out, and so does everything that a file holds.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

_CAUSES = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the user's disk quota is used up",
    errno.EFBIG: "the file may not grow",
    errno.EROFS: "the disk is read-only",
    errno.EIO: "the disk reported an error",
    errno.EACCES: "permission was denied",
    errno.EPERM: "permission was denied",
    errno.ENOENT: "it is gone",
    errno.ENOTDIR: "it is not a folder",
    errno.EISDIR: "it is a folder",
    errno.ELOOP: "it is a symbolic link",
    errno.EINVAL: "it is no plain file",
    errno.EMFILE: "too many files are open",
    errno.ENFILE: "too many files are open",
    errno.ENOMEM: "memory is short",
    errno.ESTALE: "the disk lost it",
    errno.ENOLCK: "the disk keeps no locks",
    errno.EOPNOTSUPP: "the disk cannot do that",
}
_PASSING = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.EINTR),
    *(errno.EBUSY, errno.EAGAIN, errno.ETIMEDOUT),
}


class TroubleError(Exception):
    """Why nothing can be added now; `reason` is for clients."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def cause(error: OSError) -> str:
    """The cause in words; the name of a cause without words of ours."""
    return _CAUSES.get(error.errno or 0) or errno.errorcode.get(error.errno or 0, "the reason is unknown")


def passing(error: OSError) -> bool:
    """Whether the cause may go away by itself; otherwise whoever starts the server must change something."""
    return error.errno in _PASSING


@contextmanager
def trouble(what: str, *, gone: bool = False) -> Iterator[None]:
    """Raise TroubleError for an OSError; `what` is a clause such as `00000001.ids could not be written`.

    With `gone`, FileNotFoundError passes as it is, for a caller to whom a missing file means something else.
    """
    try:
        yield
    except OSError as error:
        if gone and isinstance(error, FileNotFoundError):
            raise
        raise TroubleError(f"{what}: {cause(error)}") from error
