"""What a starting server says about releases: one line when a newer one is out, one when its own version is new here.

The question runs beside the start on a thread of its own; no answer, a wrong one and no network are all silent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tensorfold.application.ports.installation import UpdateMemory
from tensorfold.application.ports.machine import Clock
from tensorfold.application.ports.services import ReleaseFeed
from tensorfold.application.releases import ProjectAddress, read_tag, read_version

ASK_S = 3.0
KEPT_S = 24 * 3600.0
"""For how long an answer is not asked for again."""


class ReleaseCheck:
    """Asks once for the newest release."""

    def __init__(
        self,
        feed: ReleaseFeed,
        memory: UpdateMemory,
        clock: Clock,
        address: ProjectAddress,
        version: str,
        say: Callable[[str], None],
    ) -> None:
        self._feed = feed
        self._memory = memory
        self._clock = clock
        self._address = address
        self._version = version
        self._say = say

    def start(self) -> threading.Thread:
        """Look on a thread that nobody waits for."""
        thread = threading.Thread(target=self._look, name="release-check", daemon=True)
        thread.start()
        return thread

    def look(self) -> str | None:
        """The line about a newer release, None when there is none or it cannot be learned."""
        own, tag = read_version(self._version), self._newest()
        newest = read_tag(tag)
        if own is None or newest is None or newest <= own:
            return None
        notes = self._address.notes(f"{tag}")
        return f"tensorfold {tag} is out, this is {self._version}: {notes} (`tensorfold update` installs it)"

    def _look(self) -> None:
        try:
            line = self.look()
        except Exception:
            # Nobody asked for this answer: whatever is wrong with it is no business of the server's log.
            return
        if line is not None:
            self._say(line)

    def _newest(self) -> str | None:
        now, kept = self._clock.wall(), self._memory.checked()
        if kept is not None and 0 <= now - kept[1] < KEPT_S and read_tag(kept[0]) is not None:
            return kept[0]
        release = self._feed.latest(ASK_S)
        if release is None or read_tag(release.tag) is None:
            return None
        self._memory.remember_check(release.tag, now)
        return release.tag


def first_serve_line(memory: UpdateMemory, version: str, address: ProjectAddress | None) -> str | None:
    """The line for the first time that a version serves; None ever after. Needs no network.

    An older version than one that served before is not new. Where nothing can be remembered nothing is said: the line
    would come at every start.
    """
    own, seen = read_version(version), read_version(memory.seen())
    if own is None or (seen is not None and seen >= own) or not memory.remember_seen(version):
        return None
    where = address.notes(f"v{version}") if address is not None else "see CHANGELOG.md"
    return f"first start of version {version}; what is new: {where}"
