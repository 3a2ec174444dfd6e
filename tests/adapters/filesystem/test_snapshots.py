"""Snapshot files: private, whole or absent after any failure, passed over when they are not of this engine."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorfold.adapters.filesystem.snapshot_files import SnapshotFolder
from tensorfold.adapters.filesystem.snapshot_format import MOST_HEADER, MalformedError, SnapshotIdentity, parse
from tensorfold.adapters.filesystem.snapshot_store import FolderSnapshotStore
from tensorfold.application.ports.target_model import LaneImage

IDENTITY = SnapshotIdentity("weights", "weights | runtime | kernels | grid2048")
IDS = np.array([3, 1, 4, 1, 5], np.int32)
IMAGE = LaneImage(5, (("layers.0.keys", b"0123456789"), ("layers.0.conv", b"ab")), "engine")


def store(folder: Path, identity: SnapshotIdentity = IDENTITY, **settings: Any) -> FolderSnapshotStore:
    log = settings.pop("log", [])
    accepts = settings.pop("accepts", lambda tokens, buffers: True)
    return FolderSnapshotStore(SnapshotFolder(folder), identity, accepts, log.append, **settings)


def saved(folder: Path, image: LaneImage = IMAGE) -> Path:
    snapshot = store(folder).save("conversation", IDS, (0, 2), image)
    assert snapshot is not None
    return folder / f"{snapshot.key}.safetensors"


def test_folders_and_files_are_private_under_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = saved(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [stat.S_IMODE(p.stat().st_mode) for p in (path.parent, path.parent.parent)] == [0o700, 0o700]
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_file_is_plain_safetensors_without_code(tmp_path: Path) -> None:
    import mlx.core as mx

    # MLX reads the format by itself.
    tensors = mx.load(str(saved(tmp_path)))
    assert isinstance(tensors, dict)
    assert tensors["prefix.ids"].tolist() == IDS.tolist()
    assert np.array(tensors["layers.0.keys"]).tobytes() == b"0123456789"


@pytest.mark.slow
def test_any_flipped_byte_leaves_the_file_unused_or_equal(tmp_path: Path) -> None:
    path = saved(tmp_path)
    good, used = path.read_bytes(), store(tmp_path)
    for at in range(len(good)):
        for bit in (1, 128):
            path.write_bytes(good[:at] + bytes([good[at] ^ bit]) + good[at + 1 :])
            assert used.load(path.stem) is None
            assert [s.ids.tolist() for s in used.held()] in ([], [IDS.tolist()])


@pytest.mark.slow
def test_a_file_cut_short_or_grown_is_unused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    good, used = path.read_bytes(), store(tmp_path)
    for size in range(len(good)):
        path.write_bytes(good[:size])
        assert used.load(path.stem) is None and not used.held()
    path.write_bytes(good + b"\0")
    assert used.load(path.stem) is None and not used.held()


@pytest.mark.parametrize(
    "other",
    [
        SnapshotIdentity("weights", "weights | newer runtime | kernels | grid2048"),
        SnapshotIdentity("weights", "weights | runtime | kernels | grid4096"),
        SnapshotIdentity("other", "other | runtime | kernels | grid2048"),
    ],
)
def test_another_identity_finds_nothing(tmp_path: Path, other: SnapshotIdentity) -> None:
    path = saved(tmp_path)
    assert not store(tmp_path, other).held()
    assert store(tmp_path, other).load(path.stem) is None


def test_pruning_counts_the_same_models_other_engines_and_spares_other_models(tmp_path: Path) -> None:
    saved(tmp_path)
    newer = store(tmp_path, SnapshotIdentity("weights", "weights | newer"))
    other = store(tmp_path, SnapshotIdentity("other", "other | runtime"))
    newer.save("conversation", IDS, (0,), IMAGE)
    other.save("conversation", IDS, (0,), IMAGE)
    newer.prune("conversation", 1)
    assert [len(s.held()) for s in (store(tmp_path), newer, other)] == [0, 1, 1]


def test_buffers_that_the_state_spec_does_not_know_are_refused_before_they_are_read(tmp_path: Path) -> None:
    asked = []

    def accepts(tokens: int, buffers: Any) -> bool:
        asked.append((tokens, list(buffers)))
        return False

    path = saved(tmp_path)
    assert store(tmp_path, accepts=accepts).load(path.stem) is None
    assert asked == [(5, [("layers.0.keys", 10), ("layers.0.conv", 2)])]
    assert store(tmp_path, most_bytes=100).load(path.stem) is None
    assert store(tmp_path, most_bytes=100).save("system", IDS, (0,), IMAGE) is None


def test_a_file_renamed_to_other_ids_is_unused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    os.rename(path, tmp_path / f"{'0' * 32}.safetensors")
    assert store(tmp_path).load("0" * 32) is None
    assert not store(tmp_path).held()


def test_links_folders_and_pipes_in_a_files_place_are_unused(tmp_path: Path) -> None:
    path = saved(tmp_path / "kept")
    good = path.read_bytes()
    path.unlink()
    (tmp_path / "elsewhere").write_bytes(good)
    path.symlink_to(tmp_path / "elsewhere")
    assert store(path.parent).load(path.stem) is None
    path.unlink()
    os.mkfifo(path)
    assert store(path.parent).load(path.stem) is None
    assert not store(path.parent).held()


def test_a_failed_write_leaves_the_old_file_and_one_line_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    path, used = saved(tmp_path), store(tmp_path, log=log)
    good, real = path.read_bytes(), os.write
    for left in (0, 1, 3):
        writes = [0]

        def full(file: int, data: bytes, left: int = left, writes: list[int] = writes) -> int:
            writes[0] += 1
            if writes[0] > left:
                raise OSError(errno.ENOSPC, "a library's own text")
            return real(file, data)

        monkeypatch.setattr(os, "write", full)
        assert used.save("system", IDS, (0,), IMAGE) is None
        monkeypatch.setattr(os, "write", real)
        assert [p.name for p in tmp_path.iterdir()] == [path.name] and path.read_bytes() == good
    assert log == ["a snapshot could not be written: the disk is full"]
    assert used.save("system", IDS, (0,), IMAGE) is not None


def test_a_disk_that_is_nearly_full_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    room = os.statvfs_result((4096, 4096, 0, 10, 10, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: room)
    assert store(tmp_path, log=log).save("system", IDS, (0,), IMAGE) is None
    assert log == ["a snapshot could not be written: the disk is full"]
    assert not list(tmp_path.iterdir())


def test_what_a_killed_write_left_behind_is_removed_unless_its_writer_lives(tmp_path: Path) -> None:
    import fcntl

    path = saved(tmp_path)
    dead, living = (tmp_path / f"{'1' * 32}.{pid}.partial.safetensors" for pid in (1, 2))
    mine = tmp_path / "notes.partial.safetensors"
    for made in (dead, living, mine):
        made.write_bytes(b"half")
    with open(living, "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        store(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {path.name, living.name, mine.name}


def test_a_missing_folder_is_not_made_by_looking(tmp_path: Path) -> None:
    folder = tmp_path / "none"
    used = store(folder)
    assert not used.held()
    used.prune("system", 1)
    used.touch("0" * 32)
    assert not folder.exists()


def test_a_folder_that_cannot_be_had_is_one_line_in_the_log(tmp_path: Path) -> None:
    log: list[str] = []
    (tmp_path / "file").write_text("")
    used = store(tmp_path / "file", log=log)
    assert not used.held()
    assert used.save("system", IDS, (0,), IMAGE) is None
    assert used.save("system", IDS, (0,), IMAGE) is None
    assert len(log) == len(set(log)) and "a snapshot could not be looked for: it is not a folder" in log


def _header(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    table: dict[str, Any] = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return table


def _damaged(table: dict[str, Any], change: str) -> Any:
    about = table["__metadata__"]
    keys = table["layers.0.keys"]
    match change:
        case "a list":
            return [table]
        case "no metadata":
            del table["__metadata__"]
        case "a number in the metadata":
            about["kind"] = 1
        case "another kind":
            about["kind"] = "class"
        case "another format":
            about["format"] = "pickle"
        case "a lacking field":
            del about["engine"]
        case "a hole":
            keys["data_offsets"] = [keys["data_offsets"][0] + 1, keys["data_offsets"][1] + 1]
        case "a size below none":
            keys["data_offsets"] = keys["data_offsets"][::-1]
        case "a size that is no integer":
            keys["shape"] = [10.0]
        case "true for one":
            keys["shape"] = [True]
        case "another shape":
            keys["shape"] = [5, 2]
        case "another type":
            keys["dtype"] = "F32"
        case "a type that is no text":
            keys["dtype"] = ["U8"]
        case "ids of bytes":
            table["prefix.ids"] |= {"dtype": "U8", "shape": [20]}
        case "no checksum":
            del table["prefix.checksum"]
        case "a buffer that is no table":
            table["layers.0.keys"] = 7
    return table


@pytest.mark.parametrize(
    "change",
    [
        "a list", "no metadata", "a number in the metadata", "another kind", "another format", "a lacking field",
        "a hole", "a size below none", "a size that is no integer", "true for one", "another shape", "another type",
        "a type that is no text", "ids of bytes", "no checksum", "a buffer that is no table",
    ],
)  # fmt: skip
def test_a_hostile_header_is_malformed(tmp_path: Path, change: str) -> None:
    path = saved(tmp_path)
    text = json.dumps(_damaged(_header(path), change)).encode()
    with pytest.raises(MalformedError):
        parse(len(text).to_bytes(8, "little") + text)


@pytest.mark.parametrize("text", [b"", b"\xff" * 9, b"[" * 100_000, b'{"a":1,"a":2}', b"1e999", b"null"])
def test_a_header_that_is_no_table_is_malformed(text: bytes) -> None:
    with pytest.raises(MalformedError):
        parse(len(text).to_bytes(8, "little") + text)


def test_a_header_longer_than_any_is_not_read(tmp_path: Path) -> None:
    path = saved(tmp_path)
    path.write_bytes((MOST_HEADER + 1).to_bytes(8, "little") + path.read_bytes()[8:])
    assert store(tmp_path).load(path.stem) is None
