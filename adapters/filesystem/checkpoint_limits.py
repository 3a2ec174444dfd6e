"""The most that a checkpoint on disk may ask of its reader, and how hostile text is shown in a sentence.

Every number is far above published checkpoints and small enough that reading stays cheap: refusing or accepting a
folder takes at most about 64 MiB beyond the kept tensor headers (about 600 bytes a tensor).
"""

from __future__ import annotations

from dataclasses import dataclass

SHOWN_CHARACTERS = 120


@dataclass(frozen=True, slots=True)
class CheckpointLimits:
    """Bounds of one checkpoint folder; sizes in bytes, the others counts.

    `header_bytes` is the safetensors format's own limit. `dimension` is what a 32-bit shape can say.
    """

    json_bytes: int = 4 << 20
    json_depth: int = 32
    json_values: int = 200_000
    index_bytes: int = 64 << 20
    header_bytes: int = 100_000_000
    metadata_bytes: int = 1 << 20
    entry_bytes: int = 4096
    tensors: int = 524_288
    shards: int = 1024
    rank: int = 8
    dimension: int = (1 << 31) - 1
    name_characters: int = 256
    folder_entries: int = 10_000


def shown(text: object, characters: int = SHOWN_CHARACTERS) -> str:
    """One printable line: control characters escaped, what goes past `characters` cut."""
    line = str(text)
    if not line.isprintable():
        line = line.encode("unicode_escape", "backslashreplace").decode("ascii")
    return line if len(line) <= characters else line[:characters] + "…"


def quoted(text: object) -> str:
    """As `shown`, between quotation marks."""
    return f"'{shown(text)}'"


def shown_path(path: object) -> str:
    """A path on one printable line, whole: its end is what tells files apart."""
    return shown(path, characters=1 << 14)
