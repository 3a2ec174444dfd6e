"""Pieces of an SVG document. Whatever text comes in, what comes out is well-formed and runs nothing."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

_FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"


def clean(words: str) -> str:
    """Text without what no XML document can carry, which becomes a replacement character."""
    return "".join(c if c == "\n" or (c.isprintable() and ord(c) & 0xFFFE != 0xFFFE) else "\ufffd" for c in words)


def plain(words: str) -> str:
    """Text as an element may hold it."""
    return escape(clean(words))


def element(name: str, **attributes: str | float) -> str:
    """An empty element; `_` in an attribute's name stands for `-`."""
    given = " ".join(f"{key.replace('_', '-')}={quoteattr(_value(value))}" for key, value in attributes.items())
    return f"<{name} {given}/>"


def _value(value: str | float) -> str:
    return clean(value) if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


def text(
    words: str,
    x: float,
    y: float,
    *,
    size: int,
    fill: str = "#1c1c1c",
    anchor: str = "start",
    weight: str = "normal",
    halo: bool = False,
) -> str:
    """A line of text whose base line lies at `y`; with `halo`, a white rim that keeps it readable over lines."""
    rim = ' stroke="#ffffff" stroke-width="3" paint-order="stroke"' if halo else ""
    return (
        f'<text x="{_value(x)}" y="{_value(y)}" font-size="{size}" fill="{fill}" text-anchor="{anchor}" '
        f'font-weight="{weight}"{rim}>{plain(words)}</text>'
    )


def page(width: int, height: int, title: str, description: str, parts: Iterable[str]) -> str:
    """A whole document on white, so that it can be read wherever it is shown."""
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" font-family="{_FONT}">',
            f"<title>{plain(title)}</title>",
            f"<desc>{plain(description)}</desc>",
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
            *parts,
            "</svg>",
            "",
        ]
    )
