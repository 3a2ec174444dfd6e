"""Release tags, versions and the project's address, read strictly: what passes here may stand in a command's words.

Knows no network and no installer. A tag or an address that is not exactly of its form is nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Version = tuple[int, int, int]

_NUMBER = r"(0|[1-9][0-9]{0,8})"
_VERSION = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}")
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[::1\])(?::[0-9]{1,5})?"
_ADDRESS = re.compile(rf"(https?)://({_HOST})/({_NAME})/({_NAME})")
_LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]+)?")


def read_version(text: object) -> Version | None:
    """`X.Y.Z` as numbers that compare; None for anything else."""
    found = _VERSION.fullmatch(text) if isinstance(text, str) else None
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))


def read_tag(text: object) -> Version | None:
    """The version that a release's tag `vX.Y.Z` names; None for anything else."""
    return read_version(text[1:]) if isinstance(text, str) and text.startswith("v") else None


@dataclass(frozen=True, slots=True)
class ProjectAddress:
    """Where the project is hosted: `page` is its page, from which it is cloned; `api` its entry in the site's API."""

    page: str
    api: str

    def notes(self, tag: str) -> str:
        """The page of a release's notes."""
        return f"{self.page}/releases/tag/{tag}"


def read_address(text: object) -> ProjectAddress | None:
    """The address `https://HOST/OWNER/NAME`; plain http is taken on a loopback host alone. None for anything else."""
    found = _ADDRESS.fullmatch(text.rstrip("/")) if isinstance(text, str) else None
    if found is None or (found[1] == "http" and not _LOOPBACK.fullmatch(found[2])):
        return None
    scheme, host, owner, name = found[1], found[2].lower(), found[3], found[4].removesuffix(".git")
    # The public site answers its API under a host of its own, installations of one's own below a path.
    root = f"{scheme}://api.{host}" if host == "github.com" else f"{scheme}://{host}/api/v3"
    return ProjectAddress(f"{scheme}://{host}/{owner}/{name}", f"{root}/repos/{owner}/{name}")
