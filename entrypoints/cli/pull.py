"""`tensorfold pull REPO [REPO...]`: download checkpoints ahead of time, and go on where an earlier try ended."""

from __future__ import annotations

import argparse
import os


def fill(parser: argparse.ArgumentParser) -> None:
    """The command's words and its function."""
    parser.set_defaults(run=_run)
    parser.add_argument(
        "models",
        nargs="+",
        metavar="REPO",
        help="a repository such as owner/name or owner/name@revision, `demo` or `demo@4bit`",
    )


def _run(flags: argparse.Namespace) -> int:
    # First, so that no signal falls into the second that the imports behind it take.
    from tensorfold.entrypoints.cli.signals import EndAskedError, Signals

    signals = Signals()
    from tensorfold.entrypoints.cli.lines import warn

    try:
        with signals.interrupting():
            return pull(flags)
    except EndAskedError:
        warn("stopped; what was downloaded stays, and the same command goes on from there")
        return 130


def pull(flags: argparse.Namespace) -> int:
    """Run the command; 0. Raises RefusedError at the first model that is refused: earlier ones stay."""
    from tensorfold.entrypoints.cli.lines import say
    from tensorfold.entrypoints.cli.progress import Progress, size
    from tensorfold.entrypoints.container import Container
    from tensorfold.entrypoints.settings import cache_folder

    puller = Container(cache=cache_folder(os.environ)).puller()
    puller.check_names(flags.models)
    for model in flags.models:
        with Progress(model, say) as progress:
            pulled = puller.pull(model, progress.say, progress.moved)
        family = f", {pulled.family}" if pulled.family else ""
        say(f"{model} is complete: {size(pulled.size)} in {pulled.folder}{family}")
        for note in pulled.notes:
            say(f"{model}: {note}")
    return 0
