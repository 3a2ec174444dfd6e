"""Real client libraries against a served model: `python -m tests.end_to_end.real_clients`.

Makes an environment of its own, installs OpenAI's client, litellm, `llm` and langchain-openai in it, serves the demo
(or `--model tiny`, a small checkpoint made on the spot), and prints a table of what each library did. The last line has
the figures; it ends with 1 when anything was missed, a library that could not be installed included.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.end_to_end.real_clients.checks import CHECKS, Room
from tests.end_to_end.real_clients.documented import FaultError
from tests.end_to_end.real_clients.door import door
from tests.end_to_end.real_clients.driver import driven
from tests.end_to_end.real_clients.environment import PINS, Environment, make
from tests.end_to_end.real_clients.house import House, house


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo", help="demo, tiny, or whatever `tensorfold serve` takes")
    parser.add_argument("--only", action="append", choices=list(PINS), help="one library; may be repeated")
    parser.add_argument("--environment", type=Path, help="a folder to keep the libraries in, for runs that follow")
    flags = parser.parse_args(arguments)
    names, began = flags.only or list(PINS), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tensorfold-clients-") as made:
        folder = Path(made).resolve()
        environment = make(flags.environment or folder / "environment", {name: PINS[name] for name in names})
        for name, why in environment.missing.items():
            print(f"-- {name} {PINS[name]} could not be installed: {why}", flush=True)
        with house(flags.model, folder) as served:
            cells, faults = run(names, environment, served, folder)
    table(names, cells)
    checks = sum(len(column) for column in cells.values())
    faults += len(environment.missing)
    print(
        f"{'FAILED' if faults else 'ok'}: {len(names) - len(environment.missing)} of {len(names)} client libraries "
        f"installed, {checks} checks on {flags.model}, {faults} faults, {time.monotonic() - began:.0f} s"
    )
    return 1 if faults else 0


def run(
    names: Sequence[str], environment: Environment, served: House, folder: Path
) -> tuple[dict[str, dict[str, str]], int]:
    """Every check of every library that is there: the cells by library and check, and how many faults."""
    cells: dict[str, dict[str, str]] = {}
    faults = 0
    with door() as knocked:
        for name in (name for name in names if name not in environment.missing):
            column = cells[name] = {}
            with driven(name, environment.python, folder) as driver:
                for title, check in CHECKS.items():
                    try:
                        column[title] = check(Room(driver, served, knocked))
                    except (FaultError, TimeoutError) as fault:
                        faults += 1
                        column[title] = "FAULT"
                        print(f"-- {name}, {title}: {fault}", flush=True)
            print(f"-- {name} {PINS[name]}: {len(column)} checks", flush=True)
    return cells, faults


def table(names: Sequence[str], cells: Mapping[str, Mapping[str, str]]) -> None:
    """A row for each check, a column for each library."""
    rows = [["", *(f"{name} {PINS[name]}" for name in names)]]
    rows += [[title, *(cells.get(name, {}).get(title, "not installed") for name in names)] for title in CHECKS]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    sys.exit(main())
