"""Keeps a server's keys those of a file that others change, without a restart.

A changed file counts once it has rested for one look, so that a file caught while it is written closes nothing. A file
that rested and is bad puts its keys out of use until it is good again. No key is held here.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence

from tensorfold.application.key_lines import Key, read_keys
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.keys import KeyFile, Stamp

LOOK_S = 1.0
RESTLESS_LOOKS = 5
"""After so many looks that all found the file changed again, it counts as it is."""

_NEVER: Stamp = (-1,)


class KeyRotation:
    """Hands the file's keys to `take`, all of them at once, whenever they change; () while the file is bad."""

    def __init__(
        self,
        file: KeyFile,
        take: Callable[[Sequence[Key]], None],
        say: Callable[[str], None],
        *,
        look_s: float = LOOK_S,
    ) -> None:
        self._file = file
        self._take = take
        self._say = say
        self._look_s = look_s
        self._calls: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._main, name="keys", daemon=True)
        self._taken: Stamp = _NEVER
        self._seen: Stamp = _NEVER
        self._restless = 0

    def open(self) -> None:
        """Read the file for the first time. Raises RefusedError."""
        stamp = self._file.stamp()
        self._take(self._read())
        self._taken = self._seen = stamp

    def start(self) -> None:
        """Look at the file from now on."""
        self._thread.start()

    def reload(self) -> None:
        """Read the file now, changed or not. Takes no lock: a signal's handler may call it."""
        self._calls.put(True)

    def close(self) -> None:
        """Look no more; the keys stay as they are."""
        self._calls.put(False)
        if self._thread.ident is not None:
            self._thread.join()

    def look(self, *, asked: bool = False) -> None:
        """One look; `asked` takes the file as it is, rested or not."""
        stamp = self._file.stamp()
        if not asked and not self._rested(stamp):
            return
        keys: tuple[Key, ...] = ()
        try:
            keys = self._read()
            line = f"keys: {len(keys)} from {self._file.name} from now on"
        except RefusedError as refusal:
            line = f"keys: {refusal.message} None of its keys is valid until it is good again."
        after = self._file.stamp()
        if after != stamp and self._restless < RESTLESS_LOOKS:
            # Caught while it is written: neither what it seems to hold nor what it seems to lack counts.
            self._seen = after
            self._restless += 1
            return
        self._taken, self._seen, self._restless = stamp, after, 0
        self._take(keys)
        self._say(line)

    def _rested(self, stamp: Stamp) -> bool:
        """Whether the file differs from what was taken and stayed as it is since the last look."""
        if stamp == self._taken:
            self._seen, self._restless = stamp, 0
            return False
        if stamp == self._seen:
            return True
        self._seen = stamp
        self._restless += 1
        return self._restless >= RESTLESS_LOOKS

    def _read(self) -> tuple[Key, ...]:
        return read_keys(self._file.read(), self._file.name)

    def _main(self) -> None:
        while True:
            try:
                asked = self._calls.get(timeout=self._look_s)
                if not asked:
                    return
            except queue.Empty:
                asked = False
            self.look(asked=asked)
