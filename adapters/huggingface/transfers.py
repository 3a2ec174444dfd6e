"""Brings several files at once, and tells from the calling thread how far they are.

The first failure stops the others; so does an exception in the calling thread, such as Ctrl-C. No thread that is left
waiting for the network writes anything afterwards, nor keeps the process alive.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tensorfold.adapters.huggingface.cache_folder import RepositoryFolder
from tensorfold.adapters.huggingface.client import HubClient
from tensorfold.adapters.huggingface.download import Download, StoppedError, Way
from tensorfold.adapters.huggingface.tree_list import RemoteFile
from tensorfold.application.ports.checkpoints import Transfer

_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Job:
    """Files of one commit, and whom to tell on the calling thread."""

    folder: RepositoryFolder
    commit: str
    files: Sequence[RemoteFile]
    say: Callable[[str], None]
    on_transfer: Callable[[Transfer], None]


class Transfers:
    """Up to `streams` files at once; `waits` are the seconds between tries, `grace_s` how long a stop waits."""

    def __init__(
        self, client: HubClient, streams: int, waits: tuple[float, ...], pause: Callable[[float], object] | None = None,
        grace_s: float = 1.0,
    ) -> None:  # fmt: skip
        self._client = client
        self._streams = streams
        self._waits = waits
        self._pause = pause
        self._grace_s = grace_s

    def run(self, job: Job) -> None:
        """Bring all files. Raises RefusedError and OSError; what has come stays."""
        lot = _Lot(job, self._client, self._waits, self._pause)
        threads = [
            threading.Thread(target=lot.work, name=f"download-{n}", daemon=True)
            for n in range(min(self._streams, len(job.files)))
        ]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads) and not lot.failed.is_set():
                lot.wait(_POLL_S)
                lot.tell()
        finally:
            lot.stop.set()
            deadline = time.monotonic() + self._grace_s
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))
        lot.tell()
        if lot.errors:
            raise lot.errors[0]


class _Lot:
    """The state that the threads of one run share."""

    def __init__(
        self, job: Job, client: HubClient, waits: tuple[float, ...], pause: Callable[[float], object] | None
    ) -> None:
        self._job = job
        self._total = sum(file.size for file in job.files)
        self._left: queue.SimpleQueue[RemoteFile] = queue.SimpleQueue()
        for file in job.files:
            self._left.put(file)
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._done = 0
        self._ended = threading.Semaphore(0)
        self.stop = threading.Event()
        self.failed = threading.Event()
        self.errors: list[Exception] = []
        self._way = Way(
            client, job.folder, job.commit, self.stop, self._moved, self._lines.put, pause or self.stop.wait, waits
        )

    def work(self) -> None:
        """One thread's part: files until there is none left, or something failed."""
        try:
            while not self.stop.is_set():
                Download(self._left.get_nowait(), self._way).run()
        except (queue.Empty, StoppedError):
            pass
        except Exception as error:
            with self._lock:
                self.errors.append(error)
            self.failed.set()
        finally:
            self._ended.release()

    def wait(self, seconds: float) -> None:
        """Until a thread ended, at most so long."""
        self._ended.acquire(timeout=seconds)

    def tell(self) -> None:
        """Pass on what the threads had to say."""
        while True:
            try:
                self._job.say(self._lines.get_nowait())
            except queue.Empty:
                break
        with self._lock:
            done = self._done
        self._job.on_transfer(Transfer(done, self._total))

    def _moved(self, count: int) -> None:
        with self._lock:
            self._done += count
