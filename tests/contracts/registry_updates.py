"""Every key file, file of requests, memory of releases and installation that a contract suite runs on."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from tensorfold.application.ports.installation import Installed
from tests.contracts.candidates import Candidate
from tests.contracts.world.key_checks import KeySubject
from tests.contracts.world.request_checks import RequestSubject
from tests.contracts.world.update_checks import UpdateSubject
from tests.fakes.installation import FakeInstallation, FakeUpdateMemory
from tests.fakes.keys import FakeKeyFile
from tests.fakes.request_file import FakeRequestFile

PLAIN = Installed("1.0.0", "python", True, "https://github.com/owner/name")


def _fake_key_file(folder: Path) -> KeySubject:
    file = FakeKeyFile()
    return KeySubject(file, file.write)


def _folder_key_file(folder: Path) -> KeySubject:
    from tensorfold.adapters.filesystem.key_file import FolderKeyFile

    path = folder / "keys"

    def write(data: bytes | None) -> None:
        if data is None:
            path.unlink()
            return
        fresh = folder / "fresh"
        fresh.touch(0o600)
        fresh.write_bytes(data)
        os.replace(fresh, path)

    return KeySubject(FolderKeyFile(path), write)


def _fake_request_file(folder: Path) -> RequestSubject:
    file = FakeRequestFile()

    def hinder(on: bool) -> None:
        file.refusal = "is on a full disk" if on else None

    return RequestSubject(file, file.data, hinder)


def _plain_request_file(folder: Path) -> RequestSubject:
    from tensorfold.adapters.filesystem.request_file import PlainRequestFile

    path = folder / "requests.jsonl"
    return RequestSubject(
        PlainRequestFile(path, "TENSORFOLD_REQUEST_LOG"),
        path.read_bytes,
        lambda on: path.chmod(0o644 if on else 0o600),
    )


def _folder_memory(folder: Path) -> UpdateSubject:
    from tensorfold.adapters.releases.memory import FolderUpdateMemory

    return UpdateSubject(memory=FolderUpdateMemory(folder / "cache"))


def _this_installation(folder: Path) -> UpdateSubject:
    from tensorfold.adapters.releases.installation import PackageInstallation

    return UpdateSubject(installation=PackageInstallation("1.0.0"), folder=folder)


def _fake_installation(folder: Path, installed: Installed) -> UpdateSubject:
    return UpdateSubject(installation=FakeInstallation(installed, becomes="9.9.9"), folder=folder)


KEY_FILES: tuple[Candidate[KeySubject], ...] = (
    Candidate("fake", _fake_key_file),
    Candidate("folder", _folder_key_file),
)
REQUEST_FILES: tuple[Candidate[RequestSubject], ...] = (
    Candidate("fake", _fake_request_file),
    Candidate("plain", _plain_request_file),
)
UPDATES: tuple[Candidate[UpdateSubject], ...] = (
    Candidate("fake_memory", lambda folder: UpdateSubject(memory=FakeUpdateMemory())),
    Candidate("folder_memory", _folder_memory),
    Candidate("fake_plain_install", lambda folder: _fake_installation(folder, PLAIN)),
    Candidate(
        "fake_editable_install",
        lambda folder: _fake_installation(folder, replace(PLAIN, editable=folder, clone=folder)),
    ),
    Candidate("this_install", _this_installation),
)
