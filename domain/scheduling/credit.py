"""How long running replies may decode between two slices of a prompt. Arithmetic only; the caller owns the clock."""

from __future__ import annotations


class DecodeCredit:
    """After a slice that took T seconds, rounds may take `share * T`; what the last round overdrew is carried over.

    Unspent credit is not. With `share` 0 a prompt fills without pausing. At most `most` rounds run between slices.
    """

    def __init__(self, share: float, most: int = 32) -> None:
        self._share = share
        self._most = most
        self._left = 0.0
        self._rounds = 0

    def slice_took(self, seconds: float) -> None:
        """Grant credit for one slice of a prompt."""
        self._left = min(self._left, 0.0) + self._share * seconds
        self._rounds = 0

    def round_took(self, seconds: float) -> None:
        """Spend credit on one round."""
        self._left -= seconds
        self._rounds += 1

    def owes_rounds(self) -> bool:
        """Whether running replies may take another round before the next slice."""
        return self._left > 0.0 and self._rounds < self._most
