"""Paths found on the device against `domain.verification`: `python -m tests.kernels.triton.acceptance_checks`."""

from __future__ import annotations

import os

if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"

    from tests.kernels.triton.quick import quicken

    quicken()

import random

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]
from numpy.typing import NDArray

from tensorfold.adapters.cuda.acceptance import WindowPaths
from tensorfold.domain.verification import Acceptance, accept
from tensorfold.domain.windows import Window, chain, tree

Asked = tuple[Window, int, frozenset[int]]


def random_window(chance: random.Random, most: int) -> Window:
    """A chain or a tree over few ids, so that draws meet drafts and siblings share tokens."""
    count = chance.randint(0, most - 1)
    drafts = [chance.randint(0, 3) for _ in range(count)]
    if chance.random() < 0.4:
        forced = [chance.randint(0, 3) for _ in range(chance.randint(0, most - 1 - count))]
        return chain(chance.randint(0, 3), drafts, forced)
    return tree(0, drafts, [chance.randint(max(0, row - 4), row) for row in range(count)])


def acceptance(row: NDArray[np.int32], window: Window) -> Acceptance:
    """One window's line of `kept`, on the host, in the domain's words."""
    length, pending = int(row[0]), int(row[1])
    path = tuple(row[2 : 2 + length].tolist())
    return Acceptance(path, (*(window.tokens[each] for each in path[window.forced + 1 :]), pending))


def paths_equal(device: str, asked: list[Asked], width: int, chance: random.Random) -> None:
    rows = sum(len(window) for window, _, _ in asked)
    paths = WindowPaths(len(asked) + 1, width, rows + 3, device)
    paths.send(asked)
    # Mostly a draw that some child carries, else one that none may.
    draws = []
    for window, _, _ in asked:
        for row in range(len(window)):
            children = [t for t, p in zip(window.tokens, window.parents, strict=True) if p == row]
            draws.append(chance.choice(children) if children and chance.random() < 0.8 else chance.randint(0, 4))
    kept = paths.follow(torch.tensor([*draws, 0, 0, 0], dtype=torch.int32, device=device)).cpu().numpy()
    at = 0
    for line, (window, room, stops) in zip(kept, asked, strict=False):
        expected = accept(window, draws[at : at + len(window)], room, stops)
        assert acceptance(line, window) == expected, (window, room, stops)
        at += len(window)


def check_paths_are_the_domains(device: str) -> None:
    chance = random.Random(1)
    for _ in range(100 if device == "cuda" else 3):
        asked = [
            (
                random_window(chance, 16),
                chance.choice([1, 2, 3, 5, 100]),
                frozenset(chance.sample(range(5), chance.randint(0, 1))),
            )
            for _ in range(40)
        ]
        paths_equal(device, asked, 16, chance)


def check_a_long_chain_stands_whole(device: str) -> None:
    window = chain(7, [8 + n for n in range(63)])
    paths = WindowPaths(1, 64, 64, device)
    paths.send([(window, 1000, frozenset())])
    draws = torch.arange(8, 72, dtype=torch.int32, device=device)
    assert acceptance(paths.follow(draws).cpu().numpy()[0], window).path == tuple(range(64))


if __name__ == "__main__":
    for named, check in list(vars().items()):
        if named.startswith("check_"):
            check("cpu")
            print(named, flush=True)
