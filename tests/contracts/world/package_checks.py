"""A package of weights: a name is converted once, and a name it does not have is refused in one sentence."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorfold.application.ports.checkpoints import RefusedError, WeightPackage
from tests.contracts.candidates import Lines, refuses, sentence


@dataclass(frozen=True, slots=True)
class PackageSubject:
    """A package of weights, nothing of which is converted yet."""

    package: WeightPackage


def a_name_is_provided_once(subject: PackageSubject) -> None:
    """The second time it is there already and nothing is reported; each name has a folder of its own."""
    folders = []
    for name in subject.package.names():
        lines = Lines()
        assert subject.package.ready(name) is None
        folder = subject.package.provide(name, lines)
        assert subject.package.ready(name) == folder
        assert lines and (folder / "config.json").is_file()
        lines.clear()
        assert subject.package.provide(name, lines) == folder and not lines
        folders.append(folder)
    assert folders and len(set(folders)) == len(folders)


def what_is_told_of_a_name_is_what_its_files_say(subject: PackageSubject) -> None:
    """Before it is fetched and after."""
    for name in subject.package.names():
        before = subject.package.describe(name)
        folder = subject.package.provide(name, Lines())
        after = subject.package.describe(name)
        files = tuple(_object(folder / file) for file in ("config.json", "generation_config.json"))
        assert after is not None and after == files and before in (None, after)
    assert subject.package.describe("no-such-model") is None


def an_unknown_name_is_refused_in_one_sentence(subject: PackageSubject) -> None:
    """It names those there are."""
    error = refuses(lambda: subject.package.provide("no-such-model", Lines()), RefusedError)
    sentence(error)
    assert all(name in str(error) for name in subject.package.names())
    assert subject.package.ready("no-such-model") is None


def _object(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
