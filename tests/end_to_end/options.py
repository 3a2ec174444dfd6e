"""Every option of `serve`: its default, what it does, what a request may set over it, and what refuses it.

`python -m tests.end_to_end.options` walks the table, and every refusal of the command line beside it. It prints its
figures on the last line and ends with 1 when one of them is missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.entrypoints.cli.later_flags import LATER, MLX_ONLY, refuse_flags
from tensorfold.entrypoints.cli.parser import parse
from tests.command_pages import flags, parser_of
from tests.end_to_end import option_checks as checks
from tests.end_to_end.option_scene import Scene, scene

Check = checks.Check


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `default` is in its help; `effect` shows that it did something, `override` that a request may."""

    name: str
    default: str
    effect: Check
    override: Check | None = None


OPTIONS: tuple[Option, ...] = (
    Option("--host", "127.0.0.1", checks.host),
    Option("--port", "8080", lambda both: f"127.0.0.1:{both.given.port}/v1" in both.given.report),
    Option(
        "--name", "the model's own name", lambda both: checks.served_ids(both)[0] == "shown",
        lambda both: both.given.chat(model="other", max_tokens=1)["model"] == "other",
    ),
    Option("--alias", "", checks.alias),
    Option("--api-key", "", checks.keys),
    Option("--api-key-file", "", checks.file_keys),
    Option("--metrics-open", "", checks.open_metrics),
    Option("--cors", "", checks.cors),
    Option("--no-update-check", "", checks.settings("--no-update-check", wanted=lambda made: not made.update.check)),
    Option("--context", "the model's own window", checks.context),
    Option(
        "--max-tokens", "4096", checks.most_tokens,
        lambda both: checks.reply_tokens(both, max_tokens=9) == 9,
    ),
    Option(
        "--temperature", "generation_config.json", checks.in_report("temperature 0.5", "(greedy unless"),
        lambda both: both.given.chat(temperature=0)["tensorfold"]["sampling"] == "greedy",
    ),
    Option("--top-p", "generation_config.json", checks.in_report("top-p 0.9"), checks.greedy_under("top_p", 1e-9)),
    Option("--top-k", "generation_config.json", checks.in_report("top-k 20"), checks.greedy_under("top_k", 1)),
    Option("--min-p", "generation_config.json", checks.in_report("min-p 0.1"), checks.greedy_under("min_p", 1.0)),
    Option("--thinking", "on unless", checks.thinking, checks.thinking_request),
    Option("--no-thinking", "on unless", checks.thinking, checks.thinking_request),
    Option("--reasoning-effort", "medium", checks.in_report("effort high", "effort medium"), checks.effort_request),
    Option("--backend", "auto", checks.backend),
    Option("--parallel", "auto", checks.in_report("streams: up to 2", "streams: up to 8")),
    Option("--no-drafts", "", checks.drafts_off, checks.serial_request),
    Option(
        "--drafter", "auto",
        checks.settings("--drafter", "owner/name", wanted=lambda made: made.engine.heads.drafter == "owner/name"),
    ),
    Option(
        "--drafter-bits", "4",
        checks.settings("--drafter-bits", "0", wanted=lambda made: made.engine.heads.drafter_bits == 0),
    ),
    Option(
        "--mtp-drafts", "what its family publishes",
        checks.settings("--mtp-drafts", "2", wanted=lambda made: made.engine.heads.mtp_drafts == 2),
    ),
    Option(
        "--mtp-confidence", "what its family publishes",
        checks.settings("--mtp-confidence", "0.7", wanted=lambda made: made.engine.heads.mtp_confidence == 0.7),
    ),
    Option(
        "--thinking-budget", "0",
        checks.settings("--thinking-budget", "100", wanted=lambda made: made.model.thinking_budget == 100),
    ),
    Option("--decode-share", "0.25", checks.in_report("decode share 0.5", "decode share 0.25")),
    Option(
        "--mlx-cache-gib", "8",
        checks.settings("--mlx-cache-gib", "0.5", wanted=lambda made: made.memory.cache == 1 << 29),
    ),
    Option(
        "--prompt-cache-gib", "what memory leaves idle",
        checks.settings("--prompt-cache-gib", "0.5", wanted=lambda made: made.prompts.budget == 1 << 29),
    ),
    Option(
        "--checkpoint-slots", "32",
        checks.settings("--checkpoint-slots", "2", wanted=lambda made: made.prompts.slots == 2),
    ),
    Option(
        "--snapshot-dir", "one in the cache",
        checks.settings("--snapshot-dir", "none", wanted=lambda made: made.prompts.snapshots is None),
    ),
    Option("--recall", "", checks.record),
    Option("--recall-dir", "named by the tokenizer", checks.in_report("/ids")),
    Option("--recall-gib", "1/16 (64 MiB)", checks.in_report("of 8.0 MiB")),
    Option("--recall-read-only", "", checks.settings("--recall-read-only", wanted=checks.reads_only)),
)  # fmt: skip
ASKING = {
    "--tp": "2", "--rank": "1", "--master": "host", "--master-port": "1234",
}  # fmt: skip
"""For every flag of a part that is not there, a value that asks for it."""
LISTED = frozenset(
    {
        "--host", "--port", "--name", "--alias", "--context", "--max-tokens", "--temperature", "--top-p", "--top-k",
        "--thinking", "--no-thinking", "--reasoning-effort", "--thinking-budget", "--backend", "--parallel",
        "--no-drafts", "--drafter", "--mtp-drafts", "--tp", "--rank", "--master", "--prompt-cache-gib",
        "--mlx-cache-gib", "--snapshot-dir", "--no-update-check", "--recall", "--recall-dir", "--recall-gib",
        "--recall-read-only", "--api-key", "--api-key-file", "--metrics-open", "--cors", "--drafter-bits",
        "--master-port", "--min-p", "--decode-share", "--checkpoint-slots", "--mtp-confidence",
    }
)  # fmt: skip
"""Every flag that there is to be, and no other."""


