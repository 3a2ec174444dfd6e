"""A package of weights: a name is converted once, and a name it does not have is refused in one sentence."""

from __future__ import annotations

from dataclasses import dataclass

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


def an_unknown_name_is_refused_in_one_sentence(subject: PackageSubject) -> None:
    """It names those there are."""
    error = refuses(lambda: subject.package.provide("no-such-model", Lines()), RefusedError)
    sentence(error)
    assert all(name in str(error) for name in subject.package.names())
    assert subject.package.ready("no-such-model") is None
