"""Space on the machine's disks. Asks only; never creates the folders it is asked about."""

from __future__ import annotations

import os
from pathlib import Path


class SystemDisk:
    """The Disk of the operating system."""

    def free_bytes(self, path: Path) -> int:
        """Bytes this user may still write below `path`, or below its nearest folder that exists.

        0 when the system does not say.
        """
        place = Path(os.path.abspath(path))
        for folder in (place, *place.parents):
            try:
                space = os.statvfs(folder)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                return 0
            return space.f_bavail * space.f_frsize
        return 0
