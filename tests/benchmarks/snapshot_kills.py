"""Processes that write snapshots in one folder and are killed: what is there afterwards is old or complete, never else.

Each writer goes on writing until it is killed, some milliseconds after it began, so kills fall before, into and behind
writes, syncs and renames.
"""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tensorfold.adapters.filesystem.snapshot_files import SnapshotFolder
from tensorfold.adapters.filesystem.snapshot_format import SnapshotIdentity
from tensorfold.adapters.filesystem.snapshot_store import FolderSnapshotStore
from tensorfold.application.ports.target_model import LaneImage

LONGEST_S = 0.03
KEYS = 3
IDENTITY = SnapshotIdentity("weights", "weights | runtime | kernels | grid2048")


@dataclass(slots=True)
class Killed:
    """Kills, those that left a write cut short, files that were complete after one, and what was wrong."""

    kills: int = 0
    cut_short: int = 0
    complete: int = 0
    wrong: int = 0
    first: str = ""


def _store(folder: Path) -> FolderSnapshotStore:
    return FolderSnapshotStore(SnapshotFolder(folder), IDENTITY, lambda tokens, buffers: True, lambda line: None)


def _image(key: int, content: int) -> LaneImage:
    """One of many contents behind the same ids, told apart by every byte."""
    return LaneImage(key + 1, tuple((f"layers.{n}.keys", bytes([content]) * 60_000) for n in range(6)), "engine")


def _ids(key: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.arange(key + 1, dtype=np.int32)


def _write(folder: Path, seed: int) -> None:
    rng, store = random.Random(seed), _store(folder)
    while True:
        key = rng.randrange(KEYS)
        store.save("conversation", _ids(key), (0,), _image(key, rng.randrange(256)))


def kill_writers(folder: Path, kills: int, seed: int) -> Killed:
    """So many kills on one folder. Forks: call it before any thread runs."""
    rng, found = random.Random(seed), Killed()
    seen: set[str] = set()
    for number in range(kills):
        child = os.fork()
        if child == 0:
            try:
                _write(folder, seed * 100_003 + number)
            finally:
                os._exit(1)
        time.sleep(rng.random() * LONGEST_S)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        found.kills += 1
        _check(folder, seen, found)
    return found


def _check(folder: Path, seen: set[str], found: Killed) -> None:
    names = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    partial = [name for name in names if name.endswith(".partial.safetensors")]
    whole = {name for name in names if name not in partial}
    found.cut_short += bool(partial)
    store = _store(folder)
    held = {snapshot.key: snapshot for snapshot in store.held()}
    for name in sorted(whole):
        key = name.removesuffix(".safetensors")
        image = store.load(key)
        if key not in held or image is None or not _known(image):
            found.wrong += 1
            found.first = found.first or f"{name} is neither old nor complete"
        else:
            found.complete += 1
    if lost := seen - whole:
        found.wrong += 1
        found.first = found.first or f"{sorted(lost)[0]} is gone"
    if left := [path.name for path in folder.glob("*.partial.safetensors")] if folder.exists() else []:
        found.wrong += 1
        found.first = found.first or f"{left[0]} was not removed"
    seen |= whole


def _known(image: LaneImage) -> bool:
    contents = {data[0] for _, data in image.buffers}
    return len(contents) == 1 and image == _image(image.length - 1, contents.pop())
