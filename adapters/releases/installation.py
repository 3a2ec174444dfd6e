"""This copy of the product as its package metadata describes it, and the commands that change it, without a shell."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tensorfold.application.ports.installation import NOT_RUN, Installed

DISTRIBUTION = "tensorfold"
_LABEL = "Repository"
_MOST_CHANGELOG = 1 << 20


class PackageInstallation:
    """The installed distribution; `version` is what the running code says of itself."""

    def __init__(self, version: str) -> None:
        self._version = version

    def facts(self) -> Installed:
        """Address and form from the metadata; a copy without metadata has neither."""
        pip = importlib.util.find_spec("pip") is not None
        try:
            found = importlib.metadata.distribution(DISTRIBUTION)
        except importlib.metadata.PackageNotFoundError:
            return Installed(self._version, sys.executable, pip, None)
        folder = _editable(found)
        return Installed(
            self._version,
            sys.executable,
            pip,
            _address(found) or "",
            folder,
            _clone(folder) if folder is not None else None,
        )

    def changelog(self) -> str | None:
        """CHANGELOG.md of an editable install's folder."""
        folder = self.facts().editable
        if folder is None:
            return None
        try:
            with (folder / "CHANGELOG.md").open("rb") as file:
                return file.read(_MOST_CHANGELOG).decode("utf-8", "replace")
        except OSError:
            return None

    def run(self, command: Sequence[str], folder: Path | None = None) -> int:
        """Run a command that talks to the user."""
        try:
            return _code(subprocess.run(command, cwd=folder, check=False).returncode)
        except OSError:
            return NOT_RUN

    def read(self, command: Sequence[str], folder: Path | None = None) -> tuple[int, str]:
        """Run a command and take what it prints."""
        try:
            done = subprocess.run(command, cwd=folder, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        except OSError:
            return NOT_RUN, ""
        return _code(done.returncode), done.stdout.decode("utf-8", "replace")


def _code(status: int) -> int:
    """An exit code as a shell tells it: 128 and the signal's number for a program that a signal ended."""
    return status if status >= 0 else 128 - status


def _address(found: importlib.metadata.Distribution) -> str | None:
    """What stands behind `Repository` among the project's addresses."""
    try:
        lines = found.metadata.get_all("Project-URL") or ()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # What an install that was broken off leaves behind.
        return None
    for line in lines:
        label, _, address = str(line).partition(",")
        if label.strip() == _LABEL:
            return address.strip()
    return None


def _editable(found: importlib.metadata.Distribution) -> Path | None:
    """The folder of an editable install, as the installer wrote it down in direct_url.json."""
    try:
        told: Any = json.loads(found.read_text("direct_url.json") or "null")
        if told["dir_info"]["editable"] is not True:
            return None
        url = urllib.parse.urlsplit(told["url"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return Path(urllib.request.url2pathname(url.path)) if url.scheme == "file" else None


def _clone(folder: Path) -> Path | None:
    """The nearest folder, from an editable install's own upwards, that git keeps."""
    return next((place for place in (folder, *folder.parents) if (place / ".git").exists()), None)
