"""The real command, in this process or in one of its own, and everything it may leave behind."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tensorfold.entrypoints.cli import main

ROOT = Path(__file__).parents[2]
MARK = "TENSORFOLD_TEST_MARK"
NO_CHECK = "TENSORFOLD_NO_UPDATE_CHECK"
LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended. `peak_bytes` counts it and the children it waited for; `left` are processes it left."""

    code: int
    out: str
    err: str
    seconds: float
    peak_bytes: int = 0
    left: tuple[int, ...] = ()

    def refusal_faults(self) -> list[str]:
        """What is wrong with this as a refusal: one line of ours on stderr, exit code 1, nothing else."""
        found = []
        if self.code != 1:
            found.append(f"exit code {self.code}")
        if self.out:
            found.append(f"stdout says {self.out[-200:]!r}")
        line = self.err.removesuffix("\n")
        if not (line.startswith("tensorfold: ") and line.endswith(".") and line.isprintable() and len(line) < 1000):
            found.append(f"stderr is not one line of ours: {self.err[-400:]!r}")
        if self.left:
            found.append(f"processes {self.left} are left")
        return found


def in_process(arguments: Sequence[str]) -> Ran:
    """`tensorfold ARGUMENTS` in this process."""
    out, err = io.StringIO(), io.StringIO()
    # A server that gets as far as looking for a release must not look from here.
    os.environ[NO_CHECK] = "1"
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    began = time.monotonic()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(list(arguments))
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else -1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return Ran(code, out.getvalue(), err.getvalue(), time.monotonic() - began)


def environment(home: Path, mark: str = "") -> dict[str, str]:
    """What the command sees: nothing of the user's, its caches below `home`, and a mark that its children inherit.

    No server that a test starts looks for a release.
    """
    return {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "PYTHONPATH": os.pathsep.join((str(ROOT / ".pkg"), str(ROOT))),
        NO_CHECK: "1",
        MARK: mark,
    }


class Command:
    """The command, running in a process of its own and measured; its stderr goes to a file below `home`."""

    def __init__(self, arguments: Sequence[str], home: Path, stdout: int | IO[Any], mark: str) -> None:
        self._said, self._report = home / "err", home / "report"
        self._report.unlink(missing_ok=True)
        measured = [sys.executable, "-I", "-S", str(Path(__file__).with_name("measured.py")), str(self._report)]
        with open(self._said, "w") as err:
            self.process = subprocess.Popen(
                [*measured, sys.executable, "-m", "tensorfold", *arguments],
                cwd=home,
                env=environment(home, mark),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=err,
                text=True,
                start_new_session=True,
            )

    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self.process.poll() is None

    def interrupt(self) -> None:
        """Ctrl-C."""
        os.killpg(self.process.pid, signal.SIGINT)

    def finish(self) -> tuple[int, int]:
        """Wait for its end: exit code, and the largest resident bytes of it and the children it waited for."""
        try:
            self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return -1, 0
        report: dict[str, int] = json.loads(self._report.read_text())
        return report["code"], report["peak_bytes"]

    def kill(self) -> None:
        """End it at once, if it still runs."""
        if self.running():
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def errors(self) -> str:
        """What it said on stderr so far."""
        return self._said.read_text()


def started(
    arguments: Sequence[str], home: Path, stdout: int | IO[Any] = subprocess.DEVNULL, mark: str = ""
) -> Command:
    """The command, running."""
    return Command(arguments, home, stdout, mark)


def as_process(arguments: Sequence[str], home: Path) -> Ran:
    """`tensorfold ARGUMENTS` in a process of its own, waited for."""
    mark = environment_mark()
    began = time.monotonic()
    with open(home / "out", "w+") as out:
        command = started(arguments, home, out, mark)
        code, peak = command.finish()
        left = marked(mark)
        out.seek(0)
        return Ran(code, out.read(), command.errors(), time.monotonic() - began, peak, left)


def environment_mark() -> str:
    """A mark that no other process carries."""
    return uuid.uuid4().hex


def marked(mark: str) -> tuple[int, ...]:
    """Running processes that carry a mark in their environment; none where the system does not show environments."""
    found = []
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if wanted in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return tuple(found)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listened(port: int) -> bool:
    """Whether somebody listens on a port, on either loopback address."""
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.settimeout(1.0)
                probe.connect((address, port))
                return True
        except OSError:
            continue
    return False
