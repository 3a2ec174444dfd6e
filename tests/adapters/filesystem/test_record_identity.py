"""Whose record a folder holds: written once by the writer, compared in every mode, never overwritten."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tensorfold.adapters.filesystem.record_store import RecordStore
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.recall.identity import RecordIdentity
from tests.adapters.filesystem.records import IDENTITY, VOCABULARY, Bench, chunk, in_memory, pieces, record_of, run
from tests.contracts.candidates import sentence
from tests.fakes.record_files import FaultyRecordFiles, MemoryFolder, MemoryRecordFiles

OTHERS = (replace(IDENTITY, digest="cd" * 32), replace(IDENTITY, vocabulary=VOCABULARY + 1))


def _as_writer(bench: Bench, identity: RecordIdentity) -> RecordStore:
    return bench.another(identity)


def _as_reader(bench: Bench, identity: RecordIdentity) -> RecordStore:
    return bench.another(identity, read_only=True)


def _as_second(bench: Bench, identity: RecordIdentity) -> RecordStore:
    folder = bench.files.files.folder  # type: ignore[attr-defined]
    folder.holder = "another server"
    return Bench(FaultyRecordFiles(MemoryRecordFiles(folder))).another(identity)


MODES = pytest.mark.parametrize("mode", [_as_writer, _as_reader, _as_second])
Mode = Callable[[Bench, RecordIdentity], RecordStore]


def _held(bench: Bench) -> dict[str, bytes]:
    held: dict[str, bytes] = bench.files.files.folder.contents  # type: ignore[attr-defined]
    return held


def _refused(store: RecordStore) -> str:
    with pytest.raises(RefusedError) as refusal:
        store.open()
    sentence(refusal.value)
    return refusal.value.message


def test_the_writer_names_the_tokenizer_before_it_makes_a_chunk() -> None:
    bench = in_memory()
    bench.store.open()
    bench.store.append(run(20))
    calls = bench.files.files.calls  # type: ignore[attr-defined]
    assert calls[:4] == [("create_folder", ""), ("replace", "identity"), ("sync_folder", ""), calls[3]]
    assert calls[3][0] == "create"
    assert _held(bench)["identity"] == IDENTITY.text().encode()


def test_the_identity_is_written_once() -> None:
    bench = in_memory()
    bench.store.open()
    bench.store.close()
    later = bench.another(replace(IDENTITY, model="Another model of this tokenizer"))
    assert later.open().state == "on"
    assert _held(bench)["identity"] == IDENTITY.text().encode()


@MODES
@pytest.mark.parametrize("other", OTHERS)
def test_another_tokenizer_is_refused_in_every_mode(mode: Mode, other: RecordIdentity) -> None:
    bench = in_memory(record_of({1: chunk(run(20))}))
    before = dict(_held(bench))
    message = _refused(mode(bench, other))
    assert all(part in message for part in ("Qwen3.8-27B", "sha256:" + "ab" * 8, f"{VOCABULARY} ids", "the folder"))
    assert f"{other.vocabulary} ids" in message and f"sha256:{other.digest[:16]}" in message
    assert "--recall-dir" in message and _held(bench) == before


@MODES
def test_another_model_of_the_same_tokenizer_is_welcome(mode: Mode) -> None:
    bench = in_memory(record_of({1: chunk(run(20))}))
    store = mode(bench, replace(IDENTITY, model="Another model of this tokenizer"))
    store.open()
    assert pieces(store) == [run(20).tolist()]


@MODES
def test_chunks_of_nobody_are_refused(mode: Mode) -> None:
    folder = record_of({1: chunk(run(20)), 2: b""})
    assert folder.contents is not None
    del folder.contents["identity"]
    bench = in_memory(folder)
    before = dict(folder.contents)
    assert "2 chunk files but no identity" in _refused(mode(bench, IDENTITY))
    assert folder.contents == before


@MODES
@pytest.mark.parametrize("text", [b"", b"\xff" * 40, b"a" * 5000, IDENTITY.text().encode() + b"\0", b"tokenizer\n"])
def test_a_malformed_identity_is_refused_and_left_alone(mode: Mode, text: bytes) -> None:
    bench = in_memory(record_of({}, identity=text))
    assert "malformed" in _refused(mode(bench, IDENTITY))
    assert _held(bench)["identity"] == text


@MODES
@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_an_identity_that_cannot_be_read_is_refused(mode: Mode, number: int) -> None:
    folder = record_of({})
    store = mode(in_memory(folder), IDENTITY)
    store._files.fails = lambda call, name: number if call == "read" else None  # type: ignore[attr-defined]
    assert "cannot be read" in _refused(store)


def test_a_refused_writer_gives_the_lock_back() -> None:
    folder = record_of({})
    bench = in_memory(folder)
    _refused(bench.another(OTHERS[0]))
    assert folder.holder is None and bench.store.open().state == "on"


@pytest.mark.parametrize("folder", [MemoryFolder(), MemoryFolder({}), MemoryFolder({"lock": b"", "note.txt": b"x"})])
def test_without_chunks_and_identity_a_reader_finds_an_empty_record(folder: MemoryFolder) -> None:
    bench = in_memory(folder)
    before = None if folder.contents is None else dict(folder.contents)
    store = bench.another(read_only=True)
    state = store.open()
    assert (state.state, state.bytes_on_disk, pieces(store)) == ("read-only", 0, [])
    assert folder.contents == before and bench.files.files.calls == []  # type: ignore[attr-defined]


def test_a_second_server_may_come_before_the_first_wrote_the_identity() -> None:
    folder: Any = MemoryFolder({"lock": b""}, holder="another server")
    store = in_memory(folder).store
    assert store.open().state == "second" and folder.contents == {"lock": b""}
