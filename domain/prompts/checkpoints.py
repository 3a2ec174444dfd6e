"""Where the state of a prompt is worth keeping while it is absorbed. Arithmetic over one plan.

Each position is a chunk's start, so that other prompts with the same beginning can resume there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.prompts.chunks import ChunkPlan


def checkpoints(plan: ChunkPlan, resumed: int, agreed: int = 0) -> tuple[int, ...]:
    """Positions behind `resumed` at which the state is kept, ascending.

    The last start, from which the conversation's next turn resumes: the reply to come begins at or behind it. The start
    behind the first message, which conversations share. And, where the prompt that last resumed here went `agreed` ids
    along, at least half of what this one has, the last start in those: what the two agree on others will too.
    """
    wanted = {plan.floor(plan.end), plan.shared}
    if 2 * agreed >= plan.end:
        wanted.add(plan.floor(agreed))
    return tuple(sorted(position for position in wanted if position > resumed))


def agreement(one: Sequence[int] | NDArray[np.integer[Any]], other: Sequence[int] | NDArray[np.integer[Any]]) -> int:
    """How many ids two prompts share from their start."""
    size = min(len(one), len(other))
    unequal = np.asarray(one[:size], np.int64) != np.asarray(other[:size], np.int64)
    return int(np.argmax(unequal)) if unequal.any() else size


def common_cut(leader: ChunkPlan, follower: ChunkPlan, agreed: int, filled: int, least: int) -> int | None:
    """The last position that two prompts, agreeing on `agreed` ids, may both resume from and `leader` is to reach.

    None where it is not at least `least` ids behind `filled`, what either has absorbed.
    """
    for position in (leader.end, *reversed(leader.starts)):
        if position < filled + least:
            return None
        if position <= agreed and follower.cuts_at(position) and leader.before(position) == follower.before(position):
            return position
    return None
