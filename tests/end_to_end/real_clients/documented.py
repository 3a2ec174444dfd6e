"""The settings of docs/clients.md, run word by word against a served model."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.end_to_end.real_clients.driver import clean
from tests.tree import ROOT

ADDRESS = "http://127.0.0.1:8080/v1"
LIMIT_S = 300.0
TITLES: Mapping[str, str] = {
    "openai": "OpenAI's client",
    "litellm": "litellm",
    "langchain-openai": "LangChain",
    "llm": "llm",
}


class FaultError(Exception):
    """Something is not as it must be; the text says what."""


def blocks(title: str) -> list[tuple[str, str]]:
    """Language and text of every fenced block below a heading of the page."""
    page = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
    section = re.split(r"^## ", page.split(f"\n## {title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(r"^```(\w+)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def run_documented(name: str, python: Path, home: Path, base: str, key: str) -> str:
    """Run a library's blocks with the server's address and key in place of the page's. Raises FaultError."""
    ran = 0
    for language, text in blocks(TITLES[name]):
        if language not in ("python", "bash"):
            continue
        ran += 1
        _run(language, _here(text, base, key), python, home)
    if not ran:
        raise FaultError("the page has no block to run")
    return f"{ran} blocks" if ran > 1 else "1 block"


def _here(text: str, base: str, key: str) -> str:
    """A block for this server. A command without a key gets one as its last words."""
    if ADDRESS not in text:
        raise FaultError(f"a block does not name {ADDRESS}: {text!r}")
    told = text.replace(ADDRESS, base).replace('"none"', f'"{key}"').replace("--value none", f"--value {key}")
    return told if key in told else f"{told.rstrip()} --key {key}\n"


def _run(language: str, text: str, python: Path, home: Path) -> None:
    command = [str(python), "-c", text] if language == "python" else ["bash", "-euc", text]
    environment = clean(home) | {"PATH": os.pathsep.join((str(python.parent), os.environ.get("PATH", "")))}
    environment["LLM_USER_PATH"] = str(home / "documented")
    (home / "documented").mkdir(exist_ok=True)
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment,
        cwd=home,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode or not done.stdout.strip():
        raise FaultError(f"a block ended with {done.returncode} and said {done.stdout!r} {done.stderr[-500:]!r}")
