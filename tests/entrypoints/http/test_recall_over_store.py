"""`/v1/recall` over the real service and store: each trouble of a record gives its state, status and message."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tensorfold.application.recall import RecallService
from tensorfold.domain.recall.layout import CHUNK_IDS
from tests.adapters.filesystem.records import GIB, IDENTITY, Bench, on_disk
from tests.entrypoints.http.wire import InProcess, error_of, in_process

BUDGET = 8 << 20
WAIT_S = 30.0
FIRST, OTHER = range(43_000, 43_300), range(47_000, 47_300)
KEYS = pytest.mark.parametrize("key", ["", "alpha"], ids=["open", "keyed"])


class Kept:
    """A server in process over a record in a folder."""

    def __init__(self, bench: Bench, key: str = "", **settings: Any) -> None:
        store = bench.another(budget_bytes=BUDGET, chunk_ids=CHUNK_IDS, **settings)
        self.recall = RecallService(
            store, IDENTITY, directory="ids", budget_bytes=BUDGET, clock=bench.clock, log=bench.log.append
        )
        self.recall.open()
        self.recall.start()
        assert self.recall.wait_loaded(WAIT_S)
        self.server: InProcess = in_process(recall=self.recall, keys={"cli-1": key} if key else None)
        self._headers = {"x-api-key": key} if key else {}

    def add(self, ids: range) -> None:
        self.recall.record(list(ids), 0, self.recall.began())
        assert self.recall.settle(WAIT_S)

    def shown(self) -> dict[str, Any]:
        got = self.server.client.simulate_get("/v1/recall", headers=self._headers)
        assert got.status_code == 200
        body: dict[str, Any] = got.json
        return body

    def state(self) -> tuple[str, str | None, int]:
        body = self.shown()
        return body["state"], body["reason"], body["ids"]

    def delete(self) -> Any:
        return self.server.client.simulate_delete("/v1/recall", headers=self._headers)

    def stranger(self) -> list[int]:
        return [self.server.client.simulate_request(method, "/v1/recall").status_code for method in ("GET", "DELETE")]


@contextmanager
def kept(bench: Bench, key: str = "", **settings: Any) -> Iterator[Kept]:
    made = Kept(bench, key, **settings)
    try:
        yield made
    finally:
        made.recall.close()


def chunks(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.ids"))


@KEYS
def test_a_chunk_that_stays_is_named_and_stops_adding_until_a_delete_removes_it(tmp_path: Path, key: str) -> None:
    bench = on_disk(tmp_path / "ids")
    with kept(bench, key) as server:
        server.add(FIRST)
        (name,) = chunks(tmp_path / "ids")
        bench.fail("remove", number=errno.EPERM)
        refused = server.delete()
        assert (refused.status_code, refused.headers["x-should-retry"]) == (500, "false")
        error = error_of(refused)
        assert (error["type"], error["code"]) == ("server_error", "recall_delete_failed")
        assert name in error["message"] and "permission was denied" in error["message"]
        state, reason, ids = server.state()
        assert (state, ids) == ("delete-failed", 0)
        assert reason is not None and name in reason
        server.add(OTHER)
        assert server.state()[0::2] == ("delete-failed", 0)
        assert server.delete().status_code == 500
        bench.heal()
        emptied = server.delete()
        assert (emptied.status_code, emptied.json["state"], emptied.json["disk_bytes"]) == (200, "on", 0)
        assert chunks(tmp_path / "ids") == []
        server.add(OTHER)
        assert server.state() == ("on", None, len(OTHER))
        assert server.stranger() == ([401, 401] if key else [200, 200])


@KEYS
def test_a_low_disk_pauses_adding_and_says_so_until_there_is_room(tmp_path: Path, key: str) -> None:
    bench = on_disk(tmp_path / "ids")
    with kept(bench, key) as server:
        server.add(FIRST)
        bench.free = 4 * GIB - 1
        server.add(OTHER)
        assert server.state() == ("paused", "under 4 GiB are free on the record's disk", len(FIRST))
        assert server.shown()["dropped_ids"] == len(OTHER)
        emptied = server.delete()
        assert (emptied.status_code, emptied.json["state"], emptied.json["ids"]) == (200, "paused", 0)
        bench.free = 4 * GIB
        server.add(OTHER)
        assert server.state() == ("on", None, len(OTHER))


@KEYS
def test_a_disk_that_takes_no_write_pauses_adding_and_costs_no_id_that_is_held(tmp_path: Path, key: str) -> None:
    bench = on_disk(tmp_path / "ids")
    with kept(bench, key) as server:
        server.add(FIRST)
        bench.fail("append", number=errno.ENOSPC)
        server.add(OTHER)
        state, reason, ids = server.state()
        assert (state, ids) == ("paused", len(FIRST))
        assert reason is not None and "the disk is full" in reason
        bench.heal()
        server.add(OTHER)
        assert server.state() == ("on", None, len(FIRST) + len(OTHER))


@KEYS
@pytest.mark.parametrize("state", ["second", "read-only"])
def test_a_server_that_only_reads_shows_the_record_and_refuses_to_empty_it(
    tmp_path: Path, key: str, state: str
) -> None:
    with kept(on_disk(tmp_path / "ids")) as writer:
        writer.add(FIRST)
        with kept(on_disk(tmp_path / "ids"), key, read_only=state == "read-only") as reader:
            assert reader.state()[0::2] == (state, len(FIRST))
            reader.add(OTHER)
            refused = reader.delete()
            assert (refused.status_code, refused.headers["x-should-retry"]) == (409, "false")
            error = error_of(refused)
            assert (error["type"], error["code"]) == ("invalid_request_error", "recall_read_only")
            assert ("--recall-read-only" if state == "read-only" else "Another server") in error["message"]
            assert reader.state()[2] == writer.state()[2] == len(FIRST)
        assert writer.delete().status_code == 200


def test_a_folder_that_is_not_there_is_an_empty_record_to_a_reader_and_is_not_made(tmp_path: Path) -> None:
    with kept(on_disk(tmp_path / "ids"), read_only=True) as reader:
        assert reader.state()[0::2] == ("read-only", 0)
        assert reader.delete().status_code == 409
    assert list(tmp_path.iterdir()) == []


def test_a_delete_of_an_empty_record_and_of_a_vanished_folder_is_fine(tmp_path: Path) -> None:
    with kept(on_disk(tmp_path / "ids")) as server:
        assert server.delete().status_code == 200
        server.add(FIRST)
        (tmp_path / "ids").rename(tmp_path / "moved")
        server.add(OTHER)
        assert server.state()[0::2] == ("paused", len(FIRST))
        emptied = server.delete()
        assert (emptied.status_code, emptied.json["ids"]) == (200, 0)
    assert not (tmp_path / "ids").exists()


def test_no_answer_and_no_line_of_the_log_holds_an_id(tmp_path: Path) -> None:
    bench = on_disk(tmp_path / "ids")
    shown = []
    with kept(bench) as server:
        server.add(FIRST)
        bench.fail("append", "remove", "sync", "truncate", number=errno.EIO)
        server.add(OTHER)
        shown += [str(server.shown()), server.delete().text]
        bench.heal()
        shown += [server.delete().text, str(server.shown())]
    shown += bench.log
    assert len(bench.log) >= 2
    assert [number for number in re.findall(r"\d+", " ".join(shown)) if int(number) in (*FIRST, *OTHER)] == []
