"""Folders that are the user's alone: made with mode 0700, whatever the umask, with those above them that are missing.

Knows nothing of what they will hold. A folder that was there keeps its mode.
"""

from __future__ import annotations

import errno
import os

_FOLDER_MODE = 0o700


def create_private(path: str) -> list[str]:
    """Make the absolute `path` and what is missing above it; gives each folder that was made, the topmost first.

    One that another process made meanwhile is as good. Raises OSError.
    """
    missing, made = [], []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        try:
            os.mkdir(folder, _FOLDER_MODE)
        except FileExistsError:
            if not os.path.isdir(folder):
                raise NotADirectoryError(errno.ENOTDIR, folder) from None
            continue
        os.chmod(folder, _FOLDER_MODE)
        made.append(folder)
    return made
