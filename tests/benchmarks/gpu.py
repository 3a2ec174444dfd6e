"""Builds, checks and measures the CUDA backend on the card it finds: `python -m tests.benchmarks.gpu --part NAME`.

`--part all` runs every part in a process of its own, those that time nothing side by side. The last line of a part
carries its figures and the record's state; `--require` makes a missed least figure an exit code. Each part's figures go
to PART.json with the commit they are of, and `gpu.json` and the plots are made of all that lie in the folder. Needs
torch and Triton; names of parts are in `gpu_parts.py`.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from tests.benchmarks.gpu_parts import PARTS, TOGETHER, Found, Part
from tests.benchmarks.gpu_report import merge, put, state

_PART_S = 330.0
"""Seconds after which a part of `all` is ended: half a minute more than any may take."""


def commit() -> str:
    """The commit measured, marked where files are not as it has them; or nothing known."""
    asked = ("git", "describe", "--always", "--dirty", "--exclude", "*")  # no tag's name in the commit's place
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def card() -> str:
    """The name of the card, or nothing known where a fault left it unusable."""
    import torch

    try:
        return str(torch.cuda.get_device_name())
    except (AssertionError, RuntimeError):
        return "unknown"


def run(name: str, part: Part, folder: Path, cubins: Path, named: str) -> bool:
    """Run one part here, print its last line and write its figures; whether every least figure was met.

    A part that raises has none, and says why.
    """
    began = time.monotonic()
    try:
        found = part(cubins)
    except Exception as fault:
        traceback.print_exc()
        found = Found({}, f"FAILED: {type(fault).__name__}: {fault}", False)
    record: dict[str, Any] = {
        "part": name,
        "commit": named,
        "card": card(),
        "seconds": round(time.monotonic() - began, 1),
        "record": state(found.figures),
        "figures": found.figures,
        "met": found.met,
        "words": found.words,
    }
    put(folder / f"{name}.json", record)
    print(f"{name}: {found.words}; record: {record['record']} ({record['seconds']:.0f} s, {named})", flush=True)
    merge(folder)
    return found.met


def grouped(names: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Parts in order, those that run side by side together, where the first of them stands."""
    left = list(names)
    while left:
        group = next((group for group in TOGETHER if left[0] in group), (left[0],))
        chosen = tuple(name for name in left if name in group)
        left = [name for name in left if name not in chosen]
        yield chosen


def run_all(words: argparse.Namespace, named: str) -> bool:
    """Every part, each in a process of its own, so that one which fails leaves the others their turn."""
    said, met, whole = [], True, time.monotonic()
    for group in grouped(words.only.split(",") if words.only else PARTS):
        print(f"== {', '.join(group)}", flush=True)
        for name, code, seconds in _side_by_side(group, words, named):
            said.append(f"{name} {'ok' if code == 0 else 'FAILED'} {seconds:.0f} s")
            met = met and code == 0
    print(f"{'; '.join(said)}; {time.monotonic() - whole:.0f} s in all")
    return met


def _side_by_side(group: tuple[str, ...], words: argparse.Namespace, named: str) -> Iterator[tuple[str, int, float]]:
    """Exit code and seconds of each part; what several say is kept apart, and printed when each has ended."""
    began = time.monotonic()
    logs: dict[str, Path | None] = {name: words.out / f"{name}.log" if len(group) > 1 else None for name in group}
    running = [(name, _started(name, words, named, logs[name])) for name in group]
    try:
        for name, process in running:
            try:
                code = process.wait(max(1.0, began + _PART_S - time.monotonic()))
            except subprocess.TimeoutExpired:
                _end(process)
                code = process.wait()
                print(f"{name}: FAILED: it took more than {_PART_S:.0f} s", flush=True)
            log = logs[name]
            if log is not None:
                print(log.read_text(encoding="utf-8", errors="replace"), end="", flush=True)
            yield name, code, time.monotonic() - began
    finally:
        for _, process in running:
            if process.poll() is None:
                _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a part with all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _started(name: str, words: argparse.Namespace, named: str, log: Path | None) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.benchmarks.gpu", "--part", name, "--out", str(words.out)]
    command += ["--cubins", str(words.cubins)] if words.cubins else []
    command += ["--require"] if words.require else []
    out: IO[bytes] | None = None if log is None else log.open("wb")
    try:
        return subprocess.Popen(
            [*command, "--commit", named], stdout=out, stderr=None if out is None else out, start_new_session=True
        )
    finally:
        if out is not None:
            out.close()


def main() -> int:
    """Run one part, or all."""
    words = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu", description=__doc__)
    words.add_argument("--part", required=True, choices=("all", *PARTS))
    words.add_argument("--only", default="", help="with --part all: the names of some parts, with commas between")
    words.add_argument("--out", type=Path, default=Path("gpu-results"), help="where PART.json goes")
    words.add_argument("--cubins", type=Path, default=None, help="where compiled kernels are kept")
    words.add_argument("--commit", default="", help="the commit that figures are of, where git cannot tell")
    words.add_argument("--require", action="store_true", help="fail when a least figure is missed")
    given = words.parse_args()
    if unknown := set(filter(None, given.only.split(","))) - set(PARTS):
        words.error(f"--only: no part is called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    given.out.mkdir(parents=True, exist_ok=True)
    named = given.commit or commit()
    if given.part == "all":
        return int(not run_all(given, named))
    met = run(given.part, PARTS[given.part], given.out, given.cubins or given.out / "cubins", named)
    return int(given.require and not met)


if __name__ == "__main__":
    sys.exit(main())
