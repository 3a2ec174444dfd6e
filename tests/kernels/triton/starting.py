"""The last argument of kernels that may start early, as a card of an architecture gets it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Kinds = list[str | int | bool]


def starts_early(kernel: Any, architecture: int) -> dict[str, bool]:
    """The constant `early` by name, for kernels that have one."""
    return {"early": architecture >= 90} if kernel.arg_names[-1] == "early" else {}


def with_start(kernel: Any, kinds: Sequence[str | int | bool], architecture: int) -> Kinds:
    """A kernel's arguments in order, `early` behind those that are listed."""
    return [*kinds, *starts_early(kernel, architecture).values()]
