"""The record that `serve` keeps: what its startup line says, and when it is opened."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.recall import RecallReport
from tensorfold.domain.recall.identity import RecordIdentity
from tensorfold.entrypoints.cli.lines import say
from tensorfold.entrypoints.cli.parser import parse
from tensorfold.entrypoints.cli.record import open_record, recall_line
from tensorfold.entrypoints.settings import run_settings
from tests.entrypoints.http.fake_recall import EMPTY, REPORT

SIZE = "4.7 MiB of 64.0 MiB"


def said(drafting: bool = True, **changes: Any) -> str:
    report: RecallReport = replace(REPORT, **changes)
    return recall_line(report, drafting)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, f"recall: on, {SIZE}, 1.2 million ids in 2 chunks, folder/of/ids"),
        ({"ids": 12_900_000, "chunks": 13}, f"recall: on, {SIZE}, 12.9 million ids in 13 chunks, folder/of/ids"),
        ({"ids": 999_999, "chunks": 1}, f"recall: on, {SIZE}, 999,999 ids in 1 chunk, folder/of/ids"),
        ({"ids": 1, "chunks": 1}, f"recall: on, {SIZE}, 1 id in 1 chunk, folder/of/ids"),
        ({"state": "loading", "ids": 7}, f"recall: loading, {SIZE}, folder/of/ids"),
        (
            {"state": "read-only", "reason": "the server was started with --recall-read-only"},
            f"recall: read-only (nothing is added), {SIZE}, 1.2 million ids in 2 chunks, folder/of/ids",
        ),
        (
            {"state": "second", "reason": "another server writes this record"},
            f"recall: second (another server writes it, nothing is added), {SIZE}, 1.2 million ids in 2 chunks, "
            "folder/of/ids",
        ),
        (
            {"state": "paused", "reason": "1.0 GiB are free, 4 are needed"},
            f"recall: paused (1.0 GiB are free, 4 are needed), {SIZE}, 1.2 million ids in 2 chunks, folder/of/ids",
        ),
        (
            {"directory": "a\nb\x1b[2J/ids"},
            f"recall: on, {SIZE}, 1.2 million ids in 2 chunks, 'a\\nb\\x1b[2J/ids'",
        ),
        ({"directory": "/Büro/ids"}, f"recall: on, {SIZE}, 1.2 million ids in 2 chunks, /Büro/ids"),
    ],
)
def test_the_line_has_state_size_and_folder(changes: dict[str, Any], line: str) -> None:
    assert said(**changes) == line


def test_an_empty_record_is_said_as_such() -> None:
    assert recall_line(EMPTY, True) == "recall: on, 0.0 MiB of 64.0 MiB, 0 ids in 0 chunks, folder/of/ids"


@pytest.mark.parametrize(
    ("state", "kept"),
    [("on", "kept"), ("loading", "kept"), ("paused", "kept"), ("second", "read"), ("read-only", "read")],
)
def test_where_nothing_is_drafted_the_line_says_that_nothing_is_copied(state: str, kept: str) -> None:
    plain = said(state=state)
    assert said(drafting=False, state=state) == (
        f"{plain}; drafts are off, so the record is {kept} but nothing is copied from it"
    )


class Opened:
    """A record that remembers what was done with it, and refuses when told to."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.calls: list[str] = []
        self._refusal = refusal

    def open(self) -> None:
        self.calls.append("open")
        if self._refusal is not None:
            raise self._refusal

    def start(self) -> None:
        self.calls.append("start")


class Tokens:
    """As much of a tokenizer as names a record."""

    record_digest, vocabulary = "5e" * 32, 267


class Wired:
    """A container that holds one record, and a model whose files were checked."""

    name, tokenizer = "tiny", Tokens()

    def __init__(self, record: Opened) -> None:
        self.record = record
        self.asked: list[dict[str, Any]] = []

    def recall(self, **asked: Any) -> Opened:
        self.asked.append(asked)
        return self.record


def opened(wired: Any, *flags: str) -> Any:
    return open_record(wired, run_settings(parse(["serve", "demo", *flags]), {"XDG_CACHE_HOME": "cache"}), wired)


def test_without_a_flag_no_record_is_made() -> None:
    wired = Wired(Opened())
    assert opened(wired) is None
    assert wired.asked == []


def test_a_record_is_opened_then_read_in_a_folder_named_by_the_tokenizer() -> None:
    wired = Wired(Opened())
    assert opened(wired, "--recall") is wired.record
    assert wired.record.calls == ["open", "start"]
    (asked,) = wired.asked
    assert asked.pop("log") is say
    assert asked == {
        "folder": Path.cwd() / "cache" / "tensorfold" / "recall" / "5e5e5e5e5e5e5e5e-267",
        "identity": RecordIdentity("5e" * 32, 267, "tiny"),
        "budget_bytes": 64 << 20,
        "read_only": False,
    }


def test_a_folder_of_ones_own_is_the_record_itself() -> None:
    wired = Wired(Opened())
    opened(wired, "--recall-dir", "ids", "--recall-read-only", "--recall-gib", "1/128")
    (asked,) = wired.asked
    assert (asked["folder"], asked["budget_bytes"], asked["read_only"]) == (Path.cwd() / "ids", 8 << 20, True)


def test_a_record_that_refuses_is_not_read() -> None:
    wired = Wired(Opened(RefusedError("Another tokenizer wrote this record.")))
    with pytest.raises(RefusedError, match="Another tokenizer"):
        opened(wired, "--recall")
    assert wired.record.calls == ["open"]
