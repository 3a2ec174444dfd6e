"""Real processes that write a record in a real folder and are killed, again and again on the same folder.

A killed process loses nothing that its calls had written: what must be there afterwards is everything up to the write
in flight. The process reports each change before it makes it and each step after it, through a pipe.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

from tensorfold.adapters.filesystem.record_posix import PosixRecordFiles
from tensorfold.domain.recall.layout import Ids, Part
from tests.benchmarks.crash.check import check, equal_ids
from tests.benchmarks.crash.corpus import VOCABULARY, Corpus
from tests.benchmarks.crash.images import Image
from tests.benchmarks.crash.journal import Journal
from tests.benchmarks.crash.tally import Tally
from tests.benchmarks.crash.writer import Shape, Writer, store_on
from tests.fakes.clock import FakeClock

CHUNK_IDS = 256
LONGEST_S = 0.08
"""Half of the processes are killed from outside, at most this long after they began."""
MOST_CALLS = 1500
"""The others kill themselves right before or after one of their first so many system calls, early ones more often."""
FRESH_EACH = 25
"""So many kills on one folder, then a new one."""
KEEP_EACH = 4
_SYSTEM = ("posix", "fcntl")


class PipeJournal:
    """Reports to the parent what a journal is told, as (method, arguments)."""

    def __init__(self, pipe: Connection) -> None:
        self._send = pipe.send

    def writing(self, name: str, at: int, data: bytes) -> None:
        self._send(("writing", name, at, data))

    def cutting(self, name: str, size: int) -> None:
        self._send(("cutting", name, size))

    def removing(self, name: str) -> None:
        self._send(("removing", name))

    def appended(self, piece: Ids, parts: Sequence[Part], whole_piece: bool = True) -> None:
        self._send(("appended", piece, tuple(parts), whole_piece))

    def synced(self) -> None:
        self._send(("synced",))

    def deleted(self) -> None:
        self._send(("deleted",))

    def fault(self, sentence: str) -> None:
        self._send(("fault", sentence))


@dataclass(slots=True)
class Killing:
    """Kills writers of one folder after the other below `scratch`, and checks what each of them left."""

    scratch: Path
    tally: Tally
    corpus: Corpus
    rng: random.Random
    kept: list[dict[int, Ids]] = field(default_factory=list)

    def run(self, kills: int) -> None:
        """So many kills."""
        folder, journal, shape = self.scratch, Journal(CHUNK_IDS, VOCABULARY), Shape(CHUNK_IDS, 3, VOCABULARY)
        for number in range(kills):
            if number % FRESH_EACH == 0:
                shutil.rmtree(folder, ignore_errors=True)
                folder = self.scratch / str(number // FRESH_EACH)
                journal = Journal(CHUNK_IDS, VOCABULARY)
            # Now and then the budget of the next server is another one.
            if self.rng.random() < 0.1:
                shape = Shape(CHUNK_IDS, self.rng.randint(2, 4), VOCABULARY)
            where = f"kill {number}"
            self._kill(folder, journal, shape, where)
            self.tally.kills += 1
            journal = self._come_back(folder, journal, shape, where)
        shutil.rmtree(folder, ignore_errors=True)

    def _kill(self, folder: Path, journal: Journal, shape: Shape, where: str) -> None:
        ours, theirs = Pipe(duplex=False)
        seed = self.rng.getrandbits(62)
        calls = int(MOST_CALLS * self.rng.random() ** 2) if self.rng.random() < 0.5 else None
        child = os.fork()
        if child == 0:
            ours.close()
            _serve_until_killed(folder, shape, seed, calls, theirs)
        theirs.close()
        end = time.monotonic() + (10.0 if calls is not None else self.rng.uniform(0.0, LONGEST_S))
        try:
            while (left := end - time.monotonic()) > 0:
                if ours.poll(left):
                    _tell(journal, ours.recv())
            os.kill(child, signal.SIGKILL)
            while True:
                _tell(journal, ours.recv())
        except EOFError:
            pass
        ours.close()
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            self.tally.blame(where, [f"the process was to be killed and ended with status {status}"])

    def _come_back(self, folder: Path, journal: Journal, shape: Shape, where: str) -> Journal:
        """Check what is there, open it for real, and return the truth that the next process starts from."""
        files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())} if folder.is_dir() else None
        image = Image(files, "killed")
        verdict = check(image, journal, shape)
        store = store_on(PosixRecordFiles(folder), shape, FakeClock())
        try:
            state = store.open()
            loaded = {chunk.sequence: chunk.ids for chunk in store.chunks()}
            if state.state != "on":
                verdict.broken.append(f"the folder opens as {state.state}: {state.reason}")
            if differ := equal_ids(loaded, verdict.loaded):
                verdict.broken.append(f"{differ} words were read otherwise from the folder than from its image")
        except Exception as error:
            verdict.broken.append(f"the folder does not open: {type(error).__name__}: {error}")
        store.close()
        self.tally.blame(where, journal.faults + verdict.broken, image)
        self.tally.never_written += verdict.never_written
        self.tally.images_with_loss += verdict.lost > 0
        self.tally.ids_lost += verdict.lost
        if verdict.loaded and self.tally.kills % KEEP_EACH == 0:
            self.kept.append(verdict.loaded)
        files = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
        return Journal.after(files, verdict.loaded, CHUNK_IDS, VOCABULARY)


def _tell(journal: Journal, message: tuple[Any, ...]) -> None:
    """One report of the process. Whatever it reported before has been done by then, and a kill does not undo it."""
    journal.synced()
    kind, *arguments = message
    getattr(journal, kind)(*arguments)


def _serve_until_killed(folder: Path, shape: Shape, seed: int, calls: int | None, pipe: Connection) -> None:
    """The process: open, then append, idle, empty and restart by chance, until the end. Never returns."""
    try:
        rng, corpus = random.Random(seed), Corpus.shared()
        if calls is not None:
            sys.setprofile(_dying_at(calls))
        writer = Writer(PosixRecordFiles(folder), shape, PipeJournal(pipe))
        writer.open()
        while True:
            step = rng.random()
            if step < 0.8:
                writer.append(corpus.piece(rng))
            elif step < 0.9:
                writer.idle()
            elif step < 0.95:
                writer.delete()
            else:
                writer.close()
                writer = Writer(PosixRecordFiles(folder), shape, PipeJournal(pipe))
                writer.open()
    except BaseException as error:
        pipe.send(("fault", f"the writer raised {type(error).__name__}: {error}"))
    finally:
        os._exit(1)


def _dying_at(calls: int) -> Callable[[FrameType, str, Any], None]:
    """Kills this process at its `calls`th event of a system call, which is its begin or its end."""
    left = calls

    # Reports to the parent use system calls too; only those of the record's folder count.
    def watch(frame: FrameType, event: str, call: Any) -> None:
        nonlocal left
        ours = "/filesystem/record_" in frame.f_code.co_filename
        if ours and event in ("c_call", "c_return") and getattr(call, "__module__", "") in _SYSTEM:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return watch
