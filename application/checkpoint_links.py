"""Where the files of a checkpoint folder may lie once links are followed: one rule for everything that reads one.

Inside the folder, or, for a hub cache's `snapshots/REVISION`, in `blobs` of the same repository. A link to anywhere
else could make a private file part of a prompt.
"""

from __future__ import annotations

import os


def allowed_roots(root: str) -> tuple[str, ...]:
    """Path prefixes, each ending in a separator, below which files of the real folder `root` may lie."""
    return (os.path.join(root, ""), *_blobs(root))


def stays_inside(path: str) -> bool:
    """Whether a file named inside a checkpoint's folder really lies where it may. Raises OSError when missing."""
    roots = allowed_roots(os.path.realpath(os.path.dirname(path), strict=True))
    return os.path.realpath(path, strict=True).startswith(roots)


def _blobs(root: str) -> tuple[str, ...]:
    """The blob folder of the hub cache that `root` is a snapshot of, when it is one."""
    snapshots, repository = os.path.dirname(root), os.path.dirname(os.path.dirname(root))
    blobs = os.path.join(repository, "blobs")
    is_cache = os.path.basename(snapshots) == "snapshots" and os.path.isdir(blobs) and not os.path.islink(blobs)
    return (os.path.join(blobs, ""),) if is_cache else ()
