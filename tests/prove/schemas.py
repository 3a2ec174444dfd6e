"""The schemas of the public JSON Schema Test Suite, as the source package of `jsonschema` carries it.

Test input alone: the package is fetched by pip, or read from a path, and never part of this project.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGE = "jsonschema==4.26.0"
DRAFTS = {"draft7": "Draft7Validator", "draft2019-09": "Draft201909Validator", "draft2020-12": "Draft202012Validator"}
"""Folders of the suite, and the class of `jsonschema` that validates by that draft."""

_NAMES = {"draft7": "http://json-schema.org/draft-07/schema#"}
"""What a schema of an older draft calls itself; one that does not say is read by the newest."""


class AbsentError(Exception):
    """The package cannot be had; the text says why."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One schema of the suite, and where it stands there."""

    draft: str
    name: str
    schema: Any

    @property
    def text(self) -> str:
        """The schema's text, apart from the draft that it names: equal texts are one schema."""
        schema = self.schema
        if isinstance(schema, dict):
            schema = {key: part for key, part in schema.items() if key != "$schema"}
        return json.dumps(schema, sort_keys=True)


def suite(path: Path | None) -> list[Listed]:
    """Every schema of the drafts, from a package at `path` or one that pip fetches. Raises AbsentError."""
    with tempfile.TemporaryDirectory() as folder:
        package = path or _fetched(Path(folder))
        try:
            with tarfile.open(package) as archive:
                return list(_read(archive))
        except (OSError, tarfile.TarError, ValueError) as wrong:
            raise AbsentError(f"{package} is no source package of jsonschema: {wrong}") from None


def _fetched(folder: Path) -> Path:
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", PACKAGE]
    done = subprocess.run([*words, "--dest", str(folder)], capture_output=True, text=True, check=False)
    found = sorted(folder.glob("*.tar.gz"))
    if done.returncode or not found:
        said = done.stderr.strip().splitlines()
        raise AbsentError(f"pip could not fetch {PACKAGE}: {said[-1] if said else 'it said nothing'}")
    return found[0]


def _read(archive: tarfile.TarFile) -> Iterator[Listed]:
    for member in archive.getmembers():
        parts = Path(member.name).parts
        if "tests" not in parts or not member.isfile() or not member.name.endswith(".json"):
            continue
        inside = parts[parts.index("tests") + 1 :]
        source = archive.extractfile(member)
        if not inside or inside[0] not in DRAFTS or source is None:
            continue
        for group in json.load(source):
            schema, name = group["schema"], _NAMES.get(inside[0])
            if name is not None and isinstance(schema, dict):
                schema = {"$schema": name, **schema}
            yield Listed(inside[0], f"{'/'.join(inside)}: {group['description']}", schema)
