"""Keys that rotate under load, shown: `python -m tests.end_to_end.keys` prints its figures on its last line.

Three parts: rotation under load with bad files in between, a server in a process of its own that is told by SIGHUP and
finds out by itself, and every route tried with everything that is no key. The exit code is not zero when a request is
lost or wrongly admitted, or a route is open.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.end_to_end.key_process import renewed_in_a_process
from tests.end_to_end.rotation import house, outlive_the_key, rotate_under_load, spoil_the_file
from tests.entrypoints.http.doors import left_open
from tests.entrypoints.http.wire import in_process


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the three parts; 0 when nothing is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rotations", type=int, default=120)
    flags = parser.parse_args(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with house(folder) as home:
            rotate_under_load(home, flags.rotations)
            bad = spoil_the_file(home)
            outlived = sum(outlive_the_key(home) for _ in range(3))
        wrong = list(home.seen.wrong) + ([] if outlived else ["no reply outlived its key"])
        for who, count in sorted(home.seen.answers.items()):
            print(f"{count:7} {who}")
        try:
            renewed_in_a_process(folder)
        except AssertionError as failure:
            wrong.append(f"in a process of its own: {failure}")
    tried, opened = left_open(in_process(keys={"cli-1": "Alpha-1"}).client, "Alpha-1")
    wrong += opened
    for line in wrong[:20]:
        print(f"  - {line}")
    requests = home.seen.count
    served = sum(count for who, count in home.seen.answers.items() if who.endswith("served"))
    print(
        f"keys: {flags.rotations} rotations and {bad} bad files under {requests} requests ({served} served, "
        f"{requests - served} refused), {sum('lost' in line for line in wrong)} lost, "
        f"{sum('wrongly' in line for line in wrong)} wrongly admitted, {outlived} replies outlived their key; "
        f"{tried} ways in without a key, {len(opened)} open; "
        f"{time.monotonic() - began:.0f} s{'; FAILED' if wrong else ''}"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
