"""Random lattices for tests, and the plainest search of one: every path scored, no heap."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorfold.domain.drafting.lattice import Lattice, SearchSettings
from tensorfold.domain.sampling import Sampling, noise

Path = tuple[int, ...]


def random_lattice(seed: int, widths: Sequence[int], vocabulary: int = 1000) -> Lattice:
    """As many depths as `widths`, each of distinct ids in no order, coarse scores that tie, and pairs."""
    rng = np.random.default_rng(seed)
    ids, scores, pairs, above = [], [], [], 1
    for width in widths:
        ids.append(rng.choice(vocabulary, width, replace=False).astype(np.int64))
        scores.append(np.round(rng.normal(0, 2, width) * 4) / 4)
        pairs.append(np.round(rng.normal(0, 1, (above, width)) * 4) / 4)
        above = width
    return Lattice(tuple(ids), tuple(scores), tuple(pairs))


def all_paths(lattice: Lattice, position: int, sampling: Sampling, settings: SearchSettings) -> dict[Path, float]:
    """The value of every path of ids, without cuts: log chances summed along it."""
    values: dict[Path, float] = {}
    level: dict[tuple[int, Path], float] = {(0, ()): 0.0}
    for depth, ids in enumerate(lattice.ids):
        below: dict[tuple[int, Path], float] = {}
        luck = np.zeros(len(ids)) if sampling.greedy else noise(sampling.seed, position + 1 + depth, ids)
        temperature = 0.0 if sampling.greedy else sampling.temperature
        for (above, path), value in level.items():
            logits = lattice.scores[depth] + settings.pair * lattice.pair[depth][above]
            logits = (logits + temperature * settings.noise * luck) / (settings.spread * max(temperature, 1.0))
            logs = logits - np.log(np.exp(logits).sum())
            for place, log in enumerate(logs.tolist()):
                below[place, (*path, int(ids[place]))] = value + log
        values |= {path: value for (_, path), value in below.items()}
        level = below
    return values


def paths_of(tokens: Sequence[int], parents: Sequence[int]) -> list[Path]:
    """The ids from the pending token down to each draft."""
    paths: list[Path] = [()]
    for token, parent in zip(tokens, parents, strict=True):
        paths.append((*paths[parent], token))
    return paths[1:]
