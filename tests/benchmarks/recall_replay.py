"""Recall against other ways to draft, over id traces of real text and without a model.

Rounds are planned by the engine's own code, a draft is kept where it equals the reply of the trace, and a round costs
what its rows cost on a stated curve (the 27B's shape), on chains and on trees, and on the curve that the demo's load
measures. Every stream has own drafts that land by chance, and copies from its own context unless a policy brings its
own. Nothing is read from or written to anybody's record: each run has a record of its own in memory.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time

from tests.benchmarks.replay.compare import compare
from tests.benchmarks.replay.costs import CHAINS, TREES
from tests.benchmarks.replay.demo_costs import demo_machine
from tests.benchmarks.replay.least import Least, least
from tests.benchmarks.replay.own_drafts import LANDING
from tests.benchmarks.replay.speech import best_speech, word_speech
from tests.benchmarks.replay.table import lines
from tests.benchmarks.replay.traces import MAKERS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--require", action="store_true", help="fail when a least figure is missed")
    parser.add_argument("--trace", choices=tuple(MAKERS), help="replay one workload")
    parser.add_argument("--words", action="store_true", help="use words as ids even where the demo's tokenizer is")
    flags = parser.parse_args()
    began = time.perf_counter()
    speech = word_speech() if flags.words else best_speech()
    demo = demo_machine()
    machines = [CHAINS, TREES, *([demo] if demo else [])]
    print(
        f"record: a fresh one in memory for each run, nobody's else; ids: {speech.about}; "
        f"text: Python {platform.python_version()}'s library and the installed packages'"
    )
    print(f"own drafts: {len(LANDING)} in a chain that land with {LANDING} each when those before did")
    for machine in machines:
        print(f"{machine.name}: chains of {machine.chain}, trees of {machine.tree}; {machine.words()}")
    if demo is None:
        print("the demo's measured curve: none, as no checkpoint of the demo is on this machine")
    reached: list[Least] = []
    for name in [flags.trace] if flags.trace else MAKERS:
        for workload in MAKERS[name](speech):
            result = compare(workload, machines, speech.vocabulary)
            print("\n".join(lines(result, machines)))
            reached += least(result, [CHAINS.name, TREES.name])
    missed = [figure.words for figure in reached if not figure.reached]
    figures = "; ".join(figure.words for figure in reached)
    print(
        f"replay of Recall in {time.perf_counter() - began:.0f} s: {figures}"
        f"{'; MISSED: ' + '; '.join(missed) if missed else ''}"
    )
    return 1 if missed and flags.require else 0


if __name__ == "__main__":
    sys.exit(main())
