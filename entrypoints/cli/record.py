"""The record that `serve` keeps: opened before the weights are read, read behind them, and told of in one line.

Commands that measure or prove get records of their own, below a folder they name.

Knows figures of the record, never its ids.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tensorfold.application.recall import RecallReport, RecallService
from tensorfold.domain.recall.identity import RecordIdentity
from tensorfold.domain.recall.layout import CHUNK_BYTES, LEAST_CHUNKS
from tensorfold.domain.recall.policy import OfferSettings
from tensorfold.entrypoints.cli.lines import say
from tensorfold.entrypoints.cli.opening import Checked, Say
from tensorfold.entrypoints.container import Container
from tensorfold.entrypoints.settings import RunSettings

_MIB = 2**20
_WHY = {
    "read-only": "nothing is added",
    "second": "another server writes it, nothing is added",
}


def open_record(checked: Checked, settings: RunSettings, container: Container) -> RecallService | None:
    """The record that was asked for, opened and being read on its own thread. Raises RefusedError."""
    wanted, tokenizer = settings.recall, checked.tokenizer
    if wanted is None:
        return None
    identity = RecordIdentity(tokenizer.record_digest, tokenizer.vocabulary, checked.name)
    folder = wanted.directory or (settings.cache / "recall" / identity.folder_name).absolute()
    recall: RecallService = container.recall(
        folder=folder, identity=identity, budget_bytes=wanted.budget_bytes, read_only=wanted.read_only, log=say
    )
    recall.open()
    recall.start()
    return recall


def records_below(
    folder: Path, checked: Checked, container: Container, say: Say, offers: OfferSettings
) -> Callable[[str, bool], RecallService]:
    """Records of a command's own, each in its folder below `folder`: opened by name, read only where that is asked."""
    tokenizer = checked.tokenizer
    identity = RecordIdentity(tokenizer.record_digest, tokenizer.vocabulary, checked.name)

    def make(name: str, read_only: bool) -> RecallService:
        service: RecallService = container.recall(
            folder=folder / name,
            identity=identity,
            budget_bytes=LEAST_CHUNKS * CHUNK_BYTES,
            read_only=read_only,
            log=say,
            offers=offers,
        )
        service.open()
        return service

    return make


def recall_line(report: RecallReport, drafting: bool) -> str:
    """The startup line: state, size and folder."""
    why = _WHY.get(report.state) or report.reason
    words = [f"{report.state} ({why})" if why else report.state]
    words.append(f"{_mib(report.disk_bytes)} of {_mib(report.budget_bytes)}")
    if report.state != "loading":
        words.append(f"{_count(report.ids)} in {report.chunks} chunk{'' if report.chunks == 1 else 's'}")
    words.append(_shown(report.directory))
    kept = "the record is read" if report.state in _WHY else "the record is kept"
    idle = "" if drafting else f"; drafts are off, so {kept} but nothing is copied from it"
    return f"recall: {', '.join(words)}{idle}"


def _mib(size: int) -> str:
    return f"{size / _MIB:.1f} MiB"


def _count(ids: int) -> str:
    if ids >= 1_000_000:
        return f"{ids / 1_000_000:.1f} million ids"
    return f"{ids:,} id{'' if ids == 1 else 's'}"


def _shown(folder: str) -> str:
    """A folder as one line shows it: as it is where it can be, else escaped."""
    return folder if folder.isprintable() else ascii(folder)
