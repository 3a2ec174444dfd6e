"""The record's modes of the proof: they pass on a sound engine, name a fault, and fail when nothing was copied."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tensorfold.application.ports.target_model import TargetModel
from tensorfold.application.proof import LEAST_COPIED, Copies, Report, Row
from tensorfold.application.proving import Prover
from tensorfold.application.proving_record import RecordUnderProof
from tensorfold.application.recall import RecallService
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.drafting.copies import CopySourceFactory
from tensorfold.domain.recall.identity import RecordIdentity
from tensorfold.domain.recall.layout import CHUNK_BYTES, CHUNK_IDS, LEAST_CHUNKS
from tensorfold.domain.recall.policy import OfferSettings
from tests.application.house import MachineClock, law, serving
from tests.fakes.hash_faults import DriftingModel
from tests.fakes.hash_model import HashModel
from tests.fakes.stores import FakeRecallStore, FakeRecordFolder
from tests.fakes.tokenizer import FakeTokenizer

LAW = law(51, vocabulary=512)
TOKENIZER = FakeTokenizer(512)
FORCED = EngineSettings(parallel=4, force_windows=True)
MODES = ("record on", "record read-only", "record poisoned", "record deleted mid-stream")


@contextmanager
def records(*, eager: bool = True) -> Iterator[RecordUnderProof]:
    """Records over folders in memory."""
    folders: dict[str, FakeRecordFolder] = {}

    def make(name: str, read_only: bool) -> RecallService:
        folder = folders.setdefault(name, FakeRecordFolder())
        service = RecallService(
            FakeRecallStore(folder, chunk_ids=CHUNK_IDS, read_only=read_only),
            RecordIdentity("cd" * 32, 512, "fake"),
            directory=name,
            budget_bytes=LEAST_CHUNKS * CHUNK_BYTES,
            clock=MachineClock(),
            log=lambda line: None,
            offers=OfferSettings(eager=eager),
        )
        service.open()
        return service

    record = RecordUnderProof(make)
    yield record
    record.rest()


def prove(model: TargetModel, record: RecordUnderProof, settings: EngineSettings = FORCED) -> Report:
    sources = (CopySourceFactory(), record)
    with serving(model, settings=settings, sources=sources, recorder=record) as scheduler:
        return Prover(scheduler, TOKENIZER, record=record).run()


@pytest.mark.slow
def test_a_sound_engine_is_proved_in_all_four_modes_of_the_record() -> None:
    with records() as record:
        report = prove(HashModel(LAW, prefill_slice=64, tree_width=1), record)
    assert report.passed, report.reasons
    rows = {row.mode: row for row in report.rows if row.copies is not None}
    assert tuple(rows) == MODES
    for mode, row in rows.items():
        assert row.copies is not None and row.differences == 0 and row.compared > 200
        assert row.copies.missed >= LEAST_COPIED or not row.copies.misses
        assert mode == "record poisoned" or row.copies.landed >= LEAST_COPIED


@pytest.mark.slow
def test_trees_do_not_keep_the_records_modes_from_being_proved() -> None:
    with records() as record:
        report = prove(HashModel(LAW, prefill_slice=64), record)
    assert report.passed, report.reasons


@pytest.mark.slow
def test_a_fault_in_wide_rows_is_found_in_copies_too() -> None:
    with records() as record:
        report = prove(DriftingModel(3, LAW, prefill_slice=64, chains=True, trees=False), record)
    faulty = [row.mode for row in report.rows if row.first is not None]
    assert "record on" in faulty and not report.passed


@pytest.mark.slow
def test_a_record_that_offers_nothing_proves_nothing() -> None:
    with records() as record:
        settings = EngineSettings(parallel=4, drafts=False)
        report = prove(HashModel(LAW, prefill_slice=64), record, settings)
    assert not report.passed
    assert any(reason.startswith("record on: 0 copied tokens landed") for reason in report.reasons)


@pytest.mark.slow
def test_windows_of_one_row_leave_the_record_unproved() -> None:
    with records() as record:
        report = prove(HashModel(LAW, prefill_slice=64, chain_width=1, tree_width=1, shares_rounds=False), record)
    assert not any(row.copies is not None for row in report.rows) and not report.passed


@pytest.mark.parametrize(
    ("landed", "missed", "lands", "lacks"), [(99, 99, True, 2), (99, 100, False, 0), (100, 99, True, 1)]
)
def test_copies_say_what_they_lack(landed: int, missed: int, lands: bool, lacks: int) -> None:
    row = Row("record on", counts_drafts=False, copies=Copies(landed, missed, lands))
    assert len(row.lacks()) == lacks
