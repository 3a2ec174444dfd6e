"""Replies drawn at random from a grammar's masks, pulled towards the ends of texts so that they end."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from tensorfold.application.ports.services import GrammarMatcher
from tests.fakes.tokenizer import FakeTokenizer

_CLOSERS = b'"</>}]\n|'


def walk(
    matcher: GrammarMatcher, tokenizer: FakeTokenizer, rng: random.Random, ends: Sequence[str] = (), most: int = 3000
) -> list[int]:
    """A whole reply with its end token; `ends` are texts that end a value."""
    ids: list[int] = []
    while not ids or ids[-1] != tokenizer.end_id:
        assert len(ids) < most, tokenizer.decode(ids)[-200:]
        bits = np.unpackbits(matcher.mask().view(np.uint8), bitorder="little")
        allowed = np.flatnonzero(bits).tolist()
        ids.append(_drawn(allowed, tokenizer, rng, tokenizer.decode(ids[-24:]), ends))
        matcher.advance(ids[-1:])
    return ids


def _drawn(allowed: list[int], tokenizer: FakeTokenizer, rng: random.Random, tail: str, ends: Sequence[str]) -> int:
    if tokenizer.end_id in allowed and rng.random() < 0.6:
        return tokenizer.end_id
    for end in ends:
        begun = max((n for n in range(len(end)) if tail.endswith(end[:n])), default=0)
        if ord(end[begun]) in allowed and rng.random() < (0.95 if begun else 0.5):
            return ord(end[begun])
    special = tokenizer.token_bytes.special
    closing = [token for token in allowed if token in special or (token < 256 and token in set(_CLOSERS))]
    return rng.choice(closing if closing and rng.random() < 0.5 else allowed)
