"""The command `bench` as a user runs it, on the demo: measured, drawn, compared with a slowed run, and over HTTP.

Three runs of the command: as it is, with every launch slowed, and against `serve` in a process of its own. What must
hold: equal replies, a readable result, charts, a comparison that fails and names the slowed cell, and over HTTP equal
repeated replies. No figure of speed is asked for: those are the machine's.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from tensorfold.application.benchmark_results import Result, read_result
from tensorfold.application.engine import Engine
from tensorfold.application.generation import StreamFactory
from tensorfold.application.loading import load_engine
from tensorfold.entrypoints.settings import cache_folder
from tests.end_to_end.commands import Ran, in_process
from tests.end_to_end.served import served
from tests.fakes.paced_model import PacedModel

SLOW_S = 0.5
"""What a launch waits in the slowed run: several times what the demo's take on a busy machine."""
CHARTS = 5
SLOWED_CELL = "serial, 1 stream"


def bench(*words: str) -> Ran:
    """The command in this process; its progress is shown."""
    ran = in_process(["bench", *words])
    print(ran.err, end="", file=sys.stderr, flush=True)
    return ran


@contextmanager
def slowed() -> Iterator[None]:
    """Every launch of a model loaded meanwhile waits."""

    def load(*given: Any, **named: Any) -> tuple[Engine, StreamFactory]:
        engine, factory = load_engine(*given, **named)
        paced = PacedModel(engine.model, time.sleep, SLOW_S)
        return Engine(paced, given[4], given[5], sources=named["sources"], counters=named["counters"]), factory

    with mock.patch("tensorfold.entrypoints.cli.opening.load_engine", load):
        yield


def result(path: Path) -> Result:
    return read_result(json.loads(path.read_text()), path.name)


def measured(model: str, home: Path) -> tuple[list[str], str]:
    """What is wrong with measuring and comparing, and the figures in words."""
    short = ("--streams", "1", "--tokens", "12")
    whole, plots = home / "whole.json", home / "plots"
    ran = bench(model, "--streams", "1,2,4,8", "--json", str(whole), "--plots", str(plots))
    wrong = [] if ran.code == 0 else [f"measuring ended with {ran.code}"]
    if len(list(plots.glob("*.svg"))) != CHARTS:
        wrong.append(f"not {CHARTS} charts")
    before, after = home / "before.json", home / "after.json"
    bench(model, *short, "--json", str(before))
    with slowed():
        bench(model, *short, "--json", str(after))
    compared = bench("--compare", str(before), str(after), "--tolerance", "30")
    if compared.code != 1 or f"{SLOWED_CELL} (" not in compared.out.splitlines()[0]:
        wrong.append("the slowed run was not found")
    if bench("--compare", str(before), str(before)).code != 0:
        wrong.append("a result is slower than itself")
    found = result(whole)
    rate = {row.mode: row.rate for row in found.rows if row.streams == 1}
    words = ", ".join(f"{mode} {value:.1f}" for mode, value in rate.items())
    return wrong, f"tokens/s on 1 stream: {words}; {found.compared} replies compared, {found.differences} differ"


def over_http(model: str, home: Path) -> tuple[list[str], str]:
    """What is wrong with measuring a server, and the figures in words."""
    out = home / "server.json"
    with served(["serve", model, "--port", "0"], home) as server:
        url = f"http://127.0.0.1:{server.port}/v1"
        ran = bench("--url", url, "--streams", "1,4", "--tokens", "16", "--json", str(out))
        server.command.interrupt()
        server.ended()
    if ran.code != 0:
        return [f"measuring the server ended with {ran.code}"], "no figures"
    found = result(out)
    wrong = ["repeated replies of the server differ"] if found.differences or not found.compared else []
    return wrong, f"over HTTP {found.rows[0].rate:.1f}, {found.compared} repeated replies, {found.differences} differ"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--require", action="store_true", help="fail when something does not hold")
    parser.add_argument("--model", default="demo", help="a model name or folder")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tensorfold-bench-") as folder:
        home = Path(folder)
        (home / "cache").symlink_to(cache_folder(os.environ).parent)
        wrong, here = measured(flags.model, home)
        missed, there = over_http(flags.model, home)
    wrong += missed
    print(
        f"bench on {Path(flags.model).name} (record seen, temporary folder): {here}; slowed run "
        f"{'MISSED' if any('slowed' in line for line in wrong) else 'found'}; {there}"
        f"{'; MISSED: ' + ', '.join(wrong) if wrong else ''}"
    )
    return 1 if wrong and flags.require else 0


if __name__ == "__main__":
    sys.exit(main())
