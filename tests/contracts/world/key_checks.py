"""Key files: what they hold, a stamp that moves whenever they change, and a refusal of ours where they are not."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.keys import KeyFile


@dataclass(frozen=True, slots=True)
class KeySubject:
    """A key file and the hand that changes it; None removes it."""

    file: KeyFile
    write: Callable[[bytes | None], None]


def a_file_reads_as_what_was_written_last(subject: KeySubject) -> None:
    """Byte by byte, empty ones too."""
    for data in (b"one\n", b"", b"two\nthree\n"):
        subject.write(data)
        assert subject.file.read() == data


def a_stamp_moves_with_every_change_and_never_without_one(subject: KeySubject) -> None:
    """Also with one that leaves the size, and when the file goes and comes back."""
    stamps = []
    for data in (b"one\n", b"two\n", b"two\n\n", None, b"one\n"):
        subject.write(data)
        stamps.append(subject.file.stamp())
        subject.file.stamp()
        assert subject.file.stamp() == stamps[-1]
    assert stamps[3] is None
    assert all(one != other for one, other in itertools.pairwise(stamps))


def a_file_that_is_gone_is_refused_by_name(subject: KeySubject) -> None:
    """In one sentence that names it."""
    subject.write(b"one\n")
    subject.write(None)
    message = ""
    try:
        subject.file.read()
    except RefusedError as refusal:
        message = refusal.message
    assert subject.file.name in message and message.endswith(".")
