"""Reads a file of API keys: one a line, `KEY` or `LABEL: KEY`, comments and blank lines between.

A refusal names the file and the line, and never shows what stands in it.
"""

from __future__ import annotations

import re

from tensorfold.application.ports.checkpoints import RefusedError

MOST_KEYS = 1024
MOST_KEY = 512
Key = tuple[str, str]
"""A label, which logs may show, and its key."""

_LABEL = re.compile(r"[A-Za-z0-9._-]{1,64}")


def is_key(text: str) -> bool:
    """Whether a header can carry this as a key: printable ASCII without spaces, not too long."""
    return 0 < len(text) <= MOST_KEY and text.isascii() and text.isprintable() and " " not in text


def read_keys(data: bytes, name: str) -> tuple[Key, ...]:
    """The keys of a file that refusals call `name`, at least one. Raises RefusedError."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as broken:
        raise RefusedError(f"{name} is not UTF-8 text; its byte {broken.start} belongs to no character.") from None
    keys: list[Key] = []
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.strip()
        if line and not line.startswith("#"):
            keys.append(_key(line, f"file-{len(keys) + 1}", f"Line {number} of {name}"))
    if not keys:
        raise RefusedError(f"{name} holds no key; write one a line, as `KEY` or `LABEL: KEY`.")
    if len(keys) > MOST_KEYS:
        raise RefusedError(f"{name} holds {len(keys)} keys, more than {MOST_KEYS}: each request is compared with all.")
    return tuple(keys)


def _key(line: str, label: str, where: str) -> Key:
    key = line
    if ":" in line:
        # A key with a colon of its own needs a label before it: nobody then has to guess which part is the key.
        label, _, rest = line.partition(":")
        key = rest.strip()
        if not rest.startswith((" ", "\t")) or not _LABEL.fullmatch(label):
            raise RefusedError(
                f"{where} has a colon but is not `LABEL: KEY` with a space behind the colon and a label of 1 to 64 "
                "letters, digits, dots, dashes and underscores; a key with a colon needs a label."
            )
    if not is_key(key):
        raise RefusedError(
            f"{where} holds a key that is not 1 to {MOST_KEY} printable ASCII characters without spaces; a comment "
            "needs a line of its own."
        )
    return label, key
