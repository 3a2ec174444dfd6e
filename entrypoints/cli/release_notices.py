"""The two lines about releases that a server may say: a newer one is out, and this one serves for the first time.

Neither delays a server or can fail it.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorfold import __version__
from tensorfold.application.ports.installation import Installation
from tensorfold.application.release_check import ReleaseCheck, first_serve_line
from tensorfold.application.releases import ProjectAddress, read_address
from tensorfold.entrypoints.container import Container
from tensorfold.entrypoints.settings import UpdateSettings

Say = Callable[[str], None]


def start_release_check(settings: UpdateSettings, container: Container, say: Say) -> None:
    """Ask for the newest release in the background, unless the check is off."""
    if not settings.check:
        return
    address = project_address(settings, container.installation())
    if address is not None:
        feed, memory = container.release_feed(address), container.update_memory()
        ReleaseCheck(feed, memory, container.clock(), address, __version__, say).start()


def say_first_serve(settings: UpdateSettings, container: Container, say: Say) -> None:
    """Say once for a version that it serves. Needs no network, so the check's switch leaves it alone."""
    line = first_serve_line(container.update_memory(), __version__, project_address(settings, container.installation()))
    if line is not None:
        say(line)


def project_address(settings: UpdateSettings, installation: Installation) -> ProjectAddress | None:
    """The address given, else that of the package's metadata; None when there is neither."""
    return settings.address or read_address(installation.facts().address)
