"""Masks: a masked row draws only what its own mask allows, and no other row notices."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.windows import chain
from tests.contracts.target_model.rows import SETTINGS, ModelSubject, driving, texts


def _mask(subject: ModelSubject, allowed: Sequence[int]) -> NDArray[np.uint32]:
    words = np.zeros((subject.model.limits.vocabulary + 31) // 32, dtype=np.uint32)
    for token in allowed:
        words[token // 32] |= np.uint32(1 << token % 32)
    return words


def a_masked_row_draws_from_its_mask_alone(subject: ModelSubject) -> None:
    """With one id allowed it is that id, greedy and sampled; with several it is one of them."""
    vocabulary = subject.model.limits.vocabulary
    rng = random.Random(1)
    for prompt in texts(subject, 4, 91):
        for sampling in SETTINGS:
            only = rng.randrange(vocabulary)
            some = rng.sample(range(vocabulary), 5)
            with driving(subject, prompt) as (driver,):
                assert driver.look(chain(prompt[-1]), sampling, (_mask(subject, [only]),))[0].draw == only
                assert driver.look(chain(prompt[-1]), sampling, (_mask(subject, some),))[0].draw in some


def a_mask_that_allows_all_changes_nothing(subject: ModelSubject) -> None:
    """Nor do masks that allow the token that would be drawn anyway, for a greedy row."""
    vocabulary = subject.model.limits.vocabulary
    for prompt in texts(subject, 4, 92):
        with driving(subject, prompt) as (driver,):
            for sampling in SETTINGS:
                free = driver.look(chain(3), sampling)
                assert driver.look(chain(3), sampling, (_mask(subject, range(vocabulary)),))[0].draw == free[0].draw
            drawn = driver.look(chain(3))[0].draw
            others = [drawn, (drawn + 1) % vocabulary, (drawn + 2) % vocabulary]
            assert driver.look(chain(3), masks=(_mask(subject, others),))[0].draw == drawn


def a_mask_touches_its_own_row_alone(subject: ModelSubject) -> None:
    """Rows beside a masked one, and the same rows in the next launch, draw as if there were no mask."""
    width = min(subject.chain_width, 4)
    for prompt in texts(subject, 4, 93):
        (tokens,) = texts(subject, 1, 94, width, width)
        window = chain(tokens[0], tokens[1:])
        for sampling in SETTINGS:
            with driving(subject, prompt) as (driver,):
                free = driver.look(window, sampling)
                for row in range(width):
                    wrong = (free[row].draw + 1) % subject.model.limits.vocabulary
                    masks = tuple(_mask(subject, [wrong]) if r == row else None for r in range(width))
                    masked = driver.look(window, sampling, masks)
                    assert [r.draw for r in masked] == [wrong if r == row else free[r].draw for r in range(width)]
                    assert [r.draw for r in driver.look(window, sampling)] == [r.draw for r in free]
