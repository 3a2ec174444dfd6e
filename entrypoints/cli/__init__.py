"""The command line: one file per command. Parsing loads no backend, so `--help` answers at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tensorfold.application.ports.checkpoints import RefusedError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the process's exit code. Refusals are one line on stderr, never a traceback."""
    try:
        from tensorfold.entrypoints.cli.parser import parse

        flags = parse(sys.argv[1:] if arguments is None else arguments)
        code: int = flags.run(flags)
        return code
    except RefusedError as refusal:
        print(f"tensorfold: {refusal.message}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        return 130
