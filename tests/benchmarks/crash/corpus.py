"""Requests whose serial replies are known, as pieces of a record: what lies in it is what streams would copy."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache

import numpy as np

from tensorfold.domain.recall.layout import Ids
from tensorfold.domain.sampling import Sampling, derive_seed
from tests.benchmarks.crash.journal import runs
from tests.fakes.hash_law import HashLaw
from tests.fakes.serial import SerialCase, SerialReply, serial_references

VOCABULARY = 64
REPLY = 40
_GRAM = 8


class Corpus:
    """`count` cases, half of them sampled, with their replies. Ids are 0 to 63, so zeros would pass for ids."""

    def __init__(self, count: int = 48, seed: int = 1) -> None:
        rng = random.Random(seed)
        self.law = HashLaw(vocabulary=VOCABULARY, salt=seed)
        self.cases: list[SerialCase] = []
        for number in range(count):
            prompt = tuple(rng.randrange(VOCABULARY) for _ in range(rng.randint(20, 36)))
            sampling = Sampling() if number % 2 else Sampling(derive_seed(prompt), 0.8, 20, 0.95)
            self.cases.append(SerialCase(prompt, REPLY, sampling))
        self.replies: list[SerialReply] = serial_references(self.law, self.cases)
        self._grams = {
            case.prompt[at : at + _GRAM]: number
            for number, case in enumerate(self.cases)
            for at in range(len(case.prompt) - _GRAM + 1)
        }

    @classmethod
    @cache
    def shared(cls) -> Corpus:
        """The one that a run and its processes use."""
        return cls()

    def piece(self, rng: random.Random) -> Ids:
        """A prompt with its reply, or another's; now and then a short part of one, or two of them."""
        ids = self._whole(rng)
        chance = rng.random()
        if chance < 0.25:
            low = rng.randrange(8)
            return ids[low : low + rng.randint(17, 24)]
        return np.concatenate([ids, self._whole(rng)]) if chance > 0.85 else ids

    def held(self, loaded: Mapping[int, Ids]) -> list[int]:
        """Cases of which a part of the prompt lies in the record."""
        found = set()
        for ids in loaded.values():
            for _, run in runs(ids):
                values = run.tolist()
                for at in range(0, len(values) - _GRAM + 1, 4):
                    number = self._grams.get(tuple(values[at : at + _GRAM]))
                    if number is not None:
                        found.add(number)
        return sorted(found)

    def _whole(self, rng: random.Random) -> Ids:
        asked = rng.randrange(len(self.cases))
        answered = asked if rng.random() < 0.7 else rng.randrange(len(self.cases))
        return np.array(self.cases[asked].prompt + self.replies[answered].tokens, dtype=np.int32)
