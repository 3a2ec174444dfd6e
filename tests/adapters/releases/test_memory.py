"""What runs remember: kept whole, read as hostile input, never in the way."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tensorfold.adapters.releases.memory import CHECK, SEEN, FolderUpdateMemory


def test_what_is_kept_is_read_again_from_the_files_that_are_documented(tmp_path: Path) -> None:
    memory = FolderUpdateMemory(tmp_path / "deep" / "cache")
    assert (memory.checked(), memory.seen()) == (None, None)
    memory.forget_check()
    assert not (tmp_path / "deep").exists()
    memory.remember_check("v1.2.3", 1700000000.5)
    assert memory.remember_seen("1.2.3")
    assert memory.checked() == ("v1.2.3", 1700000000.5) and memory.seen() == "1.2.3"
    kept = tmp_path / "deep" / "cache"
    assert json.loads((kept / CHECK).read_text()) == {"tag": "v1.2.3", "checked": 1700000000.5}
    assert (kept / SEEN).read_text() == "1.2.3\n"
    assert sorted(path.name for path in kept.iterdir()) == sorted([CHECK, SEEN])
    memory.forget_check()
    assert memory.checked() is None and memory.seen() == "1.2.3"


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"null", b"[]", b"{}", b'{"tag": "v1.2.3"}', b'{"tag": "v1.2.3", "checked": "now"}',
        b'{"tag": "v1.2.3", "checked": NaN}', b'{"tag": "v1.2.3", "checked": 1e999}',
        b'{"tag": "latest", "checked": 1}',
        b'{"tag": ["v1.2.3"], "checked": 1}', b'{"tag": "v1.2.3\xff", "checked": 1}', b"[" * 4000, b" " * 5000,
    ],
)  # fmt: skip
def test_a_check_file_of_no_form_is_nothing(tmp_path: Path, data: bytes) -> None:
    (tmp_path / CHECK).write_bytes(data)
    assert FolderUpdateMemory(tmp_path).checked() is None


@pytest.mark.parametrize("data", [b"", b"v1.2.3", b"1.2", b"\xff", b"1.2.3" + b" " * 5000, b"1.2.3\n4.5.6"])
def test_a_version_file_of_no_form_is_nothing(tmp_path: Path, data: bytes) -> None:
    (tmp_path / SEEN).write_bytes(data)
    assert FolderUpdateMemory(tmp_path).seen() is None


def test_what_is_no_regular_file_is_nothing_and_holds_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / CHECK)
    (tmp_path / SEEN).mkdir()
    memory = FolderUpdateMemory(tmp_path)
    assert (memory.checked(), memory.seen()) == (None, None)
    assert memory.remember_seen("1.2.3") is False
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([CHECK, SEEN])


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    memory = FolderUpdateMemory(tmp_path / "file" / "cache")
    memory.remember_check("v1.2.3", 1.0)
    assert memory.remember_seen("1.2.3") is False
    assert (memory.checked(), memory.seen()) == (None, None)
