"""What became of a proposal, told by the tokens that joined the reply: also of drafts that were never verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorfold.domain.drafting.sources import Proposal


@dataclass(frozen=True, slots=True)
class Outcome:
    """`landed[i]`: whether draft i is part of the reply, None where the reply does not reach far enough to tell.

    `kept` drafts in a row are part of it, from the first on; `tried` is one more where the next ones all were wrong.
    """

    landed: tuple[bool | None, ...]
    kept: int
    tried: int


def decided(proposal: Proposal, tokens: Sequence[int]) -> Outcome:
    """Follow `tokens`, which joined the reply behind the pending token, down the proposal's rows."""
    parents = range(len(proposal.tokens)) if proposal.parents is None else proposal.parents
    depths, landed = [0], list[bool | None]()
    row = 0
    for index, (token, parent) in enumerate(zip(proposal.tokens, parents, strict=True)):
        depth = depths[parent]
        depths.append(depth + 1)
        above = True if parent == 0 else landed[parent - 1]
        if above and depth < len(tokens):
            # Of twins below one row the first counts, as it does in verification.
            landed.append(row == parent and token == tokens[depth])
            row = index + 1 if landed[-1] else row
        else:
            landed.append(None if above is not False else False)
    missed = depths[row] < len(tokens) and row in parents
    return Outcome(tuple(landed), depths[row], depths[row] + missed)
