"""Builds, checks and measures the CUDA backend on the card it finds: `python -m tests.benchmarks.gpu --part NAME`.

`--part all` runs every part in a process of its own. The last line of a part carries its figures; `--require` makes a
missed least figure an exit code. Each part's figures go to PART.json with the commit they are of, and `gpu.json` and
the plots are made of all that lie in the folder. Needs torch and Triton; names of parts are in `gpu_parts.py`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.gpu_parts import PARTS, Part
from tests.benchmarks.gpu_report import merge


def commit() -> str:
    """The commit measured, or nothing known."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def card() -> str:
    """The name of the card."""
    import torch

    return str(torch.cuda.get_device_name())


def run(name: str, part: Part, folder: Path, cubins: Path, named: str) -> bool:
    """Run one part here, print its last line and write its figures; whether every least figure was met."""
    began = time.monotonic()
    found = part(cubins)
    record: dict[str, Any] = {
        "part": name,
        "commit": named,
        "card": card(),
        "seconds": round(time.monotonic() - began, 1),
        "figures": found.figures,
        "met": found.met,
        "words": found.words,
    }
    (folder / f"{name}.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
    merge(folder)
    print(f"{name}: {found.words} ({record['seconds']:.0f} s, {named})", flush=True)
    return found.met


def run_all(words: argparse.Namespace, named: str) -> bool:
    """Every part in turn, each in a process of its own, so that one which fails leaves the others their turn."""
    said, met = [], True
    for name in words.only.split(",") if words.only else PARTS:
        command = [sys.executable, "-m", "tests.benchmarks.gpu", "--part", name, "--out", str(words.out)]
        command += ["--cubins", str(words.cubins)] if words.cubins else []
        command += ["--require"] if words.require else []
        print(f"== {name}", flush=True)
        began = time.monotonic()
        done = subprocess.run([*command, "--commit", named], check=False)
        said.append(f"{name} {'ok' if done.returncode == 0 else 'FAILED'} {time.monotonic() - began:.0f} s")
        met = met and done.returncode == 0
    print("; ".join(said))
    return met


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
    given.out.mkdir(parents=True, exist_ok=True)
    named = given.commit or commit()
    if given.part == "all":
        return int(not run_all(given, named))
    met = run(given.part, PARTS[given.part], given.out, given.cubins or given.out / "cubins", named)
    return int(given.require and not met)


if __name__ == "__main__":
    sys.exit(main())
