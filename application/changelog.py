"""The part of a changelog between two versions, safe to show at a terminal.

The text may come from outside: nothing but printable characters and line ends gets through.
"""

from __future__ import annotations

import re

from tensorfold.application.releases import Version, read_version

MOST_LINES = 500
_HEADING = re.compile(r"##\s+\[?v?([0-9.]+)\]?(?![0-9A-Za-z.+-])")


def news(text: str, old: Version, new: Version) -> list[str]:
    """Lines of the sections of versions above `old` and up to `new`, in the text's own order; [] when there is none.

    A section begins at a heading of the second level that names a version and ends at the next heading of that level
    or of the first. More than MOST_LINES lines are cut, with a line that says so.
    """
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.startswith(("# ", "## ")):
            inside = _is_new(line, old, new)
        if inside:
            lines.append(_shown(line))
    while lines and not lines[-1]:
        lines.pop()
    cut = len(lines) - MOST_LINES
    return [*lines[:MOST_LINES], f"({cut} more lines)"] if cut > 0 else lines


def _is_new(heading: str, old: Version, new: Version) -> bool:
    found = _HEADING.match(heading)
    version = read_version(found[1]) if found is not None else None
    return version is not None and old < version <= new


def _shown(line: str) -> str:
    return "".join(c for c in line.expandtabs(4) if c.isprintable()).rstrip()
