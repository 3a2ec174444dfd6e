"""`make prove`: the long proofs, each a part that also runs alone with `--part NAME`."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

PARTS = {
    "core": [sys.executable, "-m", "tests.prove.core"],
    "recall": [sys.executable, "-m", "tests.prove.recall"],
    "conversations": [sys.executable, "-m", "tests.prove.conversations"],
    "grammar": [sys.executable, "-m", "tests.prove.grammar"],
    "client": [sys.executable, "-m", "tests.prove.client"],
    "parity": [sys.executable, "-m", "tests.adapters.mlx.parity.live"],
    "families_parity": [sys.executable, "-m", "tests.adapters.mlx.parity.families"],
    "families": [sys.executable, "-m", "tests.prove.families"],
    "emulator": [sys.executable, "-m", "tests.emulator"],
    "leaving": [sys.executable, "-m", "tests.prove.leaving"],
    "hostile": [sys.executable, "-m", "tests.prove.hostile"],
    "verify": [sys.executable, "-m", "tests.prove.verify"],
    "fuzz": [sys.executable, "-m", "tests.prove.fuzz"],
    "options": [sys.executable, "-m", "tests.end_to_end.options"],
    "hub": [sys.executable, "-m", "tests.end_to_end.hub"],
    "update": [sys.executable, "-m", "tests.end_to_end.update"],
    "keys": [sys.executable, "-m", "tests.end_to_end.keys"],
    "families_http": [sys.executable, "-m", "tests.end_to_end.families"],
    "cases": [sys.executable, "-m", "tests.end_to_end.cases"],
    "clients": [sys.executable, "-m", "tests.end_to_end.real_clients"],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=sorted(PARTS), help="run one part")
    flags = parser.parse_args()
    failed = []
    began = time.monotonic()
    for name in [flags.part] if flags.part else PARTS:
        print(f"== {name}", flush=True)
        if subprocess.run(PARTS[name], check=False).returncode:
            failed.append(name)
    if flags.part is None:
        print(
            f"prove: {len(PARTS) - len(failed)} parts hold, {len(failed)} fail {failed}, "
            f"{time.monotonic() - began:.0f} s"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
