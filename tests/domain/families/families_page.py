"""The tables of docs/families.md, made from the plans: `python -m tests.domain.families.families_page` prints them."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tensorfold.domain.families import dflash2
from tensorfold.domain.families.catalogue import FAMILIES, Family, published_plan
from tensorfold.domain.families.facts import State, drafter_parameters, drafter_state, facts
from tensorfold.domain.families.formats import BACKEND_TITLES
from tensorfold.domain.families.published import DFLASH2, DFLASH2_GLM


def tables() -> str:
    """Both tables, as they stand in the page."""
    return "\n".join([*_families(), "", *_formats(), "", *_drafters()])


def _families() -> Iterator[str]:
    yield "| Family | Layers | Parameters | State of a stream | Draft head | Window |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for family in FAMILIES:
        plan = published_plan(family)
        if plan is None:
            continue
        told = facts(plan)
        kinds = ", ".join(f"{count} {kind}" for kind, count in told.kinds)
        table = f" and {_billions(told.table)} of n-gram table" if told.table else ""
        head = f"{_billions(told.head)}; {_state(told.head_state)}" if told.head else "none"
        cells = [family.title, f"{told.layers}: {kinds}", _billions(told.parameters) + table, _state(told.state), head]
        yield f"| {' | '.join(cells)} | {plan.context:,} |"


def _formats() -> Iterator[str]:
    yield "| Family | Read by MLX in | Read by CUDA in | CUDA ranks | Licence |"
    yield "| --- | --- | --- | --- | --- |"
    for family in FAMILIES:
        formats = family.reader.formats
        if formats is not None:
            read = [formats.words(b) if b in formats.layouts else "not at all" for b in BACKEND_TITLES]
            ranks = " or ".join(map(str, family.cuda_ranks)) if "cuda" in family.backends else "none"
            yield f"| {' | '.join([family.title, *read, ranks, _licence(family)])} |"


def _drafters() -> Iterator[str]:
    yield "| Drafter | Drafts for | Parameters | State it adds | Reads after layers | Licence |"
    yield "| --- | --- | --- | --- | --- | --- |"
    configs = {"z-lab/Qwen3.8-27B-DFlash2": DFLASH2, "incoai/GLM-5.3-Flash-DFlash2": DFLASH2_GLM}
    for family in FAMILIES:
        plan = published_plan(family)
        for listed in family.drafters:
            assert plan is not None
            drafter = dflash2.plan(configs[listed.repo], plan)
            taps = ", ".join(str(tap.layer) for tap in drafter.taps)
            size, state = _billions(drafter_parameters(drafter)), _state(drafter_state(drafter, plan))
            yield f"| `{listed.repo}` | {family.title} | {size} | {state} | {taps} | {listed.license.name} |"


def _licence(family: Family) -> str:
    return "; ".join(dict.fromkeys(c.license.name for c in family.checkpoints if not c.experimental))


def _billions(count: int) -> str:
    return f"{count / 1e9:.2f} B"


def _state(state: State) -> str:
    parts = [f"{state.token:,} bytes a token"] if state.token else []
    if state.windowed:
        parts.append(f"{state.windowed:,} for each of the last {state.window:,} tokens")
    if state.fixed:
        parts.append(f"{state.fixed:,} fixed")
    return ", ".join(parts)


if __name__ == "__main__":
    sys.stdout.write(tables() + "\n")
