"""The whole command with a record: replies repeated after a restart, servers on one folder, and what is never shown."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tensorfold.domain.recall.identity import RecordIdentity
from tests.end_to_end import commands
from tests.end_to_end.clients import Client, post_bytes
from tests.end_to_end.commands import as_process
from tests.end_to_end.served import Said, Served, client_of, served, streamed, whole
from tests.synthetic.tokenizer_files import SPECIALS

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
QUESTION = "Recite the quartz xylophone ballad of Zanzibar, all of it."
SAMPLED: dict[str, Any] = {"max_tokens": 200, "temperature": 1.1, "seed": 5, "ignore_eos": True}
"""A reply without repetitions of its own: whatever it copies, it copies from the record."""
KEY = "k1"
THEIRS = RecordIdentity("5e" * 32, 32_000, "Somebody-7B").text()
"""An identity of another tokenizer."""


@pytest.fixture
def room(home: Path, tmp_path: Path) -> Path:
    """A folder of this test's own; the model and the cache in it are everybody's."""
    for name in ("tiny", "cache"):
        (home / name).mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(home / name)
    return tmp_path


@contextmanager
def serving(room: Path, *flags: str) -> Iterator[Served]:
    """A server of the tiny model; several in one room have folders of their own."""
    own = room / f"server-{len(list(room.glob('server-*')))}"
    own.mkdir()
    for name in ("tiny", "cache"):
        (own / name).symlink_to(room / name)
    with served(["serve", "tiny", "--port", "0", *flags], own) as server:
        yield server


def end(server: Served) -> str:
    """Interrupt a server; all that it said on stdout."""
    server.command.interrupt()
    assert server.ended() == 0
    return server.output.read_text()


def call(port: int, method: str = "GET", key: str = "") -> tuple[int, dict[str, Any], Mapping[str, str]]:
    """Status, body and headers of /v1/recall."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request(method, "/v1/recall", headers={"x-api-key": key} if key else {})
        answer = connection.getresponse()
        body = json.loads(answer.read())
        return answer.status, body, {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()


def shown(port: int, key: str = "") -> dict[str, Any]:
    """The record's figures."""
    status, body, _ = call(port, key=key)
    assert status == 200
    return body


def until(port: int, fact: Callable[[dict[str, Any]], bool], key: str = "") -> dict[str, Any]:
    """The record's figures once `fact` is true of them."""
    deadline = time.monotonic() + PATIENCE_S
    while not fact(figures := shown(port, key)):
        assert time.monotonic() < deadline, figures
        time.sleep(0.01)
    return figures


def ask(server: Served, content: str = QUESTION, key: str = "none", **fields: Any) -> Said:
    with client_of(server.port, key) as client:
        return whole(client, content, **(SAMPLED | fields))


def loaded(server: Served, key: str = "") -> dict[str, Any]:
    return until(server.port, lambda figures: figures["state"] != "loading", key)


def chunk_of(record: Path) -> Path:
    """The one chunk file of a record."""
    (chunk,) = record.glob("*.ids")
    return chunk


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Modes and bytes of everything in a folder, itself included, with the times they were changed."""
    found = {".": (folder.stat().st_mode, str(folder.stat().st_mtime_ns).encode())}
    for path in sorted(folder.iterdir()):
        state = path.lstat()
        data = path.read_bytes() if stat.S_ISREG(state.st_mode) else b""
        found[path.name] = (state.st_mode, data + b"|" + str(state.st_mtime_ns).encode())
    return found


def test_a_repeated_request_copies_its_reply_and_again_after_a_restart(room: Path) -> None:
    record = room / "record"
    with serving(room, "--recall-dir", str(record)) as server:
        line = server.wait_for("] recall: ")
        assert line == f"[tensorfold] recall: on, 0.0 MiB of 64.0 MiB, 0 ids in 0 chunks, {record}"
        first = ask(server)
        once = until(server.port, lambda figures: figures["added_ids"] > 0)
        assert once["landed_tokens"] == 0
        assert ask(server, draft=False) == ask(server) == first
        twice = until(server.port, lambda figures: figures["held_ids"] >= 2 * once["added_ids"])
        assert twice["landed_tokens"] >= 150
        assert (twice["added_ids"], twice["ids"]) == (once["added_ids"], once["ids"])
        assert (twice["state"], twice["chunks"], twice["dir"]) == ("on", 1, str(record))
        end(server)
    assert sorted(path.name for path in record.iterdir()) == [chunk_of(record).name, "identity", "lock"]
    with serving(room, "--recall-dir", str(record)) as server:
        assert ask(server) == first
        again = until(server.port, lambda figures: figures["held_ids"] > 0)
        assert (again["added_ids"], again["ids"]) == (0, once["ids"])
        assert again["landed_tokens"] >= 150
        end(server)


def test_a_second_and_a_read_only_server_copy_add_nothing_and_refuse_to_empty(room: Path) -> None:
    record = room / "record"
    writing = serving(room, "--recall-dir", str(record))
    second = serving(room, "--recall-dir", str(record), "--api-key", KEY)
    reading = serving(room, "--recall-dir", str(record), "--recall-read-only")
    with writing as writer:
        first = ask(writer)
        until(writer.port, lambda figures: figures["added_ids"] > 0)
        before = contents(record)
        for state, other, key in (("second", second, KEY), ("read-only", reading, "")):
            with other as server:
                figures = loaded(server, key)
                assert (figures["state"], figures["ids"]) == (state, shown(writer.port)["ids"])
                assert f"recall: {state} (" in server.wait_for("] recall: ")
                assert ask(server, key=key or "none") == first
                assert shown(server.port, key)["landed_tokens"] >= 150
                ask(server, "Something that nobody asked before.", key=key or "none")
                if key:
                    assert [call(server.port, method)[0] for method in ("GET", "DELETE")] == [401, 401]
                status, refusal, headers = call(server.port, "DELETE", key)
                assert (status, headers["x-should-retry"]) == (409, "false")
                assert refusal["error"]["code"] == "recall_read_only"
                end(server)
            assert contents(record) == before
        assert shown(writer.port)["state"] == "on"
        end(writer)


def test_a_record_emptied_under_a_streaming_reply_stays_empty_of_it(room: Path) -> None:
    record = room / "record"
    with serving(room, "--recall-dir", str(record)) as server:
        first = ask(server)
        until(server.port, lambda figures: figures["added_ids"] > 0)
        for name in ("notes.txt", "12345678.ids.bak", "1.ids"):
            (record / name).write_text("kept")
        (record / "00000777.ids").symlink_to(record / "notes.txt")
        (record / "00000778.ids").mkdir()
        fields = {"prompt": QUESTION * 3, "max_tokens": 300, "temperature": 1.1, "seed": 9, "ignore_eos": True}
        body = json.dumps(fields | {"stream": True, "draft": False, "return_token_ids": True}).encode()
        running = Client(server.port)
        running.send(post_bytes("/v1/completions", body))
        running.receive_events(3)
        status, emptied, _ = call(server.port, "DELETE")
        assert (status, emptied["ids"], emptied["chunks"], emptied["disk_bytes"]) == (200, 0, 0, 0)
        assert (emptied["landed_tokens"], emptied["added_ids"], emptied["held_ids"]) == (0, 0, 0)
        answer = running.answer()
        assert answer.whole and len(answer.ids) == 300
        left = {path.name for path in record.iterdir()}
        assert left == {"identity", "lock", "notes.txt", "12345678.ids.bak", "1.ids", "00000777.ids", "00000778.ids"}
        assert ask(server) == first
        figures = until(server.port, lambda figures: figures["added_ids"] > 0)
        assert figures["ids"] < 300
        assert call(server.port, "DELETE")[0] == 200
        end(server)
    assert (record / "notes.txt").read_text() == "kept"


def test_a_folder_that_vanishes_under_a_server_costs_no_reply(room: Path) -> None:
    record = room / "record"
    with serving(room, "--recall-dir", str(record)) as server:
        first = ask(server)
        until(server.port, lambda figures: figures["added_ids"] > 0)
        shutil.rmtree(record)
        other = ask(server, "What else?")
        figures = until(server.port, lambda figures: figures["state"] != "on")
        assert (figures["state"], bool(figures["reason"])) == ("paused", True)
        assert ask(server) == first
        assert ask(server, "What else?", draft=False) == other
        assert not record.exists()
        said = end(server)
    assert "Traceback" not in said


@pytest.mark.parametrize("flags", [(), ("--recall-read-only",), ("--no-drafts",)], ids=str)
def test_a_record_of_another_tokenizer_is_refused_before_anything_is_loaded(room: Path, flags: tuple[str, ...]) -> None:
    record = room / "record"
    record.mkdir(mode=0o700)
    (record / "identity").write_text(THEIRS)
    (record / "00000000.ids").write_bytes(bytes(400))
    before = contents(record)
    ran = as_process(["serve", "tiny", "--port", "0", "--recall-dir", str(record), *flags], room)
    assert ran.code == 1 and ran.left == ()
    assert ran.err.startswith("tensorfold: ") and ran.err.count("\n") == 1
    for word in ("Somebody-7B", "5e5e5e", "32000", str(record), "--recall-dir"):
        assert word in ran.err
    assert "checking rows" not in ran.out and "serving" not in ran.out
    after = contents(record)
    if "--recall-read-only" not in flags:
        # Whose record it is can be asked under the lock alone.
        assert after.pop("lock")[0] == stat.S_IFREG | 0o600
        after["."] = before["."]
    assert after == before


@pytest.mark.parametrize("what", ["a file", "below a file"])
def test_a_folder_that_cannot_be_used_is_refused_by_its_name_and_flag(room: Path, what: str) -> None:
    (room / "taken").write_text("not a folder")
    record = room / "taken" if what == "a file" else room / "taken" / "below"
    ran = as_process(["serve", "tiny", "--port", "0", "--recall-dir", str(record)], room)
    assert ran.code == 1 and ran.left == ()
    assert ran.err.startswith("tensorfold: ") and ran.err.count("\n") == 1
    assert str(record) in ran.err and "--recall-dir" in ran.err
    assert "Errno" not in ran.err


def test_without_drafts_the_record_is_kept_and_nothing_is_copied(room: Path) -> None:
    record = room / "record"
    with serving(room, "--recall-dir", str(record), "--no-drafts", "--recall-gib", "0.01") as server:
        assert "--recall-gib asks for 10.2 MiB" in server.wait_for("--recall-gib")
        line = server.wait_for("] recall: ")
        assert "of 8.0 MiB" in line and line.endswith("so the record is kept but nothing is copied from it")
        ask(server)
        ask(server)
        figures = until(server.port, lambda figures: figures["held_ids"] > 0)
        assert (figures["offers"], figures["budget_bytes"]) == (0, 8 << 20)
        end(server)


def test_without_a_flag_there_is_no_record(room: Path) -> None:
    with serving(room) as server:
        ask(server)
        assert shown(server.port) == {"object": "recall", "state": "off"}
        assert call(server.port, "DELETE")[0] == 404
        assert "] recall: " not in end(server)
    assert not (room / "cache" / "tensorfold" / "recall").exists()


@pytest.mark.parametrize("mask", [0o000, 0o077], ids=oct)
def test_the_record_is_its_owners_alone_under_any_umask(room: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        with serving(room, "--recall") as server:
            os.umask(before)
            ask(server)
            until(server.port, lambda figures: figures["added_ids"] > 0)
            (record,) = (room / "cache" / "tensorfold" / "recall").iterdir()
            assert shown(server.port)["dir"].endswith(f"/cache/tensorfold/recall/{record.name}")
            end(server)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (record.parent, record, *record.iterdir())}
    files = {chunk_of(record).name: 0o600, "identity": 0o600, "lock": 0o600}
    shutil.rmtree(record.parent)
    assert modes == {"recall": 0o700, record.name: 0o700} | files


WATCH = """
import ipaddress, os, sys

def numeric(name):
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

def watch(event, given):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        place = given[1]
        if isinstance(place, (str, bytes)) or place is None or place[0] in ("127.0.0.1", "::1"):
            return
    elif event == "socket.getaddrinfo":
        # A number asks nobody.
        if given[0] is None or numeric(given[0]):
            return
    elif event not in ("socket.gethostbyname", "socket.gethostbyaddr", "urllib.Request", "smtplib.connect"):
        return
    with open(os.environ["TENSORFOLD_TEST_WATCH"], "a") as told:
        told.write(f"{event} {given}\\n")
    raise PermissionError("no socket may leave this machine")

sys.addaudithook(watch)
with open(os.environ["TENSORFOLD_TEST_WATCH"], "a") as told:
    told.write("watching\\n")
"""
"""Runs in every interpreter that starts with it on its path; nothing that goes out gets past it untold."""


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that tells of outgoing sockets of every command that is started."""
    (tmp_path / "watch").mkdir()
    (tmp_path / "watch" / "sitecustomize.py").write_text(WATCH)
    plain, told = commands.environment, tmp_path / "told"

    def environment(home: Path, mark: str = "") -> dict[str, str]:
        made = plain(home, mark)
        path = os.pathsep.join((str(tmp_path / "watch"), made["PYTHONPATH"]))
        return made | {"PYTHONPATH": path, "TENSORFOLD_TEST_WATCH": str(told), "TENSORFOLD_NO_UPDATE_CHECK": "1"}

    monkeypatch.setattr(commands, "environment", environment)
    return told


@pytest.mark.parametrize("place", ["192.0.2.1", "::ffff:192.0.2.1", "name.invalid"])
def test_the_watch_sees_and_stops_what_goes_out(watched: Path, tmp_path: Path, place: str) -> None:
    asking = f"import socket\ntry: socket.create_connection(({place!r}, 9))\nexcept PermissionError: print('stopped')"
    made = commands.environment(tmp_path)
    ran = subprocess.run([sys.executable, "-c", asking], env=made, capture_output=True, text=True, timeout=60)
    assert ran.stdout == "stopped\n"
    assert place in watched.read_text().splitlines()[1]


def test_without_outgoing_sockets_it_serves_records_copies_and_deletes_and_shows_no_id_or_text(
    room: Path, watched: Path
) -> None:
    record, seen = room / "record", []
    with serving(room, "--recall-dir", str(record)) as server:
        with client_of(server.port) as client:
            first = whole(client, QUESTION, **SAMPLED)
            assert streamed(client, QUESTION, **SAMPLED) == first
        figures = until(server.port, lambda figures: figures["held_ids"] > 0)
        assert figures["landed_tokens"] >= 150
        seen += [json.dumps(figures), json.dumps(call(server.port, "GET")[1])]
        with serving(room, "--recall-dir", str(record)) as second:
            loaded(second)
            seen += [json.dumps(call(second.port, method)[1]) for method in ("GET", "DELETE")]
            seen += [second.output.read_text(), end(second), second.command.errors()]
        stored = chunk_of(record).read_bytes()
        seen += [json.dumps(call(server.port, "DELETE")[1]), json.dumps(call(server.port)[1])]
        seen += [end(server), server.command.errors()]
    (record / "identity").write_text(THEIRS)
    (record / "00000001.ids").write_bytes(stored)
    refused = as_process(["serve", "tiny", "--port", "0", "--recall-dir", str(record)], room)
    assert refused.code == 1
    seen += [refused.out, refused.err]
    assert set(watched.read_text().splitlines()) == {"watching"}
    assert_hidden("\n".join(seen), first.text)


def assert_hidden(shown: str, reply: str) -> None:
    """No part of the question or the reply, as text or as ids, stands in what was shown."""
    texts = [QUESTION[at : at + 12] for at in range(0, len(QUESTION) - 12, 4)]
    texts += [reply[at : at + 8] for at in range(0, len(reply) - 8, 4)]
    assert [text for text in texts if text in shown] == []
    ids = [len(SPECIALS) + byte for byte in b"quartz xylophone ballad of Zanzibar"]
    flat = "".join(shown.split())
    runs = [",".join(map(str, ids[at : at + 3])) for at in range(len(ids) - 3)]
    assert [run for run in runs if run in flat] == []
