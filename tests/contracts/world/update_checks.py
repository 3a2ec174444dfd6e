"""What runs remember about releases, and a copy of the product that runs commands."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from tensorfold.application.ports.installation import Installation, UpdateMemory


@dataclass(frozen=True, slots=True)
class UpdateSubject:
    """A memory or an installation."""

    memory: UpdateMemory | None = None
    installation: Installation | None = None
    folder: Path = Path()


def nothing_is_remembered_at_first_and_then_what_was_kept_last(subject: UpdateSubject) -> None:
    """A check can be forgotten; the version that was seen stays."""
    memory = subject.memory
    if memory is None:
        return
    assert (memory.checked(), memory.seen()) == (None, None)
    for number in (1, 2):
        memory.remember_check(f"v1.0.{number}", 1000.5 + number)
        assert memory.remember_seen(f"1.0.{number}") is True
    assert (memory.checked(), memory.seen()) == (("v1.0.2", 1002.5), "1.0.2")
    memory.forget_check()
    memory.forget_check()
    assert (memory.checked(), memory.seen()) == (None, "1.0.2")


def facts_stay_the_same_and_name_an_interpreter(subject: UpdateSubject) -> None:
    """A clone belongs to an editable install alone."""
    if subject.installation is None:
        return
    facts = subject.installation.facts()
    assert facts == subject.installation.facts()
    assert facts.python and facts.version
    assert facts.clone is None or facts.editable is not None
    assert facts.editable is not None or subject.installation.changelog() is None


def a_command_has_a_code_and_what_it_printed(subject: UpdateSubject) -> None:
    """Output comes with reading alone."""
    if subject.installation is None:
        return
    command = [sys.executable, "-c", "print('9.9.9')"]
    assert subject.installation.read(command, subject.folder) == (0, "9.9.9\n")
    assert subject.installation.run([sys.executable, "-c", "pass"], subject.folder) == 0
