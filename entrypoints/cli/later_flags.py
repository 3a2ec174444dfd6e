"""Flags of parts that this version does not have, in one table: the parser takes them, values that ask for nothing of
such a part pass, and every other one is refused in one line that says so and what to do.

A server is never started as if it had done what it was asked for.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.entrypoints.settings import integer

Backend = Literal["mlx", "cuda"]
_ONE = "one process serves a model"


@dataclass(frozen=True, slots=True)
class LaterFlag:
    """One flag: `asks` names what it asks for, `stands` what this version does instead.

    `passes` are the values that ask for nothing, `default` is what holds without the flag. `backend` is the only one
    that will know it, None: both.
    """

    option: str
    metavar: str
    read: Callable[[str], Any]
    default: Any
    asks: str
    stands: str
    passes: tuple[Any, ...]
    backend: Backend | None = None

    @property
    def meaning(self) -> str:
        """The help text."""
        alone = f" ({self.backend.upper()} alone)" if self.backend else ""
        taken = " and ".join(f"`{value}`" for value in self.passes if value != "")
        return f"{self.asks}{alone}: not part of this version, which {f'takes only {taken}' if taken else 'refuses it'}"

    def refusal(self) -> str:
        """The line for any other value."""
        taken = " or ".join(f"`{value}`" for value in self.passes if value != "")
        leave = f"leave it out or give it {taken}" if taken else "leave it out"
        return f"{self.option} asks for {self.asks}, which is not part of this version: {self.stands}; {leave}."


NVIDIA = (
    LaterFlag("--tp", "N", integer(1, 2), 1, "two CUDA ranks", _ONE, (1,), "cuda"),
    LaterFlag("--rank", "N", integer(0, 1), 0, "the second of two CUDA ranks", _ONE, (0,), "cuda"),
    LaterFlag("--master", "HOST", str, "", "the address of the first of two CUDA ranks", _ONE, ("",), "cuda"),
    LaterFlag(
        "--master-port", "PORT", integer(1, 65535), 29551, "the port of the first of two CUDA ranks", _ONE, (29551,),
        "cuda",
    ),
)  # fmt: skip
LATER = NVIDIA

MLX_ONLY = (
    "--alias",
    "--reasoning-effort",
    "--thinking-budget",
    "--mlx-cache-gib",
    "--prompt-cache-gib",
    "--snapshot-dir",
    *(flag.option for flag in LATER if flag.backend == "mlx"),
)
LEARN = (
    "--learn is no flag of this version: what was read before is kept by the prompt cache (--prompt-cache-gib), and "
    "--recall keeps a record that drafts are copied from."
)


class Given(argparse.Action):
    """Stores a value and remembers that it was given, which an equal default could not tell."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        """As argparse calls it."""
        setattr(namespace, self.dest, values)
        namespace.given = frozenset({*given(namespace), self.option_strings[0]})


def given(flags: argparse.Namespace) -> frozenset[str]:
    """The options among those of `Given` that stood on the command line."""
    found: frozenset[str] = getattr(flags, "given", frozenset())
    return found


def fill(group: argparse._ArgumentGroup, flags: tuple[LaterFlag, ...]) -> None:
    """Let a group take these flags."""
    for flag in flags:
        group.add_argument(
            flag.option, action=Given, type=flag.read, default=flag.default, metavar=flag.metavar, help=flag.meaning
        )


def refuse_flags(flags: argparse.Namespace, chosen: str | None = None) -> None:
    """Refuse what this version, or the backend that was `chosen`, does not do. Raises RefusedError.

    None: what was named; `auto` then refuses nothing for a backend's sake.
    """
    values: Mapping[str, Any] = vars(flags)
    if values.get("learn"):
        raise RefusedError(LEARN)
    asked = given(flags) | ({"--alias"} if values.get("alias") else set())
    backend = chosen or flags.backend
    for option in MLX_ONLY:
        if option in asked and backend == "cuda":
            raise RefusedError(f"{option} is for MLX alone; leave it out with --backend {backend}.")
    for flag in LATER:
        if flag.option in asked and values[flag.option.removeprefix("--").replace("-", "_")] not in flag.passes:
            raise RefusedError(flag.refusal())
