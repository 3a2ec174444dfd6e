"""Keys from a file while a server runs: read before it answers, renewed when the file changes or SIGHUP comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tensorfold.application.key_rotation import KeyRotation
from tensorfold.entrypoints.cli.signals import Signals
from tensorfold.entrypoints.container import Container
from tensorfold.entrypoints.http.keys import KeyRing


@contextmanager
def keys_from(
    path: Path | None, container: Container, keys: KeyRing, signals: Signals, say: Callable[[str], None]
) -> Iterator[None]:
    """Keep the keys those of a file, when there is one. Raises RefusedError when it is bad at the start."""
    if path is None:
        yield
        return
    rotation = KeyRotation(container.key_file(path), keys.rotate, say)
    rotation.open()
    signals.on_reload(rotation.reload)
    rotation.start()
    try:
        yield
    finally:
        rotation.close()
