"""The simulated disk: what a sync keeps, what a cut may take, and nothing beyond what the rules allow."""

from __future__ import annotations

import random

import pytest

from tests.benchmarks.crash.disk import SimulatedDisk
from tests.benchmarks.crash.images import SECTOR, Image, every_image, some_images

NAME = "00000000.ids"


def disk_with(content: bytes) -> SimulatedDisk:
    """A folder with one durable file."""
    return SimulatedDisk({NAME: content})


def contents(disk: SimulatedDisk) -> set[bytes | None]:
    """Every state of the one file; None where its name is lost."""
    return {image.files.get(NAME) for image in images(disk) if image.files is not None}


def images(disk: SimulatedDisk) -> list[Image]:
    """All images."""
    found = every_image(disk, 100_000)
    assert found is not None
    return found


def test_what_was_synced_is_in_every_image() -> None:
    disk = disk_with(b"")
    disk.append(NAME, b"abcd" * 10)
    disk.sync(NAME)
    assert contents(disk) == {b"abcd" * 10}


def test_an_unsynced_write_is_there_or_cut_anywhere_or_zeros() -> None:
    disk = disk_with(b"aaaa")
    disk.append(NAME, b"bbbb")
    found = contents(disk)
    assert {b"aaaa", b"aaaab", b"aaaabbb", b"aaaabbbb", b"aaaa\0\0\0\0", b"aaaa\0"} <= found
    assert all(content is not None and content.startswith(b"aaaa") for content in found)


def test_each_sector_may_lose_its_write_alone() -> None:
    disk = disk_with(b"")
    disk.append(NAME, b"x" * 3 * SECTOR)
    lost_middle = b"x" * SECTOR + b"\0" * SECTOR + b"x" * SECTOR
    assert {b"x" * 3 * SECTOR, lost_middle, b"\0" * 3 * SECTOR, b"x" * SECTOR, b""} <= contents(disk)


def test_a_sector_tears_between_words() -> None:
    disk = disk_with(b"")
    disk.append(NAME, b"abcdefgh")
    assert {b"abcd\0\0\0\0", b"\0\0\0\0efgh"} <= contents(disk)
    words = {content[:4] for content in contents(disk) if content is not None and len(content) >= 4}
    assert words == {b"abcd", b"\0\0\0\0"}


def test_what_was_cut_off_may_come_back_under_a_later_write_until_the_cut_is_synced() -> None:
    disk = disk_with(b"oldold")
    disk.truncate(NAME, 2)
    disk.append(NAME, b"NEW!")
    assert {b"oldold", b"olNEW!", b"ol\0\0\0\0", b"ol"} <= contents(disk)
    disk = disk_with(b"oldold")
    disk.truncate(NAME, 2)
    disk.sync(NAME)
    disk.append(NAME, b"NEW!")
    assert b"oldold" not in contents(disk)


def test_names_are_lost_and_come_back_each_alone_until_the_folder_is_synced() -> None:
    disk = SimulatedDisk({"a": b"1", "b": b"2"})
    disk.remove("a")
    disk.create("c")
    disk.sync("c")
    assert {frozenset(image.files or ()) for image in images(disk)} == {
        frozenset(names) for names in (("a", "b"), ("b",), ("a", "b", "c"), ("b", "c"))
    }
    disk.sync_folder()
    assert {frozenset(image.files or ()) for image in images(disk)} == {frozenset(("b", "c"))}


def test_a_replaced_file_is_the_old_or_the_new_one_and_never_neither() -> None:
    disk = SimulatedDisk({"identity": b"old"})
    disk.replace("identity", b"new")
    assert {(image.files or {}).get("identity") for image in images(disk)} == {b"old", b"new"}
    disk = SimulatedDisk({"beside": b"new"})
    disk.rename("beside", "identity")
    assert {frozenset(image.files or ()) for image in images(disk)} == {
        frozenset(names) for names in (("beside",), ("identity",), ("beside", "identity"))
    }


def test_a_new_folder_may_be_lost_until_the_one_above_is_synced() -> None:
    disk = SimulatedDisk()
    disk.make_folder()
    disk.create("a")
    assert [image.files for image in images(disk)] == [None, {}, {"a": b""}]
    disk.sync_above()
    assert [image.files for image in images(disk)] == [{}, {"a": b""}]


def test_images_by_chance_are_among_all_images() -> None:
    disk = SimulatedDisk({NAME: b"aaaa", "b": b""})
    disk.append(NAME, b"bbbb")
    disk.append(NAME, b"cccc")
    disk.truncate(NAME, 6)
    disk.remove("b")
    every = [image.files for image in images(disk)]
    words = {(image.files or {})[NAME][:4] for image in some_images(disk, 300, random.Random(1))}
    plain = [image for image in some_images(disk, 300, random.Random(2)) if image.kind != "torn"]
    assert words == {b"aaaa"}
    assert all(image.files in every for image in plain)
    assert len({str(image.files) for image in plain}) > 10


def test_kinds_name_the_worst_that_happened() -> None:
    disk = disk_with(b"aaaa")
    disk.append(NAME, b"bbbbcccc")
    kinds = {(image.files or {}).get(NAME): image.kind for image in images(disk)}
    assert kinds[b"aaaabbbbcccc"] == "whole"
    assert kinds[b"aaaabbbb"] == "short"
    assert kinds[b"aaaa" + b"\0" * 8] == "hole"
    assert kinds[b"aaaabbbb\0\0\0\0"] == kinds[b"aaaa\0\0\0\0cccc"] == "torn"


def test_a_full_disk_writes_short_and_then_fails() -> None:
    disk = disk_with(b"")
    disk.room = 3
    assert disk.append(NAME, b"abcde") == 3
    with pytest.raises(OSError, match="full"):
        disk.append(NAME, b"f")
    assert disk.read(NAME, 9) == b"abc"
