"""The digests a hub states of its files: SHA-256 of large ones, git's blob digest of the others."""

from __future__ import annotations

import hashlib

from tensorfold.adapters.huggingface.tree_list import RemoteFile


def begun(file: RemoteFile) -> hashlib._Hash:
    """A digest to feed a file's bytes to."""
    if file.kind == "sha256":
        return hashlib.sha256()
    # Git names contents by SHA-1; here it only tells that a file came whole, as the hub's list says.
    return hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False)


def git_digest(data: bytes) -> str:
    """Git's digest of a whole small file."""
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data, usedforsecurity=False).hexdigest()
