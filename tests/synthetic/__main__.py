"""Small seeded checkpoints of every family, in the layouts they are published in, for whoever wants to try one by hand.

    python -m tests.synthetic FOLDER [FAMILY ...]

Weights are noise, so replies mean nothing; that they are the same in every form is what can be seen. `FOLDER/drafter`
is a DFlash2 drafter of the small qwen3_5.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.end_to_end.families import write_family
from tests.synthetic.plan_checkpoints import write_drafter
from tests.synthetic.tiny_configs import FAMILIES, tiny_drafter


def main(words: Sequence[str] | None = None) -> int:
    """Write what was asked for and name it, one folder a line."""
    parser = argparse.ArgumentParser(prog="python -m tests.synthetic", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where to write; it may be new")
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=f"some of {', '.join(FAMILIES)}; all without one")
    asked = parser.parse_args(words)
    families = tuple(asked.families) or FAMILIES
    if unknown := sorted({*families} - {*FAMILIES}):
        parser.error(f"no family is called {', '.join(unknown)}; there are {', '.join(FAMILIES)}")
    for family in families:
        write_family(asked.folder, family)
        print(asked.folder / family)
    if "qwen3_5" in families:
        write_drafter(asked.folder / "drafter", tiny_drafter())
        print(asked.folder / "drafter")
    return 0


if __name__ == "__main__":
    sys.exit(main())
