"""The sampler rule written slowly and plainly: Python numbers, lists, fractions. Shares no code with the domain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from tensorfold.domain.sampling import Sampling


def mix(x: int) -> int:
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 % 2**64
    x ^= x >> 27
    x = x * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


def hashed(seed: int, position: int, token: int) -> int:
    h = mix((seed + 0x9E3779B97F4A7C15) % 2**64)
    h = mix(h ^ (position * 0xD1B54A32D192ED03 % 2**64))
    return mix(h ^ token)


def uniform(seed: int, position: int, token: int) -> float:
    return min((hashed(seed, position, token) >> 11) * 2.0**-53 + 2.0**-54, 1 - 2.0**-53)


def gumbel(seed: int, position: int, token: int) -> float:
    return -math.log(-math.log(uniform(seed, position, token)))


def kept(candidates: Sequence[tuple[float, int]], s: Sampling) -> list[tuple[float, int]]:
    """(scaled logit, id) of the candidates that noise decides between, in order."""
    temperature = max(s.temperature, 1e-6)
    clean = [(-math.inf if math.isnan(logit) else logit, token) for logit, token in candidates]
    ordered = [(v / temperature, token) for v, token in sorted(clean, key=lambda c: (-c[0], c[1]))]
    if s.top_k > 0:
        ordered = ordered[: s.top_k]
    top = ordered[0][0]
    if math.isinf(top):
        return ordered[:1]
    if 0 < s.top_p < 1:
        weights = [math.floor(Fraction(2**40) * Fraction(math.exp(v - top))) for v, _ in ordered]
        needed = Fraction(s.top_p) * sum(weights)
        reached, count = 0, 0
        while reached < needed:
            reached += weights[count]
            count += 1
        ordered = ordered[:count]
    if s.min_p > 0:
        ordered = [c for c in ordered if c == ordered[0] or c[0] >= top + math.log(s.min_p)]
    return ordered


def draw(logits: Sequence[float], position: int, s: Sampling, ids: Sequence[int] | None = None) -> int:
    candidates = list(zip(logits, range(len(logits)) if ids is None else ids, strict=True))
    if s.temperature <= 0:
        return kept(candidates, Sampling(temperature=1.0, top_k=1))[0][1]
    best, chosen = -math.inf, -1
    for v, token in kept(candidates, s):
        score = v + gumbel(s.seed, position, token)
        if score > best or chosen < 0:
            best, chosen = score, token
    return chosen
