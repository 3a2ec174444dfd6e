"""A client library in a process of its own, told what to do in lines of JSON. It sees nothing of the user's."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.tree import ROOT

LIMIT_S = 300.0
"""How long one call may take: far above what the retries of all libraries take together."""
MODULES = {
    "openai": "openai_sdk",
    "litellm": "litellm_sdk",
    "langchain-openai": "langchain_sdk",
    "llm": "llm_command",
}


@dataclass(frozen=True, slots=True)
class Said:
    """What a library showed: a reply, or what it raised. What it does not show is None."""

    text: str = ""
    finish: str | None = None
    usage: tuple[int, int] | None = None
    pieces: int | None = None
    kind: str | None = None
    status: int | None = None
    message: str = ""


class Driver:
    """One library, running. `home` is its own folder, whose environment `clean` makes."""

    def __init__(self, name: str, python: Path, home: Path, process: subprocess.Popen[str]) -> None:
        self.name, self.python, self.home = name, python, home
        self._process = process

    def call(self, op: str, **told: Any) -> Said:
        """Do one thing and say how it went."""
        assert self._process.stdin is not None and self._process.stdout is not None
        watch = threading.Timer(LIMIT_S, self._process.kill)
        watch.start()
        try:
            self._process.stdin.write(json.dumps({"op": op, **told}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            watch.cancel()
        return _said(json.loads(line)) if line else Said(kind="nothing", message="the library's process has ended")


def _said(answer: dict[str, Any]) -> Said:
    if "failed" in answer:
        return Said(**answer["failed"])
    usage = answer.pop("usage")
    return Said(**answer, usage=None if usage is None else (usage[0], usage[1]))


def clean(home: Path) -> dict[str, str]:
    """What a library's process sees: nothing of the user's."""
    return {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(home),
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LLM_USER_PATH": str(home / "llm"),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "NO_PROXY": "*",
    }


@contextmanager
def driven(name: str, python: Path, folder: Path) -> Iterator[Driver]:
    """The library, ready for calls; ended afterwards. What it prints goes to a file in `folder`."""
    home = folder / f"home-{name}"
    home.mkdir(parents=True, exist_ok=True)
    module = f"tests.end_to_end.real_clients.drivers.{MODULES[name]}"
    with (home / "printed").open("w") as printed:
        process = subprocess.Popen(
            [str(python), "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=printed,
            env=clean(home),
            cwd=home,
            text=True,
        )
    try:
        yield Driver(name, python, home, process)
    finally:
        process.kill()
        process.communicate()
