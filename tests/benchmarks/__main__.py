"""`make bench`: every benchmark with its least figures, or one with `--part NAME`."""

from __future__ import annotations

import argparse
import subprocess
import sys

PARTS = (
    "http_streams",
    "copies",
    "draft_trees",
    "recall_speed",
    "recall_record",
    "recall_replay",
    "recall_crash",
    "bench_command",
    "fairness",
    "long_chat",
    "memory_model",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, help="run one benchmark")
    parser.add_argument("--require", action="store_true", help="fail when a least figure is missed")
    flags = parser.parse_args()
    extra = ["--require"] if flags.require else []
    failed = 0
    for name in [flags.part] if flags.part else PARTS:
        failed += (
            subprocess.run([sys.executable, "-m", f"tests.benchmarks.{name}", *extra], check=False).returncode != 0
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
