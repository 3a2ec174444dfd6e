"""`tensorfold verify` on a real model: it passes; a fault planted behind its back makes it fail and name the place.

Three kinds of fault are planted in the loaded model's blocks. One that only wide calls show, planted after the load
check, must be found by the proof. One in wide windows only, and one in shared rounds only, there from the start, must
be found by the load check: the server starts, says what was narrowed, and serves equal replies.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tensorfold.entrypoints.cli import main as tensorfold
from tests.adapters.mlx.planted_faults import drift_after_load, drift_when_shared, drift_when_wide


@contextlib.contextmanager
def fresh_cache() -> Iterator[None]:
    """Let the load check measure anew: no verdict of an earlier, sound run may be reused."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _with_check_cache(Path(folder))


def _with_check_cache(folder: Path) -> Iterator[None]:
    from tests.adapters.mlx.planted_faults import checks_kept_in

    with checks_kept_in(folder):
        yield


def verify(model: str) -> tuple[int, dict[str, object], str]:
    """Exit code, the JSON report, and everything else that was printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = tensorfold(["verify", model, "--json"])
    lines = [line for line in out.getvalue().splitlines() if line.startswith("{")]
    return code, json.loads(lines[-1]) if lines else {}, err.getvalue()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="demo")
    flags = parser.parse_args()
    began = time.monotonic()
    missed = []
    code, sound, said = verify(flags.model)
    seconds = time.monotonic() - began
    print(
        f"sound: exit {code}, {sound.get('compared')} tokens compared, {sound.get('differences')} differences, "
        f"{seconds:.0f} s"
    )
    if code != 0 or not sound.get("passed"):
        missed.append(f"the sound model did not pass: {sound.get('reasons')} {said}")
    with drift_after_load():
        code, report, _ = verify(flags.model)
    print(f"planted after the load check: exit {code}, {str(report.get('reasons'))[:300]}")
    if code != 1 or "position" not in str(report.get("reasons")):
        missed.append("a fault planted after the load check was not found and named")
    for name, plant, words in (
        ("wide windows only", drift_when_wide, "window"),
        ("shared rounds only", drift_when_shared, "shar"),
    ):
        with fresh_cache(), plant():
            code, report, said = verify(flags.model)
        notes = str(report.get("notes"))
        print(f"{name}: exit {code}, {report.get('differences')} differences, said {notes[:300]}")
        if report.get("differences") != 0 or words not in notes:
            missed.append(f"a fault in {name} was not narrowed away")
    for line in missed:
        print(f"  - {line}")
    print(f"verify on {flags.model}: {'holds' if not missed else 'FAILED'}, {time.monotonic() - began:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
