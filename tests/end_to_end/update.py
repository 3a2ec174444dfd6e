"""`tensorfold update` and the release check, shown: `python -m tests.end_to_end.update` runs every scene.

Its last line has the figures; the exit code is not zero when a scene fails.
"""

from __future__ import annotations

import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.end_to_end.update_scenes import SCENES, Scene


def play(scene: Scene, folder: Path) -> tuple[int, str]:
    """Run one scene: how many commands it ran, and what went wrong in it."""
    folder.mkdir()
    try:
        return scene(folder), ""
    except Exception as failure:
        return 0, f"{type(failure).__name__}: {failure}"


def main() -> int:
    """Run the scenes, two at once."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(2) as pool:
        folders = [Path(name) / f"{number}" for number in range(len(SCENES))]
        played = list(zip(SCENES, pool.map(play, SCENES, folders), strict=True))
    failed = 0
    for scene, (commands, wrong) in played:
        failed += bool(wrong)
        print(f"{'FAILED' if wrong else 'ok':6} {commands:3} commands  {scene.__name__.replace('_', ' ')}  {wrong}")
    print(
        f"update: {len(played) - failed} of {len(played)} scenes hold, {sum(ran for _, (ran, _) in played)} commands, "
        f"{time.monotonic() - began:.0f} s{'; FAILED' if failed else ''}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
