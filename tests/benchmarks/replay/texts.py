"""Real text that is on every machine this runs on: the standard library's source, and documents of packages.

Everything is taken in order of name, so one installation always gives the same text.
"""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

LIBRARY = Path(sysconfig.get_paths()["stdlib"])


def source_files(least: int, most: int) -> Iterator[tuple[str, str]]:
    """(name, text) of the library's modules of `least` to `most` characters."""
    for path in sorted(LIBRARY.glob("*.py")):
        if least <= path.stat().st_size <= most:
            yield path.name, path.read_text(encoding="utf-8", errors="replace")


def package(name: str) -> dict[str, str]:
    """The modules of one of the library's packages, by their paths in a project."""
    root = LIBRARY / name
    return {
        f"{name}/{path.relative_to(root).as_posix()}": path.read_text(encoding="utf-8", errors="replace")
        for path in sorted(root.rglob("*.py"))
        if "test" not in path.parts
    }


def documents(least: int) -> Iterator[tuple[str, str]]:
    """(name, text) of the descriptions that installed packages carry, of at least `least` characters."""
    found = {dist.metadata["Name"]: dist.read_text("METADATA") or "" for dist in distributions()}
    for name in sorted(found, key=str.lower):
        text = found[name].partition("\n\n")[2]
        if len(text) >= least:
            yield name, text


def docstrings(least: int) -> Iterator[tuple[str, str]]:
    """(name, text) of the library's docstrings of functions and classes, of at least `least` characters."""
    for path in sorted(LIBRARY.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                text = ast.get_docstring(node)
                if text is not None and len(text) >= least:
                    yield f"{path.stem}.{node.name}", text
