"""Flag tables of the command pages, made from the parser: `python -m tests.command_pages --write` renews them.

A page keeps its own words; only what stands between its two markers is made here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from tensorfold.entrypoints.cli.parser import build
from tests.tree import ROOT

COMMANDS = ("serve", "pull", "models", "info", "update", "verify", "bench")
END = "<!-- end of flags -->"


def parser_of(command: str) -> argparse.ArgumentParser:
    """The parser of one command."""
    subparsers = next(a for a in build()._actions if isinstance(a, argparse._SubParsersAction))
    found: argparse.ArgumentParser = subparsers.choices[command]
    return found


def commands() -> tuple[str, ...]:
    """Every command the parser knows."""
    subparsers = next(a for a in build()._actions if isinstance(a, argparse._SubParsersAction))
    return tuple(subparsers.choices)


def flags(command: str) -> Iterator[tuple[str, argparse.Action]]:
    """The title of its group and the action of every flag but help, in the order of the help text."""
    for group in parser_of(command)._action_groups:
        for action in group._group_actions:
            if action.option_strings and action.help is not argparse.SUPPRESS and "--help" not in action.option_strings:
                yield group.title or "", action


def table(command: str) -> str:
    """The command's flags as a Markdown table."""
    lines = ["| Flag | Default | Meaning |", "| --- | --- | --- |"]
    lines += [f"| {_name(action)} | {_default(action)} | {action.help} |" for _, action in flags(command)]
    return "\n".join(lines)


def page(command: str) -> str:
    """The command's page with its table renewed. Raises ValueError when a marker is missing."""
    text = (ROOT / "docs" / f"{command}.md").read_text(encoding="utf-8")
    begin = f"<!-- flags: {command} -->"
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"docs/{command}.md lacks {begin} or {END}")
    return f"{before}{begin}\n{table(command)}\n{END}{after}"


def _name(action: argparse.Action) -> str:
    value = f" {_value(action)}" if action.nargs != 0 else ""
    return ", ".join(f"`{option}{value}`" for option in action.option_strings)


def _value(action: argparse.Action) -> str:
    if action.choices is not None:
        return "\\|".join(map(str, action.choices))
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    return action.metavar or action.dest.upper()


def _default(action: argparse.Action) -> str:
    if action.default in (None, "") or action.default is argparse.SUPPRESS:
        return ""
    if isinstance(action.default, bool):
        return "on" if action.default else "off"
    return f"`{action.default}`"


def main() -> int:
    """Renew the pages with `--write`; without it, say which are out of step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="renew the pages")
    write = parser.parse_args().write
    stale = [name for name in COMMANDS if page(name) != (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")]
    for name in stale if write else ():
        (ROOT / "docs" / f"{name}.md").write_text(page(name), encoding="utf-8")
    print(
        f"{len(stale)} of {len(COMMANDS)} pages {'renewed' if write else 'out of step'}: {', '.join(stale) or 'none'}"
    )
    return 1 if stale and not write else 0


if __name__ == "__main__":
    sys.exit(main())
