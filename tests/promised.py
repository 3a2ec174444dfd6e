"""The promises of docs/promises.md: the tests they name, and the commands that run what `make test` does not."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tests.tree import ROOT

CUDA_FOLDERS = ("tests/adapters/cuda/", "tests/kernels/cuda/", "tests/kernels/triton/")
"""Where the tests are that run in an environment of their own, with torch, Triton and NVRTC."""
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
_FILE = re.compile(r"`(tests/[\w/]+\.py)`")
_COMMAND = re.compile(r"`(make \w+|python -m [\w.]+)((?: [\w=.-]+)*)`")


@dataclass(frozen=True, slots=True)
class Promise:
    """One row: its sentence, the tests it names as `file::function`, the files it names alone, and its commands.

    A command is the words up to its first option and the rest.
    """

    sentence: str
    tests: tuple[str, ...]
    files: tuple[str, ...]
    commands: tuple[tuple[str, str], ...]


def promises() -> tuple[Promise, ...]:
    """Every row of every table of the page."""
    page = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
    rows = (line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| ---"))
    cells = [row.strip().strip("|").rsplit("|", 1) for row in rows]
    return tuple(_promise(sentence, tests) for sentence, tests in cells if sentence.strip() != "Promise")


def _promise(sentence: str, cell: str) -> Promise:
    named = tuple(f"{file}::{function}" for file, function in _TEST.findall(cell))
    commands = tuple((command, rest.strip()) for command, rest in _COMMAND.findall(cell))
    return Promise(sentence.strip(), named, tuple(_FILE.findall(cell)), commands)


def promised_tests() -> frozenset[str]:
    """Every test that some promise names."""
    return frozenset(test for promise in promises() for test in promise.tests)


def function_of(node: str) -> str:
    """A collected test without its parameters."""
    return node.partition("[")[0]


def missing(nodes: Iterable[str]) -> list[str]:
    """Promised tests that are not among the tests of a collection or a run."""
    there = {function_of(node) for node in nodes}
    return sorted(promised_tests() - there)


def with_cuda_tools(test: str) -> bool:
    """Whether a test belongs to the environment with torch, Triton and NVRTC."""
    return test.startswith(CUDA_FOLDERS)


def is_written(test: str) -> bool:
    """Whether a test's function stands in its file: where the file cannot be imported, nothing of it is collected."""
    name, _, function = test.partition("::")
    file = ROOT / name
    return file.is_file() and f"\ndef {function}(" in file.read_text(encoding="utf-8")
