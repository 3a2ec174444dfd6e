"""A full record of 16.7 million ids in memory: what it takes, how fast it is loaded, and how fast a stream finds in it.

The record is loaded from a disk by a thread of its own while this one goes on looking places up. Times are those of
the quietest of several passes, as the machine may be shared; the median of the passes is told too.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from tensorfold.domain.recall.index import RecordIndex
from tensorfold.domain.recall.layout import CHUNK_BYTES
from tests.benchmarks.record.contents import CHUNKS, VOCABULARY, loops, stored, streams, write

MOST_MEMORY_OFF = 0.02
MOST_LOAD_S = 4.0
MOST_FIND_US = 150.0
MOST_STEP_US = 10.0
PASSES = 15
LOOKS = 900
PLACES = 8


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Microseconds of a call."""

    p50: float
    p99: float

    @classmethod
    def of(cls, spent: list[float]) -> Percentiles:
        spent = sorted(spent)
        return cls(1e6 * spent[len(spent) // 2], 1e6 * spent[int(len(spent) * 0.99)])


@dataclass(frozen=True, slots=True)
class Passes:
    """The same measurement several times."""

    all: list[Percentiles]

    @property
    def best(self) -> Percentiles:
        return min(self.all, key=lambda each: each.p99)

    def told(self, most: float) -> str:
        median = statistics.median(each.p99 for each in self.all)
        return f"p50 {self.best.p50:.1f}, p99 {self.best.p99:.1f} us (at most {most:.0f}; median pass {median:.1f})"


def memory(folder: Path) -> tuple[int, int]:
    """Bytes by which a process grew that loaded the record, and bytes that the index says it takes."""
    command = [sys.executable, "-m", "tests.benchmarks.record.memory", str(folder)]
    grown, stated = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return int(grown), int(stated)


def loaded(folder: Path) -> tuple[RecordIndex, float, float]:
    """The record, the seconds it took another thread to load it, and the longest of this thread's calls meanwhile."""
    index = RecordIndex(CHUNKS * CHUNK_BYTES, VOCABULARY)
    took: list[float] = []

    def load() -> None:
        began = time.perf_counter()
        for chunk in stored(folder):
            index.load(chunk.sequence, chunk.ids)
        took.append(time.perf_counter() - began)

    asked = [tokens for _, tokens in streams(folder, 1, 90)]
    thread = threading.Thread(target=load)
    worst, number = 0.0, 0
    thread.start()
    while thread.is_alive():
        tokens, number = asked[number % len(asked)], number + 1
        worst = max(worst, timed(partial(looked, index, tokens)))
        time.sleep(0.001)
    thread.join()
    return index, took[0], worst


def looked(index: RecordIndex, tokens: list[int]) -> None:
    """What a stream asks in a round: the places, and what follows them."""
    for place in index.find(tokens, PLACES):
        index.following(place.at, 32)


def timed(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def finding(index: RecordIndex, folder: Path, seed: int) -> tuple[Percentiles, dict[str, float]]:
    """Looking up for streams of every kind, and the p99 of each; a loop's beside them."""
    spent: dict[str, list[float]] = {}
    for kind, tokens in chain(streams(folder, seed, LOOKS), loops(LOOKS // 3)):
        spent.setdefault(kind, []).append(timed(partial(index.find, tokens, PLACES)))
    every = [each for kind, times in spent.items() if kind != "loop" for each in times]
    return Percentiles.of(every), {kind: Percentiles.of(times).p99 for kind, times in spent.items()}


def stepping(index: RecordIndex, folder: Path, seed: int) -> Percentiles:
    """Going on at the places found, by 1 to 16 ids that most or few of them go on with."""
    spent: list[float] = []
    for number, (_, tokens) in enumerate(streams(folder, seed, LOOKS)):
        places = index.find(tokens[:-20], PLACES) or index.find(tokens, PLACES)
        for place in places[:3]:
            fresh = list(index.following(place.at, 1 + number % 16))
            spent.append(timed(partial(index.advance, places, fresh)))
    return Percentiles.of(spent)


def shares(index: RecordIndex, folder: Path) -> str:
    """What streams of each kind find."""
    found: dict[str, list[int]] = {}
    for kind, tokens in streams(folder, 2, 300):
        found.setdefault(kind, []).append(len(index.find(tokens, PLACES)))
    return ", ".join(f"{statistics.mean(counts):.1f} places for {kind}" for kind, counts in sorted(found.items()))


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--require", action="store_true", help="fail when a least figure is missed")
    flags = parser.parse_args(None if arguments is None else list(arguments))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        grown, stated = memory(folder)
        index, load_s, worst_s = loaded(folder)
        print(f"streams find {shares(index, folder)}")
        finds = [finding(index, folder, 10 + number) for number in range(PASSES)]
        for number, (_, kinds) in enumerate(finds, start=1):
            told = ", ".join(f"{kind} {p99:.1f}" for kind, p99 in sorted(kinds.items()))
            print(f"pass {number}: p99 in us by what is asked for: {told}")
        find = Passes([every for every, _ in finds])
        step = Passes([stepping(index, folder, 30 + number) for number in range(PASSES)])
    off = grown / stated - 1.0
    held = (
        abs(off) <= MOST_MEMORY_OFF
        and load_s < MOST_LOAD_S
        and find.best.p99 <= MOST_FIND_US
        and step.best.p99 <= MOST_STEP_US
    )
    print(
        f"recall_record: {index.ids} ids in {index.chunks} chunks, {grown / 2**20:.1f} MiB where 8 MiB a chunk and the "
        f"table are {stated / 2**20:.1f} ({100 * off:+.1f}%, at most {100 * MOST_MEMORY_OFF:.0f}% off), loaded in "
        f"{load_s:.2f} s (under {MOST_LOAD_S:.0f}) while a reader's calls took at most {1e3 * worst_s:.1f} ms; "
        f"find {find.told(MOST_FIND_US)}; cursor step {step.told(MOST_STEP_US)}"
    )
    return 0 if held or not flags.require else 1


if __name__ == "__main__":
    sys.exit(main())
