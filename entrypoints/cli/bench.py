"""`tensorfold bench`: its flags, and which of its forms they ask for: measure, measure a server, compare, or tell
what memory gives.

Parsing loads nothing; each form is in a file of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from tensorfold.entrypoints.cli import head_flags
from tensorfold.entrypoints.settings import MOST_PARALLEL, integer, number

STREAMS, TOKENS, RUNS, TOLERANCE = "1,2,4,8", 32, 1, 10.0
MOST_STREAM_COUNTS = 16
_MEASURING = ("streams", "tokens", "runs", "prompts", "json", "plots")
_ENGINE = ("backend", "context", "drafter", "drafter_bits", "mtp_drafts", "mtp_confidence")
_FLAGS = {
    "measure": {"model", *_MEASURING, *_ENGINE},
    "--url": {"model", "url", "key", *_MEASURING},
    "--compare": {"compare", "tolerance", "changelog"},
    "--memory-classes": {"memory_classes"},
}
"""What each form takes."""


def fill(parser: argparse.ArgumentParser) -> None:
    """The command's words and its function."""
    parser.set_defaults(run=partial(_run, parser))
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="a checkpoint's folder, a repository such as owner/name or owner/name@revision, `demo` or `demo@4bit`; "
        "with --url, an id that the server names",
    )
    parser.add_argument("--backend", choices=("auto", "mlx", "cuda"), default="auto", help="what runs the model")
    parser.add_argument(
        "--context", type=integer(0, 1 << 31), metavar="N",
        help="prompt plus reply capacity in tokens; without it, the model's own window",
    )  # fmt: skip
    measuring = parser.add_argument_group("measuring")
    measuring.add_argument(
        "--streams", type=streams, default=STREAMS, metavar="N[,N...]",
        help=f"numbers of streams to measure, each 1 to {MOST_PARALLEL}",
    )  # fmt: skip
    measuring.add_argument(
        "--tokens", type=integer(8, 65536), default=TOKENS, metavar="N", help="tokens of a reply, 8 to 65536"
    )
    measuring.add_argument(
        "--runs", type=integer(1, 100), default=RUNS, metavar="N",
        help="how often each prompt is asked in a cell, 1 to 100; more often where a stream would get no request",
    )  # fmt: skip
    measuring.add_argument("--prompts", metavar="FILE", help="prompts of your own, one JSON object a line")
    measuring.add_argument("--json", metavar="FILE", help="also write the result there, for --compare")
    measuring.add_argument("--plots", metavar="DIR", help="also draw the result there, as SVG")
    head_flags.fill(parser.add_argument_group("draft heads"))
    server = parser.add_argument_group("a server")
    server.add_argument("--url", metavar="URL", help="measure the OpenAI-compatible server there instead, over HTTP")
    server.add_argument("--key", metavar="KEY", help="the server's API key")
    comparing = parser.add_argument_group("comparing")
    comparing.add_argument(
        "--compare", nargs=2, metavar=("BEFORE", "AFTER"),
        help="compare two results that --json wrote, and write a changelog's paragraph; nothing is measured",
    )  # fmt: skip
    comparing.add_argument(
        "--tolerance", type=number(0, 100), default=TOLERANCE, metavar="PERCENT",
        help="how much slower a cell may be, in percent, before the command fails",
    )  # fmt: skip
    comparing.add_argument(
        "--changelog", metavar="FILE",
        help="put the paragraph at the end of this file's newest section, instead of printing it",
    )  # fmt: skip
    parser.add_argument_group("memory").add_argument(
        "--memory-classes", action="store_true",
        help="print what window each listed model gets in each class of memory, reckoned from plans; nothing is loaded",
    )  # fmt: skip


def streams(text: str) -> tuple[int, ...]:
    """An argparse type: different numbers of streams, rising."""
    read = integer(1, MOST_PARALLEL)
    parts = text.split(",")
    if len(parts) > MOST_STREAM_COUNTS:
        raise argparse.ArgumentTypeError(f"{len(parts)} numbers are more than {MOST_STREAM_COUNTS}")
    counts = sorted({read(part.strip()) for part in parts})
    if len(counts) != len(parts):
        raise argparse.ArgumentTypeError(f"{text!r} says a number twice")
    return tuple(counts)


def _run(parser: argparse.ArgumentParser, flags: argparse.Namespace) -> int:
    form = _form(flags)
    _check_form(parser, flags, form)
    return _FORMS[form](flags)


def _form(flags: argparse.Namespace) -> str:
    if flags.memory_classes:
        return "--memory-classes"
    return "--compare" if flags.compare is not None else "--url" if flags.url is not None else "measure"


def _check_form(parser: argparse.ArgumentParser, flags: argparse.Namespace, form: str) -> None:
    """Refuse a flag that the form has no use for, and a model that is missing."""
    strange = [
        action.option_strings[0] if action.option_strings else "MODEL"
        for action in parser._actions
        if action.dest not in _FLAGS[form] and hasattr(flags, action.dest) and _is_given(flags, action)
    ]
    if strange:
        where = f"goes with {_needs(strange[0])}" if form == "measure" else f"does not go with {form}"
        parser.error(f"{strange[0]} {where}")
    if form == "measure" and flags.model is None:
        parser.error("name a MODEL to measure, or give --url, --compare or --memory-classes")


def _is_given(flags: argparse.Namespace, action: argparse.Action) -> bool:
    default = streams(STREAMS) if action.dest == "streams" else action.default
    return bool(getattr(flags, action.dest) != default)


def _needs(flag: str) -> str:
    return "--url" if flag == "--key" else "--compare"


def _measure(flags: argparse.Namespace) -> int:
    from tensorfold.entrypoints.cli.bench_measuring import measure

    return measure(flags)


def _server(flags: argparse.Namespace) -> int:
    from tensorfold.entrypoints.cli.bench_measuring import measure_server

    return measure_server(flags)


def _compare(flags: argparse.Namespace) -> int:
    from tensorfold.entrypoints.cli.bench_comparing import compare_results

    return compare_results(flags)


def _memory(flags: argparse.Namespace) -> int:
    from tensorfold.entrypoints.cli.bench_memory import memory_classes

    return memory_classes(flags)


_FORMS: dict[str, Callable[[argparse.Namespace], int]] = {
    "measure": _measure,
    "--url": _server,
    "--compare": _compare,
    "--memory-classes": _memory,
}
