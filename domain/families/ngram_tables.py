"""The constants of a hashed n-gram table, which follow from a config's seed and sizes: multipliers and table sizes.

Integers alone. Checkpoints repeat the constants; whoever loads one holds them against these.
Source: the family's reference implementation.
"""

from __future__ import annotations

from functools import lru_cache

_GOLDEN, _MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1
_LARGEST = (1 << 63) - 1
_LAYER_STEP = 10_007
_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


def multipliers(seed: int, table: int, count: int, vocabulary: int) -> tuple[int, ...]:
    """The odd multipliers of the `table`-th table, small enough that no product with an id passes 63 bits."""
    half = max(_LARGEST // vocabulary // 2, 1)
    return tuple(2 * (_mixed(seed + _LAYER_STEP * table + _GOLDEN * (i + 2)) % half) + 1 for i in range(count))


@lru_cache(maxsize=8)
def primes_from(first: int, count: int) -> tuple[int, ...]:
    """The `count` primes at and above `first`, which is at least 2 and below 3.3e24."""
    found: list[int] = []
    candidate = first
    while len(found) < count:
        if _is_prime(candidate):
            found.append(candidate)
        candidate += 1
    return tuple(found)


def _mixed(value: int) -> int:
    """SplitMix64's mixing of one word."""
    value &= _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _is_prime(number: int) -> bool:
    """Miller and Rabin's test with the witnesses that make it certain in this range."""
    if number < 2 or any(number % small == 0 for small in _WITNESSES):
        return number in _WITNESSES
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_passes(pow(witness, odd, number), number, twos) for witness in _WITNESSES)


def _passes(power: int, number: int, twos: int) -> bool:
    if power in (1, number - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return True
    return False
