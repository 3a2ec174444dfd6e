"""The state a lane holds, listed from a plan: memory arithmetic, snapshots and buffers all read this one list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

StateKind = Literal["keys", "values", "latent", "index_keys", "pooled_keys", "conv", "recurrent", "tokens"]


@dataclass(frozen=True, slots=True)
class StateEntry:
    """One buffer of a lane.

    `path` is `layers.N.NAME.KIND` (or `mtp.…`); `fixed_bytes` are held whatever the length, `token_bytes` grow with
    each token (for pooled keys: on average) and stop growing at `window` tokens (0: never). `rows` tells how one row's
    state is undone: "trim" drops entries past a length, "history" needs the state of each row of a window.
    """

    path: str
    kind: StateKind
    dtype: str
    fixed_bytes: int
    token_bytes: int
    window: int = 0
    rows: Literal["trim", "history"] = "trim"


def lane_bytes(entries: tuple[StateEntry, ...], tokens: int) -> int:
    """Bytes one lane holds after `tokens` tokens."""
    return sum(e.fixed_bytes + e.token_bytes * (min(tokens, e.window) if e.window else tokens) for e in entries)
