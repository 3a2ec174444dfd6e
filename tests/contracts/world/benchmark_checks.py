"""A benchmark's files: read as they were written, refused in one sentence, and public prompts that never change."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tensorfold.application.benchmark_prompts import read_prompts
from tensorfold.application.ports.benchmarks import BenchmarkFiles
from tensorfold.application.ports.checkpoints import RefusedError
from tests.contracts.candidates import refuses, sentence


@dataclass(frozen=True, slots=True)
class FilesSubject:
    """Files, and a folder they can be written in."""

    files: BenchmarkFiles
    folder: Path


def public_prompts_can_be_asked_and_never_change(subject: FilesSubject) -> None:
    """Whatever else there is."""
    first = read_prompts(subject.files.public_prompts(), "public", "public")
    assert read_prompts(subject.files.public_prompts(), "public", "public") == first


def what_was_written_last_is_read(subject: FilesSubject) -> None:
    """As text, as a result, and as prompts with their places."""
    path = subject.folder / "file"
    assert subject.files.text(path) is None
    for text in ('{"a": "\u00e9"}\n', '\n{"b": 2}\n'):
        subject.files.write(path, text)
        assert subject.files.text(path) == text
    assert subject.files.result(path) == {"b": 2}
    ((place, stated),) = subject.files.prompts(path)
    assert stated == {"b": 2} and place.endswith("line 2")


def a_file_that_is_not_there_is_refused_by_name(subject: FilesSubject) -> None:
    """In one sentence."""
    path = subject.folder / "nothing"
    for read in (subject.files.result, subject.files.prompts):
        refusal = refuses(lambda read=read: read(path), RefusedError)  # type: ignore[misc]
        sentence(refusal)
        assert str(path) in str(getattr(refusal, "message", ""))


def a_place_is_refused_before_anything_is_written_there(subject: FilesSubject) -> None:
    """And one that is not refused can be written; looking writes nothing."""
    path = subject.folder / "file"
    subject.files.check_place(path)
    assert subject.files.text(path) is None
    subject.files.write(path, "text")
    for act in (subject.files.check_place, lambda place: subject.files.write(place, "text")):
        sentence(refuses(lambda act=act: act(subject.folder / "none" / "file"), RefusedError))  # type: ignore[misc]
