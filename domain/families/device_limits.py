"""Limits of a family that depend on the machine: rows of a window on older Macs, shares of memory, CUDA ranks.

Knows plans and numbers of machines, never a device: who measures the machine hands the numbers in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tensorfold.domain.families.binding import Bound
from tensorfold.domain.families.catalogue import Family
from tensorfold.domain.families.fields import either
from tensorfold.domain.families.plans import DecoderPlan, MemoryRule
from tensorfold.domain.families.storage import Affine, Layout

DEFAULT_SHARE = 0.7
_WITHOUT_TENSOR_UNITS, _ROWS_WITHOUT = 4, 16
_MADE_FOR = Layout(4, 64)
_HELD_TO_IT = ("qwen3_5",)
"""Families whose layouts were measured on these machines: others run as the load check finds."""
_APPLE_GPU = re.compile(r"gpu Apple M([1-9][0-9]?)(?: (?:Pro|Max|Ultra))?")


def apple_generation(device: str) -> int:
    """The number in the name of an Apple GPU, as a model's identity names its device ("gpu Apple M3 Max"); else 0.

    A processor, another vendor's GPU and a name that is not known are 0: nothing is guessed of them.
    """
    found = _APPLE_GPU.fullmatch(device)
    return int(found[1]) if found else 0


def most_rows(plan: DecoderPlan, apple_generation: int) -> int:
    """The widest window of a chain: 16 rows on M1 to M4 whatever drafts it, else the plan's.

    `apple_generation` is the number in the chip's name, 0 for another machine.
    """
    old = 1 <= apple_generation <= _WITHOUT_TENSOR_UNITS
    return min(plan.max_window, _ROWS_WITHOUT) if old else plan.max_window


def refuse_windows(
    plan: DecoderPlan, title: str, bound: Mapping[str, Bound], device: str, *, proven: bool
) -> str | None:
    """Why a loaded model may not draft on a device, as one sentence; None when it may.

    `proven`: the load check left windows of more than one row. Only families that are held to one layout are refused.
    """
    if plan.family not in _HELD_TO_IT:
        return None
    refusals = (refuse_rows(title, each, apple_generation(device), proven=proven) for each in _layouts(bound))
    return next((refusal for refusal in refusals if refusal is not None), None)


def _layouts(bound: Mapping[str, Bound]) -> Iterable[Layout | None]:
    """How the matrices that verify are stored, each layout once; None for plain values. A draft head only guesses."""
    stored = (
        one.storage
        for path, one in bound.items()
        if not path.startswith("mtp.") and one.slot.weight.rule == "matrix" and len(one.slot.shape) > 1
    )
    return dict.fromkeys(Layout(one.bits, one.group) if isinstance(one, Affine) else None for one in stored)


def refuse_rows(title: str, layout: Layout | None, apple_generation: int, *, proven: bool) -> str | None:
    """Why weights of a layout cannot verify windows on a Mac without tensor units, as one sentence; None when they can.

    4 bits in groups of 64 have a decoder made for these machines; anything else runs only where the load check has
    `proven` its rows.
    """
    if proven or not 1 <= apple_generation <= _WITHOUT_TENSOR_UNITS or layout == _MADE_FOR:
        return None
    stored = "plain values" if layout is None else f"{layout.bits} bits in groups of {layout.group}"
    return (
        f"{title} stored as {stored} does not keep its rows' bits on an M{apple_generation}: take a conversion of "
        f"{_MADE_FOR.bits} bits in groups of {_MADE_FOR.group}, or start with `--no-drafts`."
    )


def memory_share(rule: MemoryRule, memory_bytes: int) -> float:
    """The share of a Mac's memory that a family may take."""
    holds = rule.share > 0 and memory_bytes <= rule.up_to_gib << 30
    return rule.share if holds else DEFAULT_SHARE


def refuse_ranks(family: Family, ranks: int) -> str | None:
    """Why a family cannot be split over a number of CUDA ranks, as one sentence; None when it can."""
    if ranks in family.cuda_ranks:
        return None
    least = family.cuda_ranks[0]
    return (
        f"{family.title} on CUDA needs {either(family.cuda_ranks)} ranks and {ranks} were asked for: start with "
        f"`--tp {least}`" + (" on each of two machines." if least == 2 else ".")
    )
