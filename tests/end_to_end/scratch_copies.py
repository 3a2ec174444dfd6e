"""Copies of the product to update: one that pip installed, with a pip that is a stand-in, and one in a git clone.

Their code is this tree's, through links; their metadata, version and changelog are their own. Each runs in processes of
its own, with nothing of the user's.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tensorfold import __version__
from tests.end_to_end.commands import ROOT, Ran
from tests.tree import ROOMS

OLD, BETWEEN, NEW = __version__, "9.1.0", "9.9.9"
PATIENCE_S = 300.0
CHANGES = f"""# Changes

## {NEW} - 2031-02-03

- The newest thing.

## {BETWEEN}

- A thing between.

## {OLD}

- An old thing.
"""
_METADATA = f"Metadata-Version: 2.4\nName: tensorfold\nVersion: {OLD}\n"
_PIP = """
import json, pathlib, re, sys
here = pathlib.Path(__file__).parent.parent
with open(here / "pip.jsonl", "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
code = here / "pip.code"
if code.exists():
    print("pip: refused", file=sys.stderr)
    sys.exit(int(code.read_text()))
version = re.search(r"@v([0-9.]+)$", sys.argv[-1]).group(1)
(here / "tensorfold" / "__init__.py").write_text(f'__version__ = "{version}"\\n')
"""


@dataclass
class Copy:
    """One copy. `path` is what its interpreter finds modules in; `address` where its releases are announced."""

    home: Path
    path: tuple[Path, ...]
    address: str
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def cache(self) -> Path:
        """Its cache folder."""
        return self.home / "cache" / "tensorfold"

    def run(self, *words: str, **variables: str) -> Ran:
        """`tensorfold WORDS`, waited for."""
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "tensorfold", *words],
            cwd=self.home,
            env=self._environment(variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr, time.monotonic() - began)

    @contextmanager
    def serving(self, *words: str, wait: Sequence[str] = (), **variables: str) -> Iterator[list[str]]:
        """`tensorfold serve WORDS` until it serves and has said every one of `wait`; ended by an interrupt.

        The lines it said are whole when the block is left. Raises AssertionError unless it ends cleanly.
        """
        lines: list[str] = []
        output = self.home / "served"
        with output.open("w+") as out:
            server = subprocess.Popen(
                [sys.executable, "-m", "tensorfold", "serve", *words, "--port", "0"],
                cwd=self.home,
                env=self._environment(variables),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
            try:
                deadline = time.monotonic() + PATIENCE_S
                # The line about the first start comes behind the request to try, if it comes.
                while not all(word in output.read_text() for word in ("curl ", *wait)):
                    assert server.poll() is None, output.read_text()
                    assert time.monotonic() < deadline, output.read_text()
                    time.sleep(0.02)
                yield lines
                server.send_signal(signal.SIGINT)
                code = server.wait(PATIENCE_S)
            finally:
                server.kill()
                server.wait()
        lines += output.read_text().splitlines()
        assert code == 0, f"exit code {code}: {lines[-5:]}"
        assert not [line for line in lines if "Traceback" in line], lines

    def serve(self, *words: str, wait: Sequence[str] = (), **variables: str) -> list[str]:
        """Every line of a server that was started and ended."""
        with self.serving(*words, wait=wait, **variables) as lines:
            pass
        return lines

    def _environment(self, variables: dict[str, str]) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(self.home),
            "XDG_CACHE_HOME": str(self.home / "cache"),
            "PYTHONPATH": os.pathsep.join(map(str, self.path)),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TENSORFOLD_PROJECT_URL": self.address,
            **_GIT,
            **self.variables,
            **variables,
        }


class PlainCopy(Copy):
    """A copy as pip installs it, beside the stand-in for pip."""

    def __init__(self, folder: Path, address: str) -> None:
        site = folder / "site"
        super().__init__(folder, (site,), address)
        _package(site / "tensorfold", OLD)
        _metadata(site)
        (site / "pip").mkdir()
        (site / "pip" / "__init__.py").write_text("")
        (site / "pip" / "__main__.py").write_text(_PIP)
        self.site = site

    def refuse(self, code: int) -> None:
        """From now on pip ends with this code."""
        (self.site / "pip.code").write_text(str(code))

    def pips(self) -> list[list[str]]:
        """The words of every pip that ran."""
        log = self.site / "pip.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


class CloneCopy(Copy):
    """A copy installed with -e from a clone; its origin has the newer release, with its tag."""

    def __init__(self, folder: Path, address: str) -> None:
        self.origin, self.clone = folder / "origin", folder / "clone"
        site = folder / "site"
        super().__init__(folder, (site, self.clone / ".pkg"), address)
        _package(self.origin / ".pkg" / "tensorfold", OLD)
        (self.origin / "CHANGELOG.md").write_text(CHANGES[CHANGES.index(f"## {OLD}") :])
        git(self.origin, "init", "--quiet", "--initial-branch", "main")
        self.commit(self.origin, f"Release {OLD}", f"v{OLD}")
        git(folder, "clone", "--quiet", str(self.origin), str(self.clone))
        (self.origin / ".pkg" / "tensorfold" / "__init__.py").write_text(f'__version__ = "{NEW}"\n')
        (self.origin / "CHANGELOG.md").write_text(CHANGES)
        self.commit(self.origin, f"Release {NEW}", f"v{NEW}")
        _metadata(site, json.dumps({"url": self.clone.as_uri(), "dir_info": {"editable": True}}))

    def commit(self, where: Path, message: str, tag: str = "") -> None:
        """Everything in a repository, and perhaps a tag."""
        git(where, "add", "--all")
        git(where, "commit", "--quiet", "--message", message)
        if tag:
            git(where, "tag", tag)

    def state(self) -> tuple[str, str, str]:
        """Where the clone stands, what it knows, and what lies in it."""
        return (
            git(self.clone, "rev-parse", "HEAD"),
            git(self.clone, "show-ref"),
            git(self.clone, "status", "--porcelain"),
        )


_GIT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    **{f"GIT_{who}_{what}": "x@y" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


def git(folder: Path, *words: str) -> str:
    """git's answer in a folder. Raises CalledProcessError."""
    done = subprocess.run(
        ["git", *words], cwd=folder, env={"PATH": os.environ.get("PATH", ""), **_GIT}, capture_output=True, check=True
    )
    return done.stdout.decode()


def _package(folder: Path, version: str) -> None:
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(f'__version__ = "{version}"\n')
    (folder / "__main__.py").write_text((ROOT / ".pkg" / "tensorfold" / "__main__.py").read_text())
    for room in ROOMS:
        (folder / room).symlink_to(ROOT / room)


def _metadata(site: Path, direct: str | None = None) -> None:
    info = site / f"tensorfold-{OLD}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(_METADATA)
    if direct is not None:
        (info / "direct_url.json").write_text(direct)
