"""What SIGINT and SIGTERM ask for, from the command's first moment to its last; SIGUSR1 shows what every thread does,
and SIGHUP may renew what is read from files.

A signal is remembered, never lost. Only where a command says that it may be interrupted does one raise. Imports no
other part of the product, so that it stands before the slow ones are imported.
"""

from __future__ import annotations

import queue
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class EndAskedError(KeyboardInterrupt):
    """A signal broke off what was being done.

    A class of its own: the interpreter would end by the signal, whatever catches it, after a bare KeyboardInterrupt out
    of code that was made from text, as dataclasses are.
    """


class Signals:
    """How often SIGINT and SIGTERM, which ask for the end, have come. Made on the main thread, for the whole process.

    A handler runs in the middle of whatever the main thread does: it takes no lock.
    """

    def __init__(self) -> None:
        self._count = 0
        self._raises = False
        self._calls: queue.SimpleQueue[None] = queue.SimpleQueue()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._take)

    @property
    def asked(self) -> bool:
        """Whether the end was asked for."""
        return self._count > 0

    @property
    def again(self) -> bool:
        """Whether it was asked for once more: now."""
        return self._count > 1

    def wait(self) -> None:
        """Wait until the end is asked for."""
        while not self.asked:
            self._calls.get()

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """A part that the first signal breaks off by an EndAskedError, one that came before it included."""
        self._raises = True
        try:
            if self.asked:
                raise EndAskedError
            yield
        finally:
            self._raises = False

    def on_stacks(self, dump: Callable[[str], None]) -> None:
        """Call `dump` with a line at every SIGUSR1, where the system has that signal."""
        if hasattr(signal, "SIGUSR1"):
            signal.signal(signal.SIGUSR1, lambda number, frame: dump("stacks, as SIGUSR1 asked"))

    def on_reload(self, reload: Callable[[], None]) -> None:
        """Call `reload`, which takes no lock, at every SIGHUP, where the system has that signal."""
        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, lambda number, frame: reload())

    def _take(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        self._calls.put(None)
        if self._raises:
            # Once: what is broken off must be able to clean up behind itself.
            self._raises = False
            raise EndAskedError
