"""API keys as digests: a key itself is never held, and comparing one takes the same time whichever it resembles."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

import falcon

Key = tuple[str, str]


class KeyRing:
    """The keys a server takes. Whether it asks for one at all is settled when it is made."""

    def __init__(self, keys: Iterable[Key] = (), *, required: bool = False) -> None:
        """`keys` are (label, key) pairs that stay; a label may be shown in logs.

        Without any, the server is open, unless a key is `required`: then others may come by `rotate`.
        """
        self._lasting = _digests(keys)
        self._digests = self._lasting
        self.required = required or bool(self._lasting)

    def __len__(self) -> int:
        """How many keys are valid now; 0 opens nothing where one is required."""
        return len(self._digests)

    def __bool__(self) -> bool:
        """Whether a key is asked for, so that no shorthand takes a server without valid keys for an open one."""
        return self.required

    def rotate(self, keys: Iterable[Key]) -> None:
        """Take these beside the lasting ones, in place of those that came this way before; all at once, at any time.

        Raises ValueError on an open server: it checked nobody so far and would not begin to.
        """
        if not self.required:
            raise ValueError("the server is open")
        # One assignment: a request is compared with the keys before it or with those after it.
        self._digests = (*self._lasting, *_digests(keys))

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


def _digests(keys: Iterable[Key]) -> tuple[tuple[str, bytes], ...]:
    return tuple((label, _digest(key.encode())) for label, key in keys)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
