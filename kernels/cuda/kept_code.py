"""Machine code kept in a folder, each file with a digest of what is in it.

What is cut short, mixed up or foreign is not read, and the next write puts a whole one there. A folder that takes
no file costs time and nothing else.

    8 bytes    the form: TFCUBIN1
    32 bytes   SHA-256 over the hash that names the code, in hexadecimal, and the code
    the rest   the code, an ELF file for NVIDIA's machine

The digest finds accidents. Who may write this folder may run code here in other ways too, so a file of another owner,
or a link, is not read either.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

FORM = b"TFCUBIN1"
MOST_BYTES = 64 << 20
"""The largest file that is read: code of a kernel is some 100 KiB."""
_DIGEST = 32
_ELF, _MACHINE, _AT = b"\x7fELF", 190, slice(18, 20)


def read(folder: Path, name: str) -> bytes | None:
    """The code kept under `name`, which is the hash of all that decides it; None where there is none to be trusted."""
    try:
        # Not blocked by a pipe that lies there.
        handle = os.open(folder / f"{name}.cubin", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in (0, os.geteuid()) or found.st_size > MOST_BYTES:
            return None
        with open(handle, "rb", closefd=False) as file:
            whole = file.read(MOST_BYTES)
    except OSError:
        return None
    finally:
        os.close(handle)
    form, digest, code = whole[: len(FORM)], whole[len(FORM) : len(FORM) + _DIGEST], whole[len(FORM) + _DIGEST :]
    return code if form == FORM and digest == _digest(name, code) and is_code(code) else None


def is_code(code: bytes) -> bool:
    """Whether bytes begin as machine code for an NVIDIA GPU does."""
    return code.startswith(_ELF) and int.from_bytes(code[_AT], "little") == _MACHINE


def write(folder: Path, name: str, code: bytes) -> None:
    """Keep code under `name`, whole or not at all; a folder that cannot be written keeps nothing."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            try:
                file.write(FORM + _digest(name, code) + code)
                file.flush()
                os.replace(file.name, folder / f"{name}.cubin")
            except BaseException:
                os.unlink(file.name)
                raise


def _digest(name: str, code: bytes) -> bytes:
    return hashlib.sha256(name.encode() + code).digest()
