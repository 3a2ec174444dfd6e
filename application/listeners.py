"""Callbacks into the outside (logs, access lines) must never end a request: what they raise is dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")


def harmless(listener: Callable[P, object]) -> Callable[P, None]:
    """The listener, its exceptions dropped: there is nobody left to tell when telling fails."""

    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            listener(*args, **kwargs)
        except Exception:
            return

    return call
