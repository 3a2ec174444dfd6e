"""Downloads between the real command and a loopback hub: `python -m tests.end_to_end.hub`.

Prints a line for each scene and its figures on the last line; ends with 1 when anything was missed.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.end_to_end.hub_place import Figures
from tests.end_to_end.hub_refusals import REFUSALS, refuse
from tests.end_to_end.hub_scenes import SCENES


def main() -> int:
    """Run everything; the exit code."""
    began, figures = time.monotonic(), Figures()
    with tempfile.TemporaryDirectory(prefix="tensorfold-hub-") as made:
        folder = Path(made).resolve()
        for number, refusal in enumerate(REFUSALS):
            for command in refusal.commands:
                seen = len(figures.faults)
                refuse(refusal, command, folder / f"refusal-{number}-{command}", figures)
                _tell(f"{command} refuses: {refusal.name}", figures, seen)
        for scene in SCENES:
            seen = len(figures.faults)
            scene(folder / scene.__name__, figures)
            _tell(scene.__name__.replace("_", " "), figures, seen)
    missed = bool(figures.faults or figures.weight_bytes or figures.twice)
    print(
        f"{'FAILED' if missed else 'ok'}: {figures.refusals} refusals in one line, {figures.config_only} of them after "
        f"config.json alone and the others after the index, {figures.weight_bytes} bytes of weights before a refusal; "
        f"{figures.resumed} downloads gone on with, {figures.twice} bytes asked twice; {len(SCENES)} scenes, "
        f"{len(figures.faults)} faults, {time.monotonic() - began:.0f} s"
    )
    return 1 if missed else 0


def _tell(what: str, figures: Figures, seen: int) -> None:
    faults = figures.faults[seen:]
    print(f"-- {what}: {'ok' if not faults else 'FAILED'}", *faults, sep="\n   ", flush=True)


if __name__ == "__main__":
    sys.exit(main())