def spoken() -> dict[str, str]:
    """The help text of every option of `serve`, its default in it."""
    formatter = parser_of("serve")._get_formatter()
    return {name: formatter._expand_help(action) for _, action in flags("serve") for name in action.option_strings}


def faults(both: Scene) -> list[str]:
    """What is not as documented, one line each."""
    told, found = spoken(), []
    for option in OPTIONS:
        if option.default not in " ".join(told[option.name].split()):
            found.append(f"{option.name}: its default is not in its help")
        if not option.effect(both):
            found.append(f"{option.name}: no effect")
        if option.override is not None and not option.override(both):
            found.append(f"{option.name}: a request does not override it")
    return found + [f"{name}: not on the list" for name in sorted(LISTED ^ told.keys())]


def later_faults() -> list[str]:
    """The same of flags whose part is not there, and of those that one backend alone knows."""
    told, found = spoken(), []
    for flag in LATER:
        text = told[flag.option]
        if "not part of this version" not in text or (flag.default and f"(default: {flag.default})" not in text):
            found.append(f"{flag.option}: its help")
        if not refused("demo", flag.option, ASKING[flag.option]).startswith(f"{flag.option} asks for {flag.asks}"):
            found.append(f"{flag.option}: not refused")
    for name in MLX_ONLY:
        value = ASKING.get(name) or ("medium" if name in ("--alias", "--reasoning-effort") else "1")
        said = refused("demo", "--backend", "cuda", name, value)
        if said != f"{name} is for MLX alone; leave it out with --backend cuda.":
            found.append(f"{name}: not refused with --backend cuda")
    return found


def refused(*words: str) -> str:
    """The line that refuses the flags of a `serve`; empty where none does."""
    try:
        refuse_flags(parse(["serve", *words]))
    except RefusedError as refusal:
        return refusal.message
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Walk both tables; the exit code."""
    from tests.end_to_end.cli_refusals import REFUSALS, Room, refusal_faults

    argparse.ArgumentParser(description=__doc__).parse_args(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tensorfold-options-") as made:
        folder = Path(made).resolve()
        with scene(folder / "servers") as both:
            found = faults(both) + later_faults()
        room = Room(folder / "refusals")
        for refusal in REFUSALS:
            found += [f"{refusal.name}: {fault}" for fault in refusal_faults(refusal, room)]
    for fault in found:
        print(f"-- {fault}")
    print(
        f"{'FAILED' if found else 'ok'}: {len(OPTIONS)} options with their defaults and effects, "
        f"{sum(option.override is not None for option in OPTIONS)} of them under a request's own, {len(LATER)} flags "
        f"of parts that are not there, {len(MLX_ONLY)} of MLX alone; {len(REFUSALS)} refusals in one line with their "
        f"exit code; {len(found)} faults, {time.monotonic() - began:.0f} s"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
