"""Every bad folder is refused in one line, in bounded memory, before a tensor byte is read."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.application.ports.checkpoints import RefusedError
from tests.adapters.filesystem.bad_checkpoints import CASES, SAYS, Writer

MEMORY_BOUND = 8 << 20


@pytest.mark.parametrize(("name", "write"), CASES, ids=[name for name, _ in CASES])
@pytest.mark.slow
def test_a_bad_folder_is_refused_in_one_line_and_bounded_memory(name: str, write: Writer, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    write(folder)
    tracemalloc.start()
    try:
        with pytest.raises(RefusedError) as refused:
            FolderReader().facts(folder)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    message = refused.value.message
    assert SAYS[name] in message
    assert message.isprintable()
    assert len(message) < 1000
    assert message.endswith(".")
    assert str(tmp_path) in message
    assert peak < MEMORY_BOUND


def test_case_names_are_distinct() -> None:
    assert len({name for name, _ in CASES}) == len(CASES)
