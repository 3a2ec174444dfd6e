"""The release feed: what the hosting site's API says is the latest release, and the changelog at its tag.

Everything that comes back is hostile: of an answer only a strict tag is kept, and the notes' address is made from the
project's own.
"""

from __future__ import annotations

import json

from tensorfold.adapters.releases.fetching import fetch
from tensorfold.application.ports.services import Release
from tensorfold.application.releases import ProjectAddress, read_tag

MOST_ANSWER = 1 << 20
MOST_CHANGELOG = 1 << 20


class SiteReleaseFeed:
    """Asks the site that hosts the project."""

    def __init__(self, address: ProjectAddress) -> None:
        self._address = address

    def latest(self, timeout: float) -> Release | None:
        """The newest release that is neither a draft nor a trial."""
        url = f"{self._address.api}/releases/latest"
        body = fetch(url, "application/vnd.github+json", MOST_ANSWER, timeout)
        try:
            answer = json.loads(body) if body is not None else None
        except (ValueError, RecursionError):
            return None
        if not isinstance(answer, dict) or answer.get("draft") or answer.get("prerelease"):
            return None
        tag = answer.get("tag_name")
        if not isinstance(tag, str) or read_tag(tag) is None:
            return None
        return Release(tag, self._address.notes(tag))

    def changelog(self, tag: str, timeout: float) -> str | None:
        """CHANGELOG.md as it stands at a tag, which must be strict."""
        if read_tag(tag) is None:
            return None
        url = f"{self._address.api}/contents/CHANGELOG.md?ref={tag}"
        body = fetch(url, "application/vnd.github.raw+json", MOST_CHANGELOG, timeout)
        try:
            return body.decode("utf-8") if body is not None else None
        except UnicodeDecodeError:
            return None
