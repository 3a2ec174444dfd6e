"""The two lines about releases that a server may say: a newer one is out, and this one serves for the first time."""

from __future__ import annotations

from collections.abc import Callable

from tensorfold import __version__
from tensorfold.application.ports.installation import Installation
from tensorfold.application.release_check import ReleaseCheck, first_serve_line
from tensorfold.application.releases import ProjectAddress, read_address
from tensorfold.entrypoints.container import Container
from tensorfold.entrypoints.settings import UpdateSettings


class ReleaseNotices:
    """Made once for a server. Neither line delays it or can fail it."""

    def __init__(self, settings: UpdateSettings, container: Container, say: Callable[[str], None]) -> None:
        self._check = settings.check
        self._container = container
        self._address = project_address(settings, container.installation())
        self._say = say

    def start(self) -> None:
        """Ask for the newest release in the background, unless the check is off."""
        if not self._check or self._address is None:
            return
        feed, memory = self._container.release_feed(self._address), self._container.update_memory()
        ReleaseCheck(feed, memory, self._container.clock(), self._address, __version__, self._say).start()

    def served(self) -> None:
        """The server serves: say so once for a version. Needs no network, so the check's switch leaves it alone."""
        line = first_serve_line(self._container.update_memory(), __version__, self._address)
        if line is not None:
            self._say(line)


def project_address(settings: UpdateSettings, installation: Installation) -> ProjectAddress | None:
    """The address given, else that of the package's metadata; None when there is neither."""
    return settings.address or read_address(installation.facts().address)
