"""What a contract suite runs on, an implementation of a port, and what it is made of: plain functions of a subject."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

Subject = TypeVar("Subject")


@dataclass(frozen=True, slots=True)
class Candidate(Generic[Subject]):
    """`build` makes a fresh subject with a folder of its own; imports of heavy libraries belong inside it."""

    name: str
    build: Callable[[Path], Subject]


def checks_of(*modules: ModuleType) -> tuple[Callable[[Any], None], ...]:
    """The public functions that each module defines, in the order they stand there."""
    found: list[Callable[[Any], None]] = []
    for module in modules:
        own = [f for _, f in inspect.getmembers(module, inspect.isfunction) if f.__module__ == module.__name__]
        found += sorted((f for f in own if not f.__name__.startswith("_")), key=lambda f: f.__code__.co_firstlineno)
    return tuple(found)


def names(things: Sequence[Any]) -> list[str]:
    """Readable test ids."""
    return [getattr(thing, "name", None) or thing.__name__ for thing in things]


def refuses(call: Callable[[], object], *errors: type[BaseException]) -> BaseException:
    """The error that `call` raises, which must be one of `errors`; an AssertionError when it raises none or another."""
    try:
        call()
    except errors as error:
        return error
    except Exception as error:
        raise AssertionError(f"{error!r} where one of {[e.__name__ for e in errors]} is due") from error
    raise AssertionError(f"nothing was raised where one of {[e.__name__ for e in errors]} is due")


def sentence(error: BaseException) -> None:
    """Assert that an error's `message` is one line that ends as a sentence does."""
    message = getattr(error, "message", "")
    assert message and "\n" not in message and message.endswith("."), message


class Lines(list[str]):
    """A progress callback that keeps its lines."""

    def __call__(self, line: str) -> None:
        """One line, not empty."""
        assert line and "\n" not in line
        self.append(line)
