"""The operating system's clock and disk, as far as they can be checked without timing anything."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tensorfold.adapters.system.clock import SystemClock
from tensorfold.adapters.system.disk import SystemDisk
from tensorfold.application.ports.machine import Clock, Disk

CLOCK: Clock = SystemClock()
DISK: Disk = SystemDisk()


def test_the_monotonic_clock_never_goes_back() -> None:
    readings = [CLOCK.monotonic() for _ in range(1000)]
    assert readings == sorted(readings)


def test_the_wall_clock_lies_between_two_readings_of_the_system() -> None:
    before = time.time()
    reading = CLOCK.wall()
    assert before <= reading <= time.time()


def _says(blocks: int, size: int) -> object:
    return os.statvfs_result((size, size, 100, blocks, blocks, 0, 0, 0, 0, 255))


def test_free_space_is_what_this_user_may_still_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: _says(7, 4096))
    assert DISK.free_bytes(tmp_path) == 7 * 4096


def test_a_folder_that_is_not_there_yet_has_the_space_of_its_nearest_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []
    plain = os.statvfs

    def spy(path: Path) -> os.statvfs_result:
        asked.append(path)
        return plain(path)

    monkeypatch.setattr(os, "statvfs", spy)
    assert DISK.free_bytes(tmp_path / "not" / "yet") > 0
    assert asked == [tmp_path / "not" / "yet", tmp_path / "not", tmp_path]
    assert not (tmp_path / "not").exists()


def test_a_disk_that_does_not_say_has_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "statvfs", fail)
    assert DISK.free_bytes(tmp_path) == 0
