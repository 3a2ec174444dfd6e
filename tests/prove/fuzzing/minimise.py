"""Makes a failing input small: parts are left out for as long as it fails in the same way."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tests.prove.fuzzing.inputs import Input

MOST_TRIES = 600
_PARTS = re.compile(rb'"(?:[^"\\]|\\.)*"|\r\n|[A-Za-z0-9_.+-]+|\s+|.', re.DOTALL)


class Minimiser:
    """`fails` tells whether an input fails as the first one did."""

    def __init__(self, fails: Callable[[Input], bool], most_tries: int = MOST_TRIES) -> None:
        self._fails = fails
        self._left = most_tries

    def shrunk(self, tried: Input) -> Input:
        """A smaller input that fails too, or the same one."""
        for simpler in (replace(tried, cuts=()), replace(tried, headers=(), cuts=()), replace(tried, wanted=None)):
            if simpler != tried and self._still(simpler):
                tried = simpler
        tried = self._as_json(tried)
        tried = self._with_fewer(tried, _PARTS.findall(tried.data))
        return self._with_fewer(tried, [bytes((byte,)) for byte in tried.data])

    def _as_json(self, tried: Input) -> Input:
        """A body that is JSON loses members, items and letters first."""
        try:
            value = json.loads(tried.data)
        except (ValueError, RecursionError):
            return tried
        plain = tried.with_data(json.dumps(value).encode())
        if not tried.route or not self._still(plain):
            return tried
        while self._left > 0:
            candidates = ((small, plain.with_data(json.dumps(small).encode())) for small in _smaller(value))
            found = next((pair for pair in candidates if self._still(pair[1])), None)
            if found is None:
                break
            value, plain = found
        return plain

    def _with_fewer(self, tried: Input, parts: Sequence[bytes]) -> Input:
        """Leave out runs of parts, long ones first."""
        kept = list(parts)
        size = max(1, len(kept) // 2)
        while self._left > 0:
            at, shorter = 0, False
            while at < len(kept) and self._left > 0:
                fewer = kept[:at] + kept[at + size :]
                candidate = tried.with_data(b"".join(fewer))
                if fewer != kept and self._still(candidate):
                    kept, tried, shorter = fewer, candidate, True
                else:
                    at += size
            if size == 1 and not shorter:
                break
            size = max(1, size // 2)
        return tried

    def _still(self, candidate: Input) -> bool:
        self._left -= 1
        return self._left >= 0 and self._fails(candidate)


def _smaller(value: Any) -> Iterator[Any]:
    """Values with one part less, outer parts first."""
    if isinstance(value, dict):
        for name in value:
            yield {key: part for key, part in value.items() if key != name}
        for name, part in value.items():
            yield from (value | {name: small} for small in _smaller(part))
    elif isinstance(value, list):
        yield from (value[:at] + value[at + 1 :] for at in range(len(value)))
        for at, part in enumerate(value):
            yield from ([*value[:at], small, *value[at + 1 :]] for small in _smaller(part))
    elif isinstance(value, str) and value:
        yield value[: len(value) // 2]
