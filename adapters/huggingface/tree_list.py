"""A hub's list of a commit's files, checked value by value: paths that stay inside, plain sizes, digests.

A file that could not be part of a checkpoint is not looked at further than its path; a path that would leave the folder
refuses them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tensorfold.adapters.huggingface.cache_folder import DIGEST
from tensorfold.application.checkpoint_parts import is_part
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.fields import clipped

_MOST_ENTRIES = 100_000
_MOST_PATH = 1024
_MOST_BYTES = 1 << 50


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file: bytes and digest. `kind` tells what the digest is: SHA-256, or git's of the file as a blob."""

    name: str
    size: int
    digest: str
    kind: Literal["sha256", "git"]


def read_tree(repo: str, entries: Sequence[Any]) -> Mapping[str, RemoteFile]:
    """The files that may be parts of a checkpoint, by name.

    Raises RefusedError for a list that no honest hub sends.
    """
    if len(entries) > _MOST_ENTRIES:
        raise RefusedError(f"The hub lists more than {_MOST_ENTRIES:,} files of {repo}, more than are read.")
    found: dict[str, RemoteFile] = {}
    for file in _files(repo, entries):
        if file.name in found:
            raise RefusedError(f"The hub lists {file.name} of {repo} twice; check HF_ENDPOINT.")
        found[file.name] = file
    return found


def _files(repo: str, entries: Sequence[Any]) -> Iterator[RemoteFile]:
    for entry in entries:
        path = entry.get("path") if isinstance(entry, Mapping) else None
        if not isinstance(path, str) or not path or len(path) > _MOST_PATH:
            raise RefusedError(f"The hub lists a file of {repo} without a path that can be read; check HF_ENDPOINT.")
        if _leads_out(path):
            raise RefusedError(
                f"The hub lists the path {clipped(path)!r} in {repo}, which leads out of the folder; nothing was "
                "downloaded."
            )
        if is_part(path) and entry.get("type") != "directory":
            yield _file(repo, path, entry)


def _leads_out(path: str) -> bool:
    parts = path.split("/")
    return "\\" in path or "\0" in path or any(part in ("", ".", "..") for part in parts) or path[1:2] == ":"


def _file(repo: str, name: str, entry: Mapping[str, Any]) -> RemoteFile:
    shown = clipped(name)
    if entry.get("type") != "file":
        raise RefusedError(f"{shown!r} of {repo} is no file but a link or something else; ask its publisher.")
    large = entry.get("lfs")
    size, digest = entry.get("size"), entry.get("oid")
    kind: Literal["sha256", "git"] = "git"
    if large is not None:
        kind, digest = "sha256", large.get("oid") if isinstance(large, Mapping) else None
        if isinstance(large, Mapping) and large.get("size") != size:
            raise RefusedError(f"The hub states two sizes for {shown!r} of {repo}; check HF_ENDPOINT.")
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= _MOST_BYTES:
        raise RefusedError(f"The hub states no size for {shown!r} of {repo} that a file can have; check HF_ENDPOINT.")
    length = 64 if kind == "sha256" else 40
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest) or len(digest) != length:
        raise RefusedError(f"The hub states no digest for {shown!r} of {repo} that can be read; check HF_ENDPOINT.")
    return RemoteFile(name, size, digest, kind)
