"""Files of requests: whole lines in the order they came, nothing lost by an attempt, and a refusal of ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.request_file import RequestFile
from tests.contracts.candidates import refuses, sentence


@dataclass(frozen=True, slots=True)
class RequestSubject:
    """A file, what it holds, and the hand that makes it impossible to write, or possible again."""

    file: RequestFile
    data: Callable[[], bytes]
    hinder: Callable[[bool], None]


def lines_stand_in_the_order_they_came(subject: RequestSubject) -> None:
    """Of any bytes and any length."""
    lines = [b"{}\n", b'{"a":"\xc3\xa9"}\n', b"x" * 300_000 + b"\n", b"{}\n"]
    for line in lines:
        subject.file.append(line)
    assert subject.data() == b"".join(lines)


def an_attempt_leaves_no_mark(subject: RequestSubject) -> None:
    """Neither at first nor between lines."""
    subject.file.append(b"")
    subject.file.append(b"one\n")
    subject.file.append(b"")
    subject.file.append(b"two\n")
    assert subject.data() == b"one\ntwo\n"


def what_cannot_be_written_is_refused_by_name_and_later_lines_are_taken(subject: RequestSubject) -> None:
    """In one sentence; an attempt is refused as a line is."""
    subject.file.append(b"one\n")
    subject.hinder(True)
    for line in (b"", b"lost\n"):
        refusal = refuses(lambda line=line: subject.file.append(line), RefusedError)  # type: ignore[misc]
        sentence(refusal)
        assert subject.file.name in str(getattr(refusal, "message", ""))
    subject.hinder(False)
    subject.file.append(b"two\n")
    assert subject.data() == b"one\ntwo\n"
