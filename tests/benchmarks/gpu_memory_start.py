"""Starts of `tensorfold serve` with little memory: a window that does not fit is refused, and the one it names starts.

A tiny checkpoint with a long window of its own, so that keys and values decide. What the two variables of a card do is
read in the startup lines. The backend is handed in, so that all of it runs without a card too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tensorfold.domain.memory.cuda_budget import CARD_LIMIT, RESERVE_NAME
from tests.benchmarks.gpu_verify import complete, serving
from tests.synthetic.servable import SERVABLE, write_servable

CONTEXT = 1 << 20
_FITS = re.compile(r"--context (\d+) fits")
_ESTIMATE = re.compile(r"memory: ([\d.]+) GiB by estimate \(([^)]*)\)")


@dataclass(slots=True)
class Started:
    """What was said and what started; `fits` is the window that a refusal named, `replied` whether it then served."""

    refused: str = ""
    fits: int = 0
    replied: bool = False
    reserved: str = ""
    lacks: list[str] = field(default_factory=list)


def starts(home: Path, backend: str, limit: str = CARD_LIMIT, gib: str = "0.5") -> Started:
    """A refusal under a limit of so many GiB, a start with the window it names, one that leaves memory to others."""
    write_servable(home / "long", replace(SERVABLE, width=128, mlp=128, context=CONTEXT))
    made = Started()
    flags = ("--backend", backend)
    try:
        with serving(home, "long", ("--context", str(CONTEXT), *flags), {limit: gib}):
            made.lacks.append(f"a window of {CONTEXT} tokens started in {gib} GiB")
            return made
    except RuntimeError as refusal:
        made.refused = str(refusal).strip().splitlines()[-1]
    named = _FITS.search(made.refused)
    if named is None or limit not in made.refused:
        made.lacks.append("the refusal names no window that fits, or not the variable")
        return made
    made.fits = int(named[1])
    _replies(home, ("--context", named[1], *flags), {limit: gib}, made)
    if backend == "cuda":
        _reserves(home, flags, made)
    return made


def _replies(home: Path, flags: tuple[str, ...], variables: Mapping[str, str], made: Started) -> None:
    try:
        with serving(home, "long", flags, variables) as port:
            made.replied = bool(complete(port, {"prompt": "1, 2, 3, 1, 2, 3", "temperature": 0}, draft=True))
    except (RuntimeError, OSError) as fault:
        made.lacks.append(f"--context {made.fits} did not start: {fault}")


def _reserves(home: Path, flags: tuple[str, ...], made: Started) -> None:
    """What is left to others is what was asked for, and is said."""
    try:
        with serving(home, "long", ("--context", "4096", *flags), {RESERVE_NAME: "16"}):
            said = _ESTIMATE.search((home / "long.log").read_text())
    except (RuntimeError, OSError) as fault:
        made.lacks.append(f"with {RESERVE_NAME} of 16 nothing started: {fault}")
        return
    made.reserved = said[0] if said is not None else ""
    if said is None or "16.00 GiB" not in said[2] or RESERVE_NAME not in said[2]:
        made.lacks.append(f"{RESERVE_NAME} of 16 is not what the estimate says is left: {made.reserved}")
