"""The flags of every command, with their defaults and limits in the help."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from tensorfold import __version__
from tensorfold.domain.conversation import efforts
from tensorfold.entrypoints.cli import bench, environment_help, head_flags, info, later_flags, models, pull, update
from tensorfold.entrypoints.settings import (
    CUDA_SLOTS,
    ENGINE,
    HTTP,
    MEMORY,
    MOST_GIB,
    MOST_PARALLEL,
    PROMPTS,
    SAMPLING,
    gib,
    integer,
    number,
    parallel,
)

_COMMANDS = ("serve", "pull", "models", "info", "update", "verify", "bench")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The chosen command's flags; `run` is its function. `MODEL ...` alone means `serve MODEL ...`."""
    words, parser = list(arguments), build()
    if words and words[0] not in _COMMANDS and not words[0].startswith("-"):
        if not _names_a_model(words[0]):
            commands = ", ".join(_COMMANDS)
            parser.error(
                f"{words[0]!r} is neither a command ({commands}) nor a folder here, a repository such as owner/name, "
                "demo or demo@4bit"
            )
        words.insert(0, "serve")
    flags, unread = parser.parse_known_args(words)
    if unread:
        # The commands' parsers hand what they do not know to this one, which would point to its own help.
        parser.prog = f"{parser.prog} {words[0]}" if words[0] in _COMMANDS else parser.prog
        parser.error(f"unrecognized arguments: {' '.join(unread)}")
    return flags


def _names_a_model(word: str) -> bool:
    return word.split("@")[0] == "demo" or "/" in word or (bool(word) and Path(word).is_dir())


class _Parser(argparse.ArgumentParser):
    """Takes no abbreviated flags, which a later flag could make ambiguous, and refuses in one line."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **named})

    def error(self, message: str) -> NoReturn:
        """Say what cannot be read and exit with 2."""
        self.exit(2, f"{self.prog}: {message}; `{self.prog} --help` shows what there is.\n")


def build() -> argparse.ArgumentParser:
    """The whole parser."""
    parser = _Parser(
        prog="tensorfold",
        description="An exact LLM server: nothing that only changes speed ever changes a token.",
        epilog="`tensorfold MODEL` is short for `tensorfold serve MODEL` when MODEL is demo, demo@4bit, a folder or a "
        "repository such as owner/name.",
    )
    parser.add_argument("--version", action="version", version=f"tensorfold {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, fill, what in (
        ("serve", _serve, "serve a model over an OpenAI-compatible API"),
        ("pull", pull.fill, "download checkpoints ahead of time"),
        ("models", models.fill, "list the families and their checkpoints"),
        ("info", info.fill, "tell what a model is, without its weights"),
        ("update", update.fill, "look for a newer release and install it"),
        ("verify", _verify, "prove on this machine that nothing fast changes a token"),
        ("bench", bench.fill, "measure what drafts and a record are worth here, or a server, or compare results"),
    ):
        shown = f"{what[0].upper()}{what[1:]}."
        read = environment_help.shown(name)
        fill(commands.add_parser(name, help=what, description=shown, epilog=read, formatter_class=_Help))
    return parser


class _Help(argparse.HelpFormatter):
    """Shows a flag's default where it has one that says something."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        # By kind for the switches: 1 is equal to True, and says something.
        says = not isinstance(action.default, bool) and action.default not in (None, "", argparse.SUPPRESS)
        shown = says and bool(action.option_strings)
        return f"{text} (default: %(default)s)" if shown else text


def _model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a checkpoint's folder, a repository such as owner/name or owner/name@revision, `demo` or `demo@4bit`",
    )
    parser.add_argument("--backend", choices=("auto", "mlx", "cuda"), default="auto", help="what runs the model")
    parser.add_argument(
        "--context", type=integer(0, 1 << 31), default=None, metavar="N",
        help="prompt plus reply capacity in tokens; without it, the model's own window or what of it memory holds; "
        "0: what memory holds",
    )  # fmt: skip
    parser.add_argument(
        "--parallel", type=parallel, default="auto", metavar="N",
        help=f"streams that share rounds, 1 to {MOST_PARALLEL}, or auto: up to {ENGINE.parallel}, as memory allows, on "
        "CUDA 1",
    )  # fmt: skip


