"""Files of a benchmark: the public prompts as they are known, hostile files refused, results written whole."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from tensorfold.adapters.filesystem import benchmark_files
from tensorfold.adapters.filesystem.benchmark_files import FolderBenchmarkFiles
from tensorfold.application.benchmark_prompts import read_prompts
from tensorfold.application.ports.checkpoints import RefusedError
from tests.tree import ROOT

FILES = FolderBenchmarkFiles()
LINE = json.dumps({"name": "a", "messages": [{"role": "user", "content": "Hi"}]})


def test_the_public_prompts_are_those_whose_digest_the_page_states() -> None:
    public = read_prompts(FILES.public_prompts(), "the public files", "the public files")
    assert len(public.prompts) == 8 and sum(not prompt.greedy for prompt in public.prompts) == 1
    assert f"\n{public.digest}\n" in (ROOT / "docs" / "bench.md").read_text(encoding="utf-8")


def test_every_public_file_is_read() -> None:
    folder = Path(benchmark_files.__file__).parent / "prompts"
    assert {path.stem for path in folder.iterdir()} == set(benchmark_files._PUBLIC)


def test_prompts_are_a_line_each_with_the_place_of_each(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(f"{LINE}\n\n  {LINE} \r\n".encode())
    assert [place for place, _ in FILES.prompts(path)] == [f"{path}, line 1", f"{path}, line 3"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"[1]", ", line 1 holds a JSON array where an object is expected."),
        (b'{"a": NaN}', ", line 1 holds NaN, which is not JSON."),
        (b'{"a": 1, "a": 2}', ", line 1 says 'a' twice in one object."),
        (b'{"a": ' + b"[" * 50 + b"]" * 50 + b"}", ", line 1 is nested deeper than the 8 levels that are read."),
        (b'{"a": "\xff"}', ", line 1 is not UTF-8 text"),
        (b"{", ", line 1 is not valid JSON"),
        (b"\n" * 5000, " has more than 4096 lines; write one prompt a line."),
        (b" " * ((8 << 20) + 1), " holds more than the 8388608 bytes of a file of prompts."),
    ],
)
def test_a_file_that_holds_no_prompts_is_refused_with_its_place(text: bytes, told: str, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(text)
    with pytest.raises(RefusedError) as refused:
        FILES.prompts(path)
    assert refused.value.message.startswith(f"{path}{told}".removesuffix("."))


def test_a_result_is_one_object_of_at_most_a_mebibyte(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text('{"a": 1}')
    assert FILES.result(path) == {"a": 1}
    path.write_bytes(b'{"a": "' + b"x" * (1 << 20) + b'"}')
    with pytest.raises(RefusedError, match="holds more than the 1048576 bytes of a results file"):
        FILES.result(path)
    path.write_text('{"a": 1e999}')
    with pytest.raises(RefusedError, match="holds the number 1e999, which no float holds"):
        FILES.result(path)


def test_what_is_no_plain_file_is_refused_and_holds_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place, told in (
        (tmp_path, " is not a plain file."),
        (tmp_path / "pipe", " is not a plain file."),
        (tmp_path / "none", " is not there."),
        (tmp_path / "pipe" / "x", " cannot be read (error "),
        (Path(f"{tmp_path}/\0"), " cannot be read (its name holds a null character)."),
    ):
        with pytest.raises(RefusedError) as refused:
            FILES.result(place)
        assert told in refused.value.message and refused.value.message.isprintable()


def test_a_changelog_is_text_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "C.md"
    assert FILES.text(path) is None
    path.write_text("# Änderungen\n", encoding="utf-8")
    assert FILES.text(path) == "# Änderungen\n"
    path.write_bytes(b"\xff")
    with pytest.raises(RefusedError, match="is not UTF-8 text"):
        FILES.text(path)


def test_a_file_is_replaced_whole_keeps_its_mode_and_a_link_stays_one(tmp_path: Path) -> None:
    real, link = tmp_path / "real.md", tmp_path / "link.md"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    FILES.write(link, "new")
    assert link.is_symlink() and real.read_text() == "new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    FILES.write(tmp_path / "fresh.json", "{}")
    assert sorted(os.listdir(tmp_path)) == ["fresh.json", "link.md", "real.md"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.json"
    path.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "no space")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RefusedError, match=r"cannot be written \(error 28\)\.$"):
        FILES.write(path, "new")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["r.json"]


def test_a_place_where_nothing_can_stand_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    FILES.check_place(tmp_path / "r.json")
    assert os.listdir(tmp_path) == []
    for place, told in (
        (tmp_path, " is a folder; name a file."),
        (tmp_path / "none" / "r.json", "none is no folder, so nothing can be written there."),
    ):
        with pytest.raises(RefusedError) as refused:
            FILES.check_place(place)
        assert refused.value.message.endswith(told) and refused.value.message.isprintable()


def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(RefusedError, match="may not be written by this user"):
        FILES.check_place(tmp_path / "r.json")
