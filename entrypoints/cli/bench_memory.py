"""`tensorfold bench --memory-classes`: the README's table of memory classes, and the windows that plans give there."""

from __future__ import annotations

import argparse

from tensorfold.application.memory_classes import CLASSES, Cell, Column, classes, columns
from tensorfold.domain.memory.budgets import GIB, RESERVE, gib
from tensorfold.entrypoints.cli.lines import put

OPEN = "TBD"
"""What nobody has measured with prompts, revision, runtime, command and output beside it."""


def memory_classes(flags: argparse.Namespace) -> int:
    """Print both tables; 0."""
    models = columns()
    made = classes(models)
    ceilings = [f"{each.budget.process / GIB:.1f} GiB" for each in made]
    put("Measured contexts and peaks (public):")
    put(_table(models, ceilings, [[OPEN] * len(models) for _ in made]))
    put()
    put("Computed contexts (tokens that a start without --context would choose; not measured):")
    put(_table(models, ceilings, [[_told(cell) for cell in each.cells] for each in made]))
    put()
    for model in models:
        took = model.footprint
        put(
            f"{model.title}: weights {gib(took.weights)} at {model.layout.bits} bits in groups of "
            f"{model.layout.group}, a stream {gib(took.state.held(1, model.plan.context))} when it opens and "
            f"{took.state.token_bytes / 1024:.1f} KiB a token; window {model.plan.context}"
        )
    put(f"Budgets are {made[0].budget.bound.split(' of ')[0]} of nominal RAM; {gib(RESERVE)} of each are kept back.")
    fitting = sum(cell.window is not None for each in made for cell in each.cells)
    put(f"{len(CLASSES)} budgets, {len(models)} models, {fitting} computed contexts, 0 measured")
    return 0


def _told(cell: Cell) -> str:
    if cell.window is None:
        return "does not fit"
    return f"{cell.window.tokens}" + ("" if cell.window.retains else " (no prompt kept)")


def _table(models: tuple[Column, ...], ceilings: list[str], cells: list[list[str]]) -> str:
    heads = ["Nominal RAM class", "Budget ceiling", *(model.title for model in models)]
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    rows = zip(CLASSES, ceilings, cells, strict=True)
    return "\n".join([*lines, *(f"| {n} GB | {ceiling} | {' | '.join(row)} |" for n, ceiling, row in rows)])