def _serve(parser: argparse.ArgumentParser) -> None:
    def run(flags: argparse.Namespace) -> int:
        # First, so that no signal falls into the second that the imports behind it take.
        from tensorfold.entrypoints.cli.signals import Signals

        signals = Signals()
        from tensorfold.entrypoints.cli.serve import serve

        return serve(flags, signals)

    _model(parser)
    parser.set_defaults(run=run)
    endpoint = parser.add_argument_group("endpoint")
    endpoint.add_argument("--host", default=HTTP.host, help="address to listen on")
    endpoint.add_argument(
        "--port", type=integer(0, 65535), default=HTTP.port, help="port to listen on; 0 picks a free one"
    )
    endpoint.add_argument("--name", default="", help="model id clients see; without it, the model's own name")
    endpoint.add_argument("--alias", action="append", metavar="ID", help="a further model id; may be repeated")
    endpoint.add_argument(
        "--api-key",
        action="append",
        metavar="KEY",
        help="a key clients must send; may be repeated (or TENSORFOLD_API_KEY)",
    )
    endpoint.add_argument(
        "--api-key-file",
        metavar="PATH",
        help="a file of keys, one a line, as KEY or LABEL: KEY; read again when it changes and at SIGHUP",
    )
    endpoint.add_argument("--metrics-open", action="store_true", help="show /metrics without a key")
    endpoint.add_argument(
        "--cors",
        action="append",
        metavar="ORIGIN",
        help="an origin whose web pages may use the server, such as http://localhost:3000, or *; may be repeated",
    )
    endpoint.add_argument(
        "--no-update-check",
        action="store_true",
        help="do not look for a newer release at the start (or TENSORFOLD_NO_UPDATE_CHECK=1)",
    )
    generation = parser.add_argument_group("generation")
    generation.add_argument(
        "--max-tokens", type=integer(1, 1 << 31), default=SAMPLING.max_tokens, metavar="N", help="default reply limit"
    )
    for flag, read, metavar, what in (
        ("--temperature", number(0, 100), "T", "temperature, 0 is greedy"),
        ("--top-p", number(0, 1, open_least=True), "P", "nucleus, 1 is off"),
        ("--top-k", integer(-1, 1 << 31), "K", "number of candidates, 0 is off"),
        ("--min-p", number(0, 1), "P", "least share of the best candidate's probability, 0 is off"),
    ):
        words = f"default {what}; without it, what generation_config.json says"
        generation.add_argument(flag, type=read, metavar=metavar, help=words)
    generation.add_argument(
        "--thinking",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="the template's thinking toggle, on unless --no-thinking",
    )
    generation.add_argument(
        "--reasoning-effort",
        action=later_flags.Given,
        choices=("low", "medium", "high", "xhigh"),
        default=efforts.DEFAULT,
        help="the template's reasoning effort, where it takes one: the nearest that it names",
    )
    generation.add_argument(
        "--thinking-budget",
        action=later_flags.Given,
        type=integer(0, 1 << 31),
        default=0,
        metavar="N",
        help="tokens after which a reply's reasoning is closed, 0 is off (MLX alone)",
    )
    generation.add_argument("--learn", action="store_true", help=argparse.SUPPRESS)
    drafting = parser.add_argument_group("drafting and caches")
    drafting.add_argument("--no-drafts", action="store_true", help="decode serially, the reference for every reply")
    drafting.add_argument(
        "--decode-share", type=number(0, 16), default=ENGINE.decode_share, metavar="X",
        help="part of a prompt slice's time that running replies get before the next slice",
    )  # fmt: skip
    head_flags.fill(drafting)
    drafting.add_argument(
        "--mlx-cache-gib", action=later_flags.Given, type=number(0, MOST_GIB), default=MEMORY.cache >> 30,
        metavar="GIB", help="freed buffers that MLX keeps for reuse, at most what the budget leaves it (MLX alone)",
    )  # fmt: skip
    drafting.add_argument(
        "--prompt-cache-gib", action=later_flags.Given, type=number(0, MOST_GIB), metavar="GIB",
        help="states of prompts that are kept for the next turn, 0 for none; without it, what memory leaves idle "
        "beside one full window (MLX alone)",
    )  # fmt: skip
    drafting.add_argument(
        "--checkpoint-slots", action=later_flags.Given, type=integer(0, 1024), metavar="N",
        help=f"how many states of prompts are kept at most, beside shared beginnings; without it {PROMPTS.slots}, on "
        f"CUDA {CUDA_SLOTS}",
    )  # fmt: skip
    drafting.add_argument(
        "--snapshot-dir", action=later_flags.Given, metavar="DIR",
        help="the folder of states that outlive the server, `none` for none; without it, one in the cache (MLX alone)",
    )  # fmt: skip
    recall = parser.add_argument_group("recall")
    recall.add_argument(
        "--recall", action="store_true", help="keep a record of the token ids read and written, and draft from it"
    )
    recall.add_argument(
        "--recall-dir", metavar="DIR",
        help="the record's own folder; without it, one named by the tokenizer in the cache; implies --recall",
    )  # fmt: skip
    recall.add_argument(
        "--recall-gib", type=gib, metavar="GIB",
        help="disk the record may take, past which the oldest ids go first: a decimal or a fraction, 1/16 (64 MiB) "
        "without it, from 1/128 to 8, since ids are numbered in 31 bits; implies --recall",
    )  # fmt: skip
    recall.add_argument(
        "--recall-read-only", action="store_true",
        help="draft from the record and add nothing to it; implies --recall",
    )  # fmt: skip
    later_flags.fill(parser.add_argument_group("NVIDIA"), later_flags.NVIDIA)


def _verify(parser: argparse.ArgumentParser) -> None:
    def run(flags: argparse.Namespace) -> int:
        from tensorfold.entrypoints.cli.verify import verify

        return verify(flags)

    _model(parser)
    parser.set_defaults(run=run)
    parser.add_argument("--json", action="store_true", help="print the proof as one JSON object")
    parser.add_argument("--seed", type=integer(0, 2**63 - 1), default=1, help="seed of the sampled requests")
    head_flags.fill(parser.add_argument_group("draft heads"))
