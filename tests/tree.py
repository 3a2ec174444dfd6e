"""The project's own files, as the tests of the house read them: what git tracks or would track, and parsed sources."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("domain", "application", "adapters", "kernels", "entrypoints")


@cache
def files() -> tuple[Path, ...]:
    """Every file that belongs to the project, links left out. Raises CalledProcessError outside a git checkout."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    paths = (ROOT / name for name in listed.split("\0") if name)
    return tuple(path for path in paths if path.is_file() and not path.is_symlink())


def sources(*rooms: str) -> Iterator[tuple[str, ast.Module]]:
    """Path below the root, and syntax tree, of every Python file in the rooms named."""
    for path in files():
        name = path.relative_to(ROOT).as_posix()
        if path.suffix == ".py" and name.split("/")[0] in rooms:
            yield name, ast.parse(path.read_text(encoding="utf-8"), name)


def imported(tree: ast.Module) -> Iterator[str]:
    """Every module a file imports, wherever in it; names taken from a module are added to the module's own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
