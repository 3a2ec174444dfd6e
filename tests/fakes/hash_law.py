"""The law of the hash model: which state a history leaves, and which logits that state gives.

Pure arithmetic over ids. A state is a rolling 64-bit hash, so swapping, dropping or repeating one absorbed token shows
in every later row; logits lie on coarse steps, so that equal tops happen often. Knows no lane, launch or draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

WORD = (1 << 64) - 1
STATE_STEP = 0x9E3779B97F4A7C15
ID_STEP = 0xD1B54A32D192ED03
MIX_A = 0xBF58476D1CE4E5B9
MIX_B = 0x94D049BB133111EB

_STEP = np.uint64(STATE_STEP)
_A, _B = np.uint64(MIX_A), np.uint64(MIX_B)
_30, _27, _31, _40, _16, _32 = (np.uint64(n) for n in (30, 27, 31, 40, 16, 32))
# Rows up to which plain integers are faster than arrays.
_FEW = 3
_ONE, _LOW = np.uint64(1), np.uint64(0xFFFF)


def mix(x: int) -> int:
    """The splitmix64 finaliser of one unsigned 64-bit integer."""
    x ^= x >> 30
    x = (x * MIX_A) & WORD
    x ^= x >> 27
    x = (x * MIX_B) & WORD
    return x ^ (x >> 31)


def absorb(state: int, token: int) -> int:
    """The state after one more token."""
    return mix((state * STATE_STEP + token + 1) & WORD)


def absorb_all(state: int, ids: Sequence[int]) -> int:
    """The state after several more tokens, in order."""
    for token in ids:
        state = absorb(state, token)
    return state


def _mix_rows(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    _mix_most(z)
    z ^= z >> _31
    return z


def _mix_most(z: NDArray[np.uint64]) -> None:
    """`mix` without its last step, which changes none of the upper 31 bits."""
    z ^= z >> _30
    z *= _A
    z ^= z >> _27
    z *= _B


def absorb_rows(states: NDArray[np.uint64], tokens: NDArray[np.int64]) -> NDArray[np.uint64]:
    """`absorb` of many states at once: shapes [R], uint64 and int64."""
    return _mix_rows(states * _STEP + tokens.astype(np.uint64) + _ONE)


@dataclass(frozen=True)
class HashLaw:
    """Settings of the law.

    `vocabulary` ids get logits in [0, `spread`), cut to `mantissa_bits` bits as a short float would be. In `tie_share`
    of all rows a second id is lifted to the top, so that the top two are equal. In `habit_share` of all rows the id
    that habitually follows the row's own token is lifted above all others: replies then repeat themselves, for copies
    to find.
    """

    vocabulary: int = 64
    salt: int = 0x7E4501F01D
    spread: float = 8.0
    mantissa_bits: int = 7
    tie_share: float = 0.25
    habit_share: float = 0.0
    _keys: NDArray[np.uint64] = field(init=False, repr=False, compare=False)
    _follow: NDArray[np.int64] = field(init=False, repr=False, compare=False)
    _step: np.float32 = field(init=False, repr=False, compare=False)
    _grid: np.uint32 = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ids = np.arange(self.vocabulary, dtype=np.uint64)
        object.__setattr__(self, "_keys", (ids * np.uint64(ID_STEP))[None, :])
        follow = _mix_rows(ids + np.uint64(mix(self.salt ^ WORD))) % np.uint64(self.vocabulary)
        object.__setattr__(self, "_follow", follow.astype(np.int64))
        object.__setattr__(self, "_step", np.float32(self.spread / (1 << 24)))
        object.__setattr__(self, "_grid", np.uint32(0xFFFFFFFF << (23 - self.mantissa_bits) & 0xFFFFFFFF))

    @property
    def start(self) -> int:
        """The state of an empty history."""
        return self.salt & WORD

    def state_of(self, ids: Sequence[int]) -> int:
        """The state of a whole history."""
        return absorb_all(self.start, ids)

    def habit(self, token: int) -> int:
        """The id that habitually follows `token`."""
        return int(self._follow[token])

    def logits(self, states: NDArray[np.uint64], tokens: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float32]:
        """Rows of logits [R, vocabulary] for states [R]; `tokens[r]` is the last id that state r absorbed."""
        z = states[:, None] ^ self._keys
        _mix_most(z)
        z >>= _40
        rows = z.astype(np.float32)
        rows *= self._step
        bits = rows.view(np.uint32)
        bits &= self._grid
        if len(rows) <= _FEW:
            for row, state, token in zip(rows, states.tolist(), tokens, strict=True):
                self._finish(row, state, int(token))
            return rows
        if self.habit_share > 0.0:
            self._lift_habits(rows, states, tokens)
        if self.tie_share > 0.0:
            self._tie_tops(rows, states)
        return rows

    def _finish(self, row: NDArray[np.float32], state: int, token: int) -> None:
        """Habit and tie of one row: what the array forms below do, without their fixed cost."""
        if state >> 32 & 0xFFFF < round(self.habit_share * 0x10000):
            row[self._follow[token]] = self.spread * 1.5
        if state & 0xFFFF < round(self.tie_share * 0x10000):
            best = int(row.argmax())
            row[(best + (state >> 16) % (self.vocabulary - 1) + 1) % self.vocabulary] = row[best]

    def _lift_habits(
        self, rows: NDArray[np.float32], states: NDArray[np.uint64], tokens: Sequence[int] | NDArray[np.int64]
    ) -> None:
        chosen = np.flatnonzero(((states >> _32) & _LOW) < np.uint64(round(self.habit_share * 0x10000)))
        if chosen.size:
            rows[chosen, self._follow[np.asarray(tokens)[chosen]]] = np.float32(self.spread * 1.5)

    def _tie_tops(self, rows: NDArray[np.float32], states: NDArray[np.uint64]) -> None:
        chosen = np.flatnonzero((states & _LOW) < np.uint64(round(self.tie_share * 0x10000)))
        if chosen.size:
            some = rows[chosen]
            best = some.argmax(axis=1)
            offset = ((states[chosen] >> _16) % np.uint64(self.vocabulary - 1)).astype(np.int64) + 1
            rows[chosen, (best + offset) % self.vocabulary] = some[np.arange(chosen.size), best]


def nudge(rows: NDArray[np.float32]) -> None:
    """Add one unit in the last place to every second logit, in place: the smallest fault that can change a draw."""
    bits = rows.view(np.uint32)
    bits[:, 1::2] += np.uint32(1)
