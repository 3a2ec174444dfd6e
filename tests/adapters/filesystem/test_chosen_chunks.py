"""What is remembered of chosen chunks: a file of anything else is none, and a disk that refuses stops nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tensorfold.adapters.filesystem.chosen_chunks import FolderChunkMemory

KEY = "weights | Apple M5"


def test_a_chunk_is_remembered_for_its_key_alone_and_over_starts(tmp_path: Path) -> None:
    folder = tmp_path / "checks"
    assert FolderChunkMemory(folder).read(KEY) is None and not folder.exists()
    FolderChunkMemory(folder).write(KEY, 4096)
    assert FolderChunkMemory(folder).read(KEY) == 4096
    assert FolderChunkMemory(folder).read("other | Apple M5") is None
    FolderChunkMemory(folder).write(KEY, 2048)
    assert FolderChunkMemory(folder).read(KEY) == 2048 and len(list(folder.iterdir())) == 1


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "3", "null", "[" * 4000, json.dumps({"key": "another", "chunk": 2048}),
        *(json.dumps({"key": KEY, "chunk": chunk}) for chunk in (0, -1, True, 2048.0, "2048", None, 1 << 30)),
        json.dumps({"key": KEY, "chunk": 2048}) + " " * 5000 + "x",
    ],
)  # fmt: skip
def test_a_file_that_holds_anything_else_is_none_and_is_written_anew(text: str, tmp_path: Path) -> None:
    memory = FolderChunkMemory(tmp_path)
    memory.write(KEY, 4096)
    (file,) = tmp_path.iterdir()
    file.write_text(text)
    assert memory.read(KEY) is None
    memory.write(KEY, 4096)
    assert memory.read(KEY) == 4096


def test_a_disk_that_refuses_and_a_pipe_in_the_files_place_stop_nothing(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    memory = FolderChunkMemory(blocked)
    memory.write(KEY, 4096)
    assert memory.read(KEY) is None
    memory = FolderChunkMemory(tmp_path / "pipes")
    memory.write(KEY, 4096)
    (file,) = (tmp_path / "pipes").iterdir()
    file.unlink()
    os.mkfifo(file)
    assert memory.read(KEY) is None
