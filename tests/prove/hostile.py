"""Hostile folders and hostile requests: each refused in one line, in bounded memory, with nothing left behind.

Every bad checkpoint, tokenizer and template goes through the real command in a process of its own, whose memory and
children are counted; then requests that mean harm go to a running server, each followed by a good one.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.end_to_end.bad_folders import MIB, RENDERER_BYTES, SPARE_BYTES, BadFolder, Tried, folders, refused_apart
from tests.end_to_end.bad_folders import serve_template as served
from tests.end_to_end.commands import as_process
from tests.end_to_end.hostile_requests import besiege, bodies, heads

HALVES = 400


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the proof; 0 when it holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="commands at once")
    flags = parser.parse_args(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        bare = as_process(["serve", str(home / "nowhere"), "--port", "0"], home).peak_bytes
        with ThreadPoolExecutor(flags.processes) as pool:
            jobs = [
                pool.submit(_try, folder, home / f"{number}", bare + SPARE_BYTES)
                for number, folder in enumerate(folders())
            ]
            tried = [result for job in jobs for result in job.result()]
    missed = [line for one in tried for line in one.misses()]
    late = sum(one.late for one in tried)
    plain = max(one.peak_bytes for one in tried if one.folder.kind != "template")
    rendered = max(one.peak_bytes for one in tried if one.folder.kind == "template")
    print(
        f"folders: {len(tried)} commands, at most {plain / MIB:.0f} MiB (a folder that is not there takes "
        f"{bare / MIB:.0f}), with templates {rendered / MIB:.0f} MiB; {late} templates were refused at the first chat",
        flush=True,
    )
    siege = besiege(itertools.chain(bodies(), heads()), HALVES)
    missed += siege.misses()
    for line in missed:
        print(f"  - {line}")
    print(
        f"hostile: {len(tried)} commands on {len({str(one.folder) for one in tried})} bad folders, {len(missed)} not "
        f"refused in one line or with something left, at most {plain / MIB:.0f} MiB and {rendered / MIB:.0f} MiB with "
        f"templates; {siege.tried} hostile and {siege.halves} half requests, each next one served; "
        f"{time.monotonic() - began:.0f} s{'; MISSED' if missed else ''}"
    )
    return 1 if missed else 0


def _try(folder: BadFolder, home: Path, most_bytes: int) -> list[Tried]:
    """A checkpoint or tokenizer before both commands, a template before the one that renders."""
    home.mkdir()
    if folder.kind == "template":
        return [served(folder, home, max(most_bytes, RENDERER_BYTES + SPARE_BYTES))]
    return [refused_apart(folder, home, command, most_bytes) for command in ("serve", "verify")]


if __name__ == "__main__":
    sys.exit(main())
