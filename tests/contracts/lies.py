"""How an implementation that breaks one promise of its port is made, beside the check that must notice it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.contracts.candidates import Candidate

Lie = tuple[Callable[[Any], None], Callable[[Path], Any]]


def lying(base: type[Any], **methods: Any) -> type[Any]:
    """`base` with some of its methods or properties replaced."""
    return type(f"Lying{base.__name__}", (base,), methods)


def lying_part(candidate: Candidate[Any], field: str, **methods: Any) -> Callable[[Path], Any]:
    """A candidate's subject whose `field` has some of its methods replaced."""

    def build(folder: Path) -> Any:
        subject = candidate.build(folder)
        thing = getattr(subject, field)
        thing.__class__ = lying(type(thing), **methods)
        return subject

    return build
