"""Releases and reports: a version that can be compared or nothing, and one file that names every figure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tensorfold.application.ports.services import ReleaseFeed, ReportWriter

FIGURES = {"tokens_per_second": 81.25, "machine": "two cores", "differences": 0}


@dataclass(frozen=True, slots=True)
class ServiceSubject:
    """A feed or a writer, and a folder to write in."""

    folder: Path
    feed: ReleaseFeed | None = None
    writer: ReportWriter | None = None


def a_release_has_a_comparable_tag(subject: ServiceSubject) -> None:
    """Or cannot be learned, which is no error."""
    if subject.feed is None:
        return
    release = subject.feed.latest(0.5)
    assert release is None or (re.fullmatch(r"v\d+\.\d+\.\d+", release.tag) and release.notes)


def a_release_brings_its_changelog_and_an_unknown_tag_none(subject: ServiceSubject) -> None:
    """Text, or nothing where it cannot be learned; a tag that was never announced has no text."""
    if subject.feed is None:
        return
    release = subject.feed.latest(0.5)
    if release is not None:
        changes = subject.feed.changelog(release.tag, 0.5)
        assert changes is None or release.tag[1:] in changes
    assert subject.feed.changelog("v999999.0.0", 0.5) is None


def a_report_is_one_file_that_names_every_figure(subject: ServiceSubject) -> None:
    """With its title; writing again replaces it."""
    if subject.writer is None:
        return
    path = subject.folder / "report.svg"
    for title in ("First run", "Second run"):
        subject.writer.write(path, title, FIGURES)
        text = path.read_text(encoding="utf-8")
        assert title in text and all(name in text for name in FIGURES)
    assert "First run" not in path.read_text(encoding="utf-8")
    assert [p.name for p in subject.folder.iterdir()] == ["report.svg"]
