"""The commands that documents show: each names a command, a target, a part or a module that is there, and its flags."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmarks.gpu_parts import PARTS as CARD_PARTS
from tests.command_pages import commands, parser_of
from tests.test_docs import PAGES, plain, runs
from tests.tree import ROOT

FENCED = re.compile(r"^( *)```.*?\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
OURS = re.compile(r"^(?:[A-Z_]\S*=\S+ )*(?:\S*/)?tensorfold ([\w./@\[-].*)")
"""Behind variables and a path; names of the package in an installer's line, of a job or of a key are not meant."""
MAKE = re.compile(r"^(make \w+)(?: (PART=\w+))?")
MODULE = re.compile(r"python3? -m (tests[\w.]*)(.*)")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
PART = re.compile(r"--part ([\w-]+)")


def shown(page: str) -> Iterator[str]:
    """Every line of a page's code without its remark."""
    blocks = "\n".join(body for _, body in FENCED.findall(page))
    for line in (*blocks.splitlines(), *INLINE.findall(plain(page))):
        yield re.sub(r"\s#.*", "", line).strip()


def fault(line: str) -> str:
    """What a line of code names that is not there; empty where it names nothing of ours, or all of it is there."""
    if made := MAKE.match(line):
        return "" if runs(made[1], made[2] or "") else line
    if module := MODULE.search(line):
        return module_fault(module[1], module[2])
    ours = OURS.match(line)
    return command_fault(ours[1]) if ours else ""


def module_fault(name: str, rest: str) -> str:
    """A module that is not there or does not run, a flag that no file beside it reads, or a part that is not there."""
    if not runs(f"python -m {name}", ""):
        return f"{name} does not run"
    place = ROOT / Path(*name.split("."))
    files = [place.with_suffix(".py")] if place.with_suffix(".py").exists() else sorted(place.glob("*.py"))
    read = "".join(file.read_text(encoding="utf-8") for file in files)
    absent = [flag for flag in FLAG.findall(rest) if f'"{flag}"' not in read]
    part = PART.search(rest)
    if part and name == "tests.benchmarks.gpu" and part[1] not in {*CARD_PARTS, "all", "NAME"}:
        absent.append(part[1])
    return f"{name} has no {', '.join(absent)}" if absent else ""


def command_fault(words: str) -> str:
    """A command that the parser does not know, or a flag that is not the command's."""
    first = words.split()[0]
    name = first if first in commands() else "serve"
    if name != first and re.fullmatch(r"[a-z]+", first) and first != "demo":
        return f"no command {first}"
    known = {"--version"} | {option for action in parser_of(name)._actions for option in action.option_strings}
    absent = [flag for flag in FLAG.findall(words) if flag not in known]
    return f"{name} has no {', '.join(absent)}" if absent else ""


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_command_that_a_document_shows_is_there(path: Path) -> None:
    assert [wrong for line in shown(path.read_text(encoding="utf-8")) if (wrong := fault(line))] == []


def test_commands_are_found_and_wrong_ones_noticed() -> None:
    lines = [line for path in PAGES for line in shown(path.read_text(encoding="utf-8"))]
    found = [line for line in lines if MAKE.match(line) or MODULE.search(line) or OURS.match(line)]
    assert len(found) > 100
    wrong = (
        "make nothing",
        "make prove PART=nothing",
        "PYTHONPATH=.pkg:. python -m tests.nothing",
        "python -m tests.benchmarks.gpu --part nothing",
        "python -m tests.benchmarks.gpu --nothing",
        "tensorfold nothing demo",
        "tensorfold verify demo --port 8080",
        "tensorfold demo --nothing",
    )
    assert [line for line in wrong if not fault(line)] == []
