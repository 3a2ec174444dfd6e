"""What is said of a model that could draft with a head or drafter and has none here: which command brings it.

Pure sentences. A Mac serves without, since copies of the context draft there too; CUDA refuses until serial decoding is
asked for by name.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensorfold.domain.families.catalogue import Backend, Family


@dataclass(frozen=True, slots=True)
class MissingHead:
    """One sentence about a head that is not here; `refuses` says that the server must not start without it."""

    text: str
    refuses: bool


def missing_head(family: Family, backend: Backend, *, has_head: bool, has_drafter: bool) -> MissingHead | None:
    """What to say of a model served with drafts on, or None when nothing lacks.

    `has_head`: the checkpoint holds its own draft head; `has_drafter`: a drafter was found and is used.
    """
    if family.has_head and not has_head:
        listed = next(c.name for c in family.checkpoints if backend in c.backends and not c.experimental)
        what = f"This {family.title} checkpoint has no MTP head; `tensorfold pull {listed}` brings one that has"
        return _said(what, refuses=backend == "cuda")
    needed = next((d for d in family.drafters if backend not in d.optional_on), None)
    offered = needed or next(iter(family.drafters), None)
    if has_drafter or offered is None or family.has_head:
        return None
    what = f"{family.title}'s drafter is not used; `tensorfold pull {offered.repo}` brings it"
    return _said(what, refuses=needed is not None)


def _said(what: str, *, refuses: bool) -> MissingHead:
    return MissingHead(f"{what}, or start with `--no-drafts`." if refuses else f"{what}.", refuses)
