"""How sure a drafter may be taken to be: the spread of its logits' errors, learned from which candidates came true.

A sure drafter deserves deep and narrow trees, an unsure one wide and shallow ones. Counts likelihoods alone; knows no
stream. It begins at the published calibration and stays there until the evidence for another one is clear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from tensorfold.domain.drafting.lattice import PUBLISHED, Floats, Lattice, SearchSettings, finite
from tensorfold.domain.sampling import Sampling, noise

SPREADS = ((0.5, 1.0), (0.75, 0.9), (1.05, 0.8), (PUBLISHED.spread, PUBLISHED.noise), (2.2, 0.6))
"""Spread and weight of the noise, from a sure drafter to an unsure one; the surer, the more the noise tells."""
DECAY = 0.995
"""Weight that older tokens keep at each new one: about the last 200 count."""
HEAD_START = 3.0
"""Nats by which another calibration must have been likelier than the published one."""
_Told = tuple[Floats, Floats | None, int]
"""Of one token that came: logits of the candidates, the target's noise of them if it draws with any, and its place."""


class Sureness:
    """Which of SPREADS made the tokens that came likeliest."""

    def __init__(self) -> None:
        self._nats = np.zeros(len(SPREADS))
        self._head_start = np.array([HEAD_START * (pair == (PUBLISHED.spread, PUBLISHED.noise)) for pair in SPREADS])
        self._spread, self._noise = np.array(SPREADS).T

    def settings(self, branches: int) -> SearchSettings:
        """The search's constants as they are now believed to be."""
        spread, weight = SPREADS[int((self._nats + self._head_start).argmax())]
        return replace(PUBLISHED, spread=spread, noise=weight, branches=branches)

    def observe(self, lattice: Lattice, position: int, sampling: Sampling, tokens: Sequence[int]) -> None:
        """`tokens` joined the reply behind the pending token at `position`, for which the drafter gave `lattice`.

        Told as far as the tokens are candidates: behind another one the drafter was not asked.
        """
        temperature = 0.0 if sampling.greedy else min(max(sampling.temperature, 1e-6), 1e6)
        told: list[_Told] = []
        above = 0
        for depth, token in enumerate(tokens[: len(lattice.ids)]):
            ids = lattice.ids[depth]
            places = ids.tolist()
            if places.count(token) != 1:
                break
            logits = lattice.scores[depth] + PUBLISHED.pair * lattice.pair[depth][above]
            above = places.index(token)
            luck = temperature * noise(sampling.seed, position + 1 + depth, ids) if temperature else None
            told.append((logits, luck, above))
        for _, alike in groupby(told, key=lambda each: len(each[0])):
            for nats in self._likelihoods(list(alike), self._spread * max(temperature, 1.0)):
                self._nats = DECAY * self._nats - nats

    def _likelihoods(self, told: Sequence[_Told], spread: Floats) -> Floats:
        """What each of SPREADS loses by each token: nats [tokens, spreads]; all tokens had as many candidates."""
        logits = finite(np.array([each for each, _, _ in told]))[:, None, :]
        if told[0][1] is not None:
            luck = np.array([each for _, each, _ in told])[:, None, :]
            logits = logits + self._noise[:, None] * luck
        true = np.array([place for _, _, place in told])
        scaled = (logits - logits[np.arange(len(true)), :, true][:, :, None]) / spread[:, None]
        top = scaled.max(axis=2, keepdims=True)
        lost: Floats = top[:, :, 0] + np.log(np.exp(scaled - top).sum(axis=2))
        return lost
