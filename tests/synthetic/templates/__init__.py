"""Chat templates in the manner of each family's, written for tests: turns, thoughts, tools, and calls in its format.

None is a copy of a checkpoint's own template.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

FAMILIES: Final = ("qwen", "nemotron", "glm", "gemma4", "json")


def template_source(family: str) -> str:
    """The template's text."""
    return (Path(__file__).parent / f"{family}.jinja").read_text(encoding="utf-8")
