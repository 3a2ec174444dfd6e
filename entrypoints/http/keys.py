"""API keys as digests: a key itself is never held, and comparing one takes the same time whichever it resembles."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

import falcon


class KeyRing:
    """The keys a server takes. Empty: the server is open."""

    def __init__(self, keys: Iterable[tuple[str, str]] = ()) -> None:
        """`keys` are (label, key) pairs; a label may be shown in logs."""
        self._digests = tuple((label, _digest(key.encode())) for label, key in keys)

    def __len__(self) -> int:
        return len(self._digests)

    def label_of(self, candidate: bytes) -> str | None:
        """The label of a key, or None. Every digest is compared, in constant time."""
        digest = _digest(candidate)
        found: str | None = None
        for label, known in self._digests:
            if hmac.compare_digest(known, digest) and found is None:
                found = label
        return found

    def label_for(self, req: falcon.Request) -> str | None:
        """The label of the key that a request carries in `Authorization: Bearer` or `x-api-key`, or None."""
        labels = [self.label_of(candidate) for candidate in _candidates(req)]
        return next((label for label in labels if label is not None), None)


def carries_key(req: falcon.Request) -> bool:
    """Whether a request carries anything that could be a key."""
    return bool(_candidates(req))


def _candidates(req: falcon.Request) -> list[bytes]:
    # Header values arrive as latin-1 text of the bytes that were sent.
    scheme, _, bearer = (req.get_header("Authorization") or "").partition(" ")
    found = [bearer.strip()] if scheme.lower() == "bearer" else []
    found.append((req.get_header("x-api-key") or "").strip())
    return [value.encode("latin-1", "replace") for value in found if value]


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
