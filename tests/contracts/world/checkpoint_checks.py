"""A checkpoint reader: facts of a folder without its weights. All input is hostile."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tensorfold.application.ports.checkpoints import CheckpointReader, RefusedError
from tests.contracts.candidates import refuses, sentence


@dataclass(frozen=True, slots=True)
class ReaderSubject:
    """A reader with a good folder, another one with other weights, and folders that must be refused."""

    reader: CheckpointReader
    good: Path
    other: Path
    bad: tuple[Path, ...]


def facts_are_whole_and_say_the_same_twice(subject: ReaderSubject) -> None:
    """The parsed configuration, headers with names and sizes of their own, the bytes they add up to."""
    facts = subject.reader.facts(subject.good)
    assert facts == subject.reader.facts(subject.good)
    assert facts.folder == subject.good and facts.config == subject.reader.config(subject.good)
    assert facts.tensors and all(header.name == name for name, header in facts.tensors.items())
    assert all(0 <= header.begin <= header.end and header.nbytes >= 0 for header in facts.tensors.values())
    assert facts.weight_bytes == sum(header.nbytes for header in facts.tensors.values())
    assert facts.generation == subject.reader.generation(subject.good)


def the_files_of_the_weights_are_named(subject: ReaderSubject) -> None:
    """Each once, in name order; together they are the files that the tensors lie in."""
    for folder in (subject.good, subject.other):
        names = list(subject.reader.weight_files(folder))
        assert names == sorted({header.file for header in subject.reader.facts(folder).tensors.values()})


def a_digest_tells_weights_apart(subject: ReaderSubject) -> None:
    """And names the same ones equally."""
    good, other = subject.reader.facts(subject.good).digest, subject.reader.facts(subject.other).digest
    assert good and other and good != other == subject.reader.facts(subject.other).digest


def bad_folders_are_refused_in_one_sentence(subject: ReaderSubject) -> None:
    """Every one of them, and a good folder is still read."""
    assert subject.bad
    for folder in subject.bad:
        sentence(refuses(partial(subject.reader.facts, folder), RefusedError))
    assert subject.reader.facts(subject.good).tensors
