"""The flags that proofs over cells have in common, and the seed: drawn where none is given, and told by the proof."""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProofFlags:
    """Tokens to compare, the seed of every draw, and processes that cells are spread over."""

    tokens: int
    seed: int
    processes: int


def proof_flags(about: str | None, tokens: int, arguments: Sequence[str] | None, meaning: str) -> ProofFlags:
    """Read them; `tokens` is the default of --tokens, whose `meaning` its help tells."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--tokens", type=int, default=tokens, help=meaning)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args(arguments)
    seed = random.SystemRandom().getrandbits(32) if given.seed is None else given.seed
    return ProofFlags(given.tokens, seed, given.processes)
