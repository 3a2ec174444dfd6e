"""The decayed delta rule in float64: what gated delta nets and Kimi delta attention do with their state each token.

Source: "Gated Delta Networks" (Yang, Kautz, Hatamizadeh), the recurrent form; a decay per key channel is Kimi Linear's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def delta_step(
    state: Floats, query: Floats, key: Floats, value: Floats, decay_log: Floats, beta: Floats
) -> tuple[Floats, Floats]:
    """One token: the result [H, V] and the state after it.

    `state` [H, K, V], `query` and `key` [H, K], `value` [H, V], `beta` [H]; `decay_log`, at most 0, is [H] or, one for
    each key channel, [H, K]. The state fades, what it predicts for the key is corrected towards the value by `beta`,
    and the query reads the state after that.
    """
    after = np.empty_like(state)
    out = np.empty_like(value)
    for head in range(len(state)):
        faded = state[head] * np.exp(np.atleast_1d(decay_log[head]))[:, None]
        predicted = key[head] @ faded
        correction = beta[head] * (value[head] - predicted)
        after[head] = faded + np.outer(key[head], correction)
        out[head] = query[head] @ after[head]
    return out, after
