"""A suffix automaton over runs of ids: every run of ids that occurred, how often, and what followed it how often.

Grows by one id at a time; the counts are those of all runs added so far.
"""

from __future__ import annotations

from collections.abc import Sequence

ROOT = 0


class SuffixAutomaton:
    """States stand for sets of runs that end at the same places.

    Of a state, `length` is that of its longest run, `count` how often its runs occurred, `follow` the state behind each
    id that follows them, `link` the state of the longest end of its runs that also ends elsewhere.
    """

    def __init__(self) -> None:
        self.follow: list[dict[int, int]] = [{}]
        self.link = [-1]
        self.length = [0]
        self.count = [0]
        self._last = ROOT

    def add(self, run: Sequence[int]) -> None:
        """A whole run on its own: nothing runs across from the one before."""
        self._last = ROOT
        for token in run:
            self.extend(token)

    def extend(self, token: int) -> None:
        """One more id of the present run."""
        self._last = self._behind(token)
        state, count, link = self._last, self.count, self.link
        while state > ROOT:
            count[state] += 1
            state = link[state]

    def step(self, state: int, matched: int, token: int) -> tuple[int, int]:
        """The longest known end of a text once `token` follows it: its state and its length."""
        follow = self.follow
        while token not in follow[state]:
            if state == ROOT:
                return ROOT, 0
            state = self.link[state]
            matched = self.length[state]
        return follow[state][token], matched + 1

    def _behind(self, token: int) -> int:
        follow, link, length = self.follow, self.link, self.length
        at = self._last
        known = follow[at].get(token)
        if known is not None:
            return known if length[known] == length[at] + 1 else self._split(at, known, token)
        new = self._state(length[at] + 1, {}, ROOT, 0)
        while at >= 0 and token not in follow[at]:
            follow[at][token] = new
            at = link[at]
        if at >= 0:
            known = follow[at][token]
            link[new] = known if length[known] == length[at] + 1 else self._split(at, known, token)
        return new

    def _split(self, at: int, known: int, token: int) -> int:
        """A state for the shorter runs of `known`: those that end at `at` and then `token`."""
        follow, link = self.follow, self.link
        short = self._state(self.length[at] + 1, dict(follow[known]), link[known], self.count[known])
        link[known] = short
        while at >= 0 and follow[at].get(token) == known:
            follow[at][token] = short
            at = link[at]
        return short

    def _state(self, length: int, follow: dict[int, int], link: int, count: int) -> int:
        self.follow.append(follow)
        self.link.append(link)
        self.length.append(length)
        self.count.append(count)
        return len(self.length) - 1
