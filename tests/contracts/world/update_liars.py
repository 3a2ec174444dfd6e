"""Key files, files of requests, memories and installations that break one promise each, and checks that notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.contracts.lies import lying
from tests.contracts.registry_updates import PLAIN
from tests.contracts.world import key_checks, request_checks, update_checks
from tests.contracts.world.key_checks import KeySubject
from tests.contracts.world.request_checks import RequestSubject
from tests.contracts.world.update_checks import UpdateSubject
from tests.fakes.installation import FakeInstallation, FakeUpdateMemory
from tests.fakes.keys import FakeKeyFile
from tests.fakes.request_file import FakeRequestFile

Lie = tuple[Callable[[Any], None], Callable[[Path], Any]]


def _key_file(**lies: Callable[..., Any]) -> Callable[[Path], KeySubject]:
    def build(folder: Path) -> KeySubject:
        file = lying(FakeKeyFile, **lies)()
        return KeySubject(file, file.write)

    return build


def _request_file(**lies: Callable[..., Any]) -> Callable[[Path], RequestSubject]:
    def build(folder: Path) -> RequestSubject:
        file = lying(FakeRequestFile, **lies)()

        def hinder(on: bool) -> None:
            file.refusal = "is on a full disk" if on else None

        return RequestSubject(file, file.data, hinder)

    return build


def _memory(**lies: Callable[..., Any]) -> Callable[[Path], UpdateSubject]:
    return lambda folder: UpdateSubject(memory=lying(FakeUpdateMemory, **lies)())


def _installation(**lies: Callable[..., Any]) -> Callable[[Path], UpdateSubject]:
    return lambda folder: UpdateSubject(installation=lying(FakeInstallation, **lies)(PLAIN, becomes="9.9.9"))


KEY_LIES: tuple[Lie, ...] = (
    (
        key_checks.a_file_reads_as_what_was_written_last,
        _key_file(read=lambda self: (self.data or b"").strip()),
    ),
    (
        key_checks.a_stamp_moves_with_every_change_and_never_without_one,
        _key_file(stamp=lambda self: None if self.data is None else (len(self.data),)),
    ),
    (key_checks.a_file_that_is_gone_is_refused_by_name, _key_file(read=lambda self: self.data or b"")),
)
REQUEST_LIES: tuple[Lie, ...] = (
    (
        request_checks.lines_stand_in_the_order_they_came,
        _request_file(append=lambda self, line: self.lines.append(line[:65536])),
    ),
    (
        request_checks.an_attempt_leaves_no_mark,
        _request_file(append=lambda self, line: self.lines.append(line or b" ")),
    ),
    (
        request_checks.what_cannot_be_written_is_refused_by_name_and_later_lines_are_taken,
        _request_file(append=lambda self, line: self.lines.append(line) if self.refusal is None else None),
    ),
)
UPDATE_LIES: tuple[Lie, ...] = (
    (
        update_checks.nothing_is_remembered_at_first_and_then_what_was_kept_last,
        _memory(forget_check=lambda self: None),
    ),
    (
        update_checks.facts_stay_the_same_and_name_an_interpreter,
        _installation(facts=lambda self: replace(self.installed, clone=Path("clone"))),
    ),
    (
        update_checks.a_command_has_a_code_and_what_it_printed,
        _installation(read=lambda self, command, folder=None: (self.run(command, folder), "")),
    ),
)
