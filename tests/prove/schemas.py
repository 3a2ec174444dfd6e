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
NEWEST = "draft2020-12"
DRAFTS = {
    NEWEST: "Draft202012Validator",
    "draft2019-09": "Draft201909Validator",
    "draft7": "Draft7Validator",
    "draft6": "Draft6Validator",
    "draft4": "Draft4Validator",
}
"""Folders of the suite, and the class of `jsonschema` that validates by that draft. No reader knows draft 3."""

_NAMES = {
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft4": "http://json-schema.org/draft-04/schema#",
}
"""What a schema of an older draft calls itself; one that does not say is read by the newest."""
_NEXT = "draft-next"
"""A draft without a published form: its schemas are read by the newest that has one."""


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
    """Every schema that a draft reads, from a package at `path` or one that pip fetches. Raises AbsentError."""
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
        if "json" not in parts or not member.isfile() or not member.name.endswith(".json"):
            continue
        inside = parts[parts.index("json") + 1 :]
        source = archive.extractfile(member)
        if source is not None:
            yield from _listed(inside, json.load(source))


def _listed(inside: tuple[str, ...], file: Any) -> Iterator[Listed]:
    """The schemas of one file: of tests, of tests of annotations and of output, and those that others refer to."""
    name, draft = "/".join(inside), _draft(inside)
    if draft is None:
        return
    if inside[0] == "remotes":
        yield _of(draft, name, file)
    elif inside[0] in ("tests", "output-tests", "annotations"):
        for group in file["suite"] if isinstance(file, dict) else file:
            yield _of(draft, f"{name}: {group['description']}", group["schema"])


def _draft(inside: tuple[str, ...]) -> str | None:
    """The draft by which a file's schemas are read; None: not at all."""
    if inside[:2] == ("annotations", "tests"):
        return NEWEST
    folder = inside[1] if len(inside) > 2 else ""
    if inside[0] == "output-tests" and inside[2:3] != ("content",):
        return None
    if folder == _NEXT or (inside[0] == "remotes" and not folder.startswith("draft")):
        return NEWEST
    return folder if folder in DRAFTS else None


def _of(draft: str, name: str, schema: Any) -> Listed:
    if isinstance(schema, dict):
        stated = {key: part for key, part in schema.items() if key != "$schema" or _NEXT not in str(part)}
        schema = {"$schema": _NAMES[draft], **stated} if draft in _NAMES else stated
    return Listed(draft, name, schema)
