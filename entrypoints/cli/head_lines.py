"""What the startup report says of draft heads: what drafts, what could and is not here, and which flags do nothing."""

from __future__ import annotations

from tensorfold.application.heads import most_drafts
from tensorfold.application.ports.target_model import ModelLimits
from tensorfold.application.settings import PUBLISHED, DraftSettings
from tensorfold.domain.families.catalogue import Backend, Family
from tensorfold.domain.families.missing_heads import missing_head


def head_words(limits: ModelLimits, asked: DraftSettings) -> str:
    """What a head adds to the line about drafts, ahead of its windows; empty where none drafts."""
    head = limits.head
    if head is None:
        return ""
    if head.kind == "lattice":
        return f"{'trees' if limits.tree_width > 1 else 'chains'} of {head.title}, "
    return f"up to {most_drafts(head, asked)} a round of {head.title}, "


def head_lines(
    limits: ModelLimits, asked: DraftSettings, family: Family, backend: Backend, *, stored: bool
) -> list[str]:
    """Further lines, for a server that drafts; `stored`: the checkpoint holds a head of its own."""
    kind = None if limits.head is None else limits.head.kind
    lines = []
    if kind is None and stored and asked.mtp_drafts == 0:
        lines.append("the model's own head is left out, as --mtp-drafts 0 asked")
    lacking = missing_head(family, backend, has_head=stored or kind == "chain", has_drafter=kind == "lattice")
    if lacking is not None:
        lines.append(lacking.text.removesuffix("."))
    idle = _without_effect(asked, kind)
    if idle:
        has = "have" if len(idle) > 1 else "has"
        why = "a draft model drafts" if kind == "lattice" else "only a draft model would use it"
        why = why if kind is not None else "nothing here drafts but copies"
        lines.append(f"{', '.join(idle)} {has} no effect: {why}")
    most = limits.head.most if limits.head is not None else 0
    if kind == "chain" and asked.mtp_drafts is not None and asked.mtp_drafts > most:
        lines.append(f"--mtp-drafts {asked.mtp_drafts} is more than this head makes; it drafts {most}")
    return lines


def _without_effect(asked: DraftSettings, kind: str | None) -> list[str]:
    """The flags that were given and change nothing beside a head of `kind`."""
    idle = []
    if kind != "lattice" and asked.drafter_bits != PUBLISHED.drafter_bits:
        idle.append("--drafter-bits")
    if kind != "chain" and asked.mtp_drafts:
        idle.append("--mtp-drafts")
    if kind != "chain" and asked.mtp_confidence is not None:
        idle.append("--mtp-confidence")
    return idle
