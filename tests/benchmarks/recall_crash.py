"""The record under kills, power cuts and flipped bits: what opens, what is lost, and whether any reply changes.

Real processes are killed while they write a record. On a simulated disk every state that a power cut could leave, at
every moment of every scenario, is opened: all of them where they are few, a sample where they are many. Streams copy
from a part of these records and must give the serial reply. `--require` exits with 1 when anything is amiss or fewer
kills or images than asked were made.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.crash.corpus import Corpus
from tests.benchmarks.crash.kills import Killing
from tests.benchmarks.crash.looking import look
from tests.benchmarks.crash.replies import compare
from tests.benchmarks.crash.tally import Tally


def measure(kills: int, images: int, seed: int, tally: Tally) -> None:
    """Kills first, since processes are forked before any thread runs; then images; then streams on some of both."""
    corpus = Corpus.shared()
    with tempfile.TemporaryDirectory(prefix="tensorfold-crash-") as folder:
        killing = Killing(Path(folder) / "record", tally, corpus, random.Random(seed))
        killing.run(kills)
    kept = look(tally, corpus, images, seed)
    compare(killing.kept + kept, corpus, tally, seed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=2000, help="processes killed while they write")
    parser.add_argument(
        "--images",
        type=int,
        default=100_000,
        help="different states of a disk to be opened",
    )
    parser.add_argument("--seed", type=int, default=1, help="another seed makes other images")
    parser.add_argument("--require", action="store_true", help="fail when anything is amiss")
    flags = parser.parse_args()
    tally, began = Tally(), time.monotonic()
    measure(flags.kills, flags.images, flags.seed, tally)
    for violation in tally.violations:
        print(violation)
    print(tally.line(time.monotonic() - began))
    short = tally.kills < flags.kills or len(tally.distinct) < flags.images or tally.streams == 0
    return 1 if flags.require and (short or tally.broken) else 0


if __name__ == "__main__":
    sys.exit(main())
