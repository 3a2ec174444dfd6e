"""The thinking budget: a thought that still goes on at the budget's last token is closed there, whatever is drawn.

The cut depends on the count of reply tokens alone, so it lands at the same token however the tokens were drafted.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorfold.domain.conversation.thoughts import ThoughtSplitter
from tensorfold.domain.conversation.token_bytes import TokenBytes
from tensorfold.domain.gates.gate import Cut


class ThinkingBudget:
    """The gate of one reply: its `budget`-th token, and any later one inside a thought, becomes the first of `close`.

    The rest of `close` follows undrawn. `thoughts` tells where thoughts begin and end.
    """

    __slots__ = ("_begun", "_budget", "_bytes", "_close", "_count", "_due", "_thoughts")

    def __init__(self, token_bytes: TokenBytes, thoughts: ThoughtSplitter, budget: int, close: Sequence[int]) -> None:
        if budget < 1 or not close:
            raise ValueError("a thinking budget needs at least one token, and tokens that close a thought")
        self._bytes = token_bytes
        self._thoughts = thoughts
        self._budget = budget
        self._close = tuple(close)
        self._count = 0
        self._due: tuple[int, ...] = ()
        self._begun = False

    def scan(self, tokens: Sequence[int]) -> Cut | None:
        """The first token at which a thought is over its budget."""
        if self._count + len(tokens) < self._budget:
            return None
        ahead = self._copy()
        for index, token in enumerate(tokens):
            if ahead._over:
                return Cut(index, self._close)
            ahead._take(token)
        return None

    def observe(self, tokens: Sequence[int]) -> None:
        """Move on past tokens that joined the reply."""
        for token in tokens:
            self._take(token)

    def room(self) -> int | None:
        """Tokens up to and with the budget's last one, while a thought goes on."""
        if not self._thoughts.inside or self._due:
            return None
        return max(1, self._budget - self._count)

    @property
    def _over(self) -> bool:
        """Whether the next token closes the thought."""
        return not self._due and self._thoughts.inside and self._count + 1 >= self._budget

    def _take(self, token: int) -> None:
        if self._over:
            self._due = self._close[1:]
        elif self._due:
            self._due = self._due[1:] if token == self._due[0] else ()
        data, self._begun = self._bytes.shown(token, self._begun)
        self._thoughts.feed(data)
        self._count += 1

    def _copy(self) -> ThinkingBudget:
        other = object.__new__(ThinkingBudget)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        other._thoughts = self._thoughts.copy()
        return other
