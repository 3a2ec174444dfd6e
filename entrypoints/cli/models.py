"""`tensorfold models`: the families, their listed checkpoints, and which of them are on this machine.

Works offline and with no backend installed.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorfold.application.describing import Describer, Here
    from tensorfold.domain.families.catalogue import Family
    from tensorfold.domain.families.plans import License

NOT_YET = "not part of this version"


def fill(parser: argparse.ArgumentParser) -> None:
    """The command's flags and its function."""
    parser.set_defaults(run=models)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def models(flags: argparse.Namespace) -> int:
    """Run the command; 0."""
    from tensorfold.application.describing import families
    from tensorfold.entrypoints.cli.lines import put
    from tensorfold.entrypoints.container import Container
    from tensorfold.entrypoints.settings import cache_folder

    describer = Container(cache=cache_folder(os.environ)).describer()
    if flags.json:
        put(json.dumps({"families": [_object(family, describer) for family in families()]}, indent=2))
        return 0
    for family in families():
        _show(family, describer)
    put("`tensorfold pull NAME` downloads one ahead of time, `tensorfold info NAME` tells of it without its weights.")
    return 0


def _show(family: Family, describer: Describer) -> None:
    from tensorfold.application.describing import checkpoints
    from tensorfold.entrypoints.cli.lines import put

    backends = " and ".join(_served_on(family)) or NOT_YET
    put(f"{family.title}: {backends}")
    put(f"  model types  {', '.join(family.model_types)}")
    put(f"  drafting     {family.drafting}")
    if family.note:
        put(f"  note         {family.note}")
    for name, value in _facts(family):
        put(f"  {name:13}{value}")
    terms = {c.name: c.license for c in family.checkpoints}
    experimental = {c.name: "EXL3, experimental and not served yet" for c in family.checkpoints if c.experimental}
    summaries = {c.name: c.summary for c in family.checkpoints}
    for name in checkpoints(family):
        listed = name if name in terms else name.split("@")[0]
        said = [
            part
            for part in (
                summaries[listed],
                experimental.get(listed),
                _terms(terms[listed]),
                _where(describer.here(name)),
            )
            if part
        ]
        put(f"  {name}: {'; '.join(said)}")
    for drafter in family.drafters:
        put(f"  {drafter.repo}: drafter; {_terms(drafter.license)}; {_where(describer.here(drafter.repo))}")
    put()


def _served_on(family: Family) -> list[str]:
    from tensorfold.domain.families.formats import BACKEND_TITLES

    return [BACKEND_TITLES[backend] for backend in family.served_on]


def _facts(family: Family) -> Iterator[tuple[str, str]]:
    """Sizes of the published model, and the formats each backend is meant to read."""
    from tensorfold.domain.families.catalogue import published_plan
    from tensorfold.domain.families.facts import facts
    from tensorfold.domain.families.formats import BACKEND_TITLES
    from tensorfold.entrypoints.cli.sizes import size_lines

    plan, formats = published_plan(family), family.reader.formats
    if plan is None or formats is None:
        return
    yield from size_lines(facts(plan))
    yield "window", f"{plan.context:,} tokens"
    yield "formats", "; ".join(f"{BACKEND_TITLES[b]} {formats.words(b)}" for b in formats.layouts)


def _terms(terms: License) -> str:
    return f"licence: {terms.name}" + (f" ({terms.special.removesuffix('.')})" if terms.special else "")


def _where(here: Here) -> str:
    if here.complete:
        return "on this machine"
    return "in part on this machine" if here.folder is not None else "not on this machine"


def _object(family: Family, describer: Describer) -> dict[str, Any]:
    from tensorfold.application.describing import checkpoints

    by_name = {c.name: c for c in family.checkpoints}
    listed = [(name, by_name.get(name) or by_name[name.split("@")[0]]) for name in checkpoints(family)]
    return {
        "title": family.title,
        "model_types": list(family.model_types),
        "served": family.served,
        "backends": list(family.served_on),
        "drafting": family.drafting,
        "note": family.note or None,
        "facts": _facts_object(family),
        "checkpoints": [
            {
                "name": name,
                "summary": checkpoint.summary or None,
                "source": checkpoint.source,
                "backends": list(checkpoint.backends),
                "experimental": checkpoint.experimental,
                **_stored(checkpoint.license, describer.here(name)),
            }
            for name, checkpoint in listed
        ],
        "drafters": [
            {
                "name": drafter.repo,
                "optional_on": list(drafter.optional_on),
                **_stored(drafter.license, describer.here(drafter.repo)),
            }
            for drafter in family.drafters
        ],
    }


def _facts_object(family: Family) -> dict[str, Any] | None:
    from tensorfold.domain.families.catalogue import published_plan
    from tensorfold.domain.families.facts import facts
    from tensorfold.entrypoints.cli.sizes import size_object

    plan, formats = published_plan(family), family.reader.formats
    if plan is None or formats is None:
        return None
    layouts = {b: {"bits": list(bits), "groups": list(groups)} for b, (bits, groups) in formats.layouts.items()}
    return {**size_object(facts(plan)), "hidden_size": plan.width, "window": plan.context, "formats": layouts}


def _stored(terms: License, here: Here) -> dict[str, Any]:
    return {
        "license": terms.name,
        "license_terms": terms.special or None,
        "complete": here.complete,
        "folder": None if here.folder is None else str(here.folder),
        "missing": list(here.missing),
    }
