"""Install from a clone as a user does: on every Python found, and beside a container's pinned torch, triton and numpy.

`python -m tests.end_to_end.install` installs the last commit, not the working tree. It prints its figures on the last
line and ends with 1 when anything is missed. A network or a package mirror that pip knows is needed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tensorfold import __version__
from tests.end_to_end.interpreters import MINORS, Interpreter, found
from tests.tree import ROOT

SOURCE = f"git+file://{ROOT}"
# What a container of NVIDIA's brings; numpy is installed for real, the other two as entries that pip takes for real.
PINNED = {"torch": "2.11.0", "triton": "3.6.0", "numpy": "1.26.4"}
RESOLVED = 12
MAC = "macosx_14_0_arm64"
HEAVY = ("mlx", "torch", "triton")
_PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet")
_HELP = (
    "import sys\n"
    "from tensorfold.entrypoints.cli import main\n"
    "try: main(['--help'])\n"
    "except SystemExit as ended: assert ended.code == 0\n"
    "heavy = sorted({name.split('.')[0] for name in sys.modules} & set(sys.argv[1:]))\n"
    "sys.exit('--help loads ' + ', '.join(heavy) if heavy else 0)\n"
)
_INSTALLED = (
    "import json, importlib.metadata as m\n"
    "print(json.dumps({d.metadata['Name'].lower(): d.version for d in m.distributions()}))\n"
)
_EVERYTHING = (
    "import importlib, pkgutil, tensorfold\n"
    "names = [m.name for m in pkgutil.walk_packages(tensorfold.__path__, 'tensorfold.') if '__main__' not in m.name]\n"
    "for name in names: importlib.import_module(name)\n"
    "print(len(names))\n"
)


class MissError(Exception):
    """Something did not come out as it must; the text says what."""


class Installs:
    """Every install of one run, below one temporary folder. The folder the commands run in stays empty."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._empty = folder / "empty"
        self._empty.mkdir()

    def on(self, python: Interpreter) -> None:
        """A fresh environment, the base install, and what its command line says. Raises MissError."""
        environment = self._environment(python, f"base-{python.minor}")
        self._run(environment / "python", *_PIP, "install", SOURCE)
        self._run(environment / "python", *_PIP, "check")
        self._answers(environment)
        brought = sorted(self._versions(environment).keys() & {"torch", "triton"})
        if brought:
            raise MissError(f"the base install on Python {python.version} brought {', '.join(brought)}")

    def resolves(self, minor: int, *platform: str) -> bool:
        """Whether every dependency has a wheel for a Python, and perhaps a platform, that is not here."""
        asked = ("install", "--dry-run", "--ignore-installed", "--target", str(self._folder / "nowhere"))
        wanted = ("--python-version", f"3.{minor}", "--only-binary=:all:", *platform)
        try:
            self._run(sys.executable, *_PIP, *asked, *wanted, *dependencies(on_a_mac=bool(platform)))
        except MissError:
            return False
        return True

    def beside(self, python: Interpreter) -> int:
        """Install beside pinned packages, changing none of them; how many were installed. Raises MissError."""
        environment = self._environment(python, "container")
        self._run(environment / "python", *_PIP, "install", f"numpy=={PINNED['numpy']}")
        for name in ("torch", "triton"):
            self._stand_in(environment, name, PINNED[name])
        constraints = self._folder / "constraints.txt"
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in PINNED.items()), encoding="utf-8")
        report = self._folder / "report.json"
        asked = ("install", "--constraint", str(constraints), "--report", str(report), SOURCE)
        # With the libraries of the `cpu` extra, named beside it: pip takes no extra of a git+file address by its name.
        self._run(environment / "python", *_PIP, *asked, *extra("cpu"))
        installed = {item["metadata"]["name"].lower() for item in json.loads(report.read_text())["install"]}
        after = self._versions(environment)
        changed = [name for name in PINNED if name in installed or after.get(name) != PINNED[name]]
        if changed:
            raise MissError(f"beside the pinned packages the install changed {', '.join(changed)}")
        self._answers(environment)
        self._run(environment / "python", "-c", _EVERYTHING)
        return len(installed)

    def _environment(self, python: Interpreter, name: str) -> Path:
        folder = self._folder / name
        self._run(python.path, "-m", "venv", str(folder))
        return folder / "bin"

    def _answers(self, environment: Path) -> None:
        """The console script and the module say the version, and help comes without a heavy library."""
        for command in ([environment / "tensorfold"], [environment / "python", "-m", "tensorfold"]):
            said = self._run(*command, "--version").strip()
            if said != f"tensorfold {__version__}":
                raise MissError(f"--version said {said!r}, not tensorfold {__version__}")
        if "serve" not in self._run(environment / "tensorfold", "--help"):
            raise MissError("--help does not name the command serve")
        self._run(environment / "python", "-c", _HELP, *HEAVY)

    def _versions(self, environment: Path) -> dict[str, str]:
        found: dict[str, str] = json.loads(self._run(environment / "python", "-c", _INSTALLED))
        return found

    def _stand_in(self, environment: Path, name: str, version: str) -> None:
        """An installed package in pip's eyes, without its gigabytes."""
        where = "import sysconfig; print(sysconfig.get_path('purelib'))"
        folder = Path(self._run(environment / "python", "-c", where).strip()) / f"{name}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
        (folder / "INSTALLER").write_text("pip\n", encoding="utf-8")
        (folder / "RECORD").write_text("", encoding="utf-8")

    def _run(self, *command: str | Path) -> str:
        """Standard output of a command in the empty folder, with nothing of this checkout in reach."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
        words = [str(word) for word in command]
        done = subprocess.run(words, cwd=self._empty, env=clean, capture_output=True, text=True, check=False)
        if done.returncode:
            tail = "\n      ".join((done.stdout + done.stderr).strip().splitlines()[-8:])
            raise MissError(f"{Path(words[0]).name} {' '.join(words[1:])} ended with {done.returncode}:\n      {tail}")
        return done.stdout


def project() -> dict[str, Any]:
    """The project's table of its description file."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def extra(name: str) -> list[str]:
    """The requirements of one extra."""
    return list(project()["optional-dependencies"][name])


def dependencies(*, on_a_mac: bool) -> list[str]:
    """The requirements for Linux with the CPU extra, or for a Mac; pip reads markers for the machine it runs on."""
    other = "linux" if on_a_mac else "darwin"
    lines = (*project()["dependencies"], *extra("cpu"))
    return [line.partition(";")[0] for line in lines if f"'{other}'" not in line]


@dataclass(frozen=True, slots=True)
class Job:
    """One install: what it shows, and the work whose result is its figure."""

    title: str
    work: Callable[[], str]


def jobs(installs: Installs, pythons: Mapping[int, Interpreter | None]) -> list[Job]:
    """Everything that is installed or resolved."""
    here = [python for python in pythons.values() if python is not None]
    absent = [minor for minor, python in pythons.items() if python is None]
    return [
        Job("beside a container's torch, triton and numpy", partial(container, installs, pythons)),
        *(Job(f"base install on Python {python.version}", partial(base, installs, python)) for python in here),
        *(Job(f"wheels for Python 3.{minor}", partial(wheels, installs, minor)) for minor in absent),
        Job(f"wheels for a Mac's Python 3.{RESOLVED}", partial(mac_wheels, installs)),
    ]


def attempt(job: Job) -> tuple[bool, str]:
    """Whether a job came out, and its figure, or its title when it did not."""
    try:
        figure = job.work()
    except MissError as miss:
        print(f"-- {job.title}\n   {miss}", flush=True)
        return False, job.title
    print(f"-- {job.title}: ok", flush=True)
    return True, figure


def main() -> int:
    """Run everything, two installs at a time; the exit code."""
    began = time.monotonic()
    pythons = {minor: found(minor) for minor in MINORS}
    with tempfile.TemporaryDirectory(prefix="tensorfold-install-") as folder, ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(attempt, jobs(Installs(Path(folder).resolve()), pythons)))
    misses = [title for came_out, title in ends if not came_out]
    if not any(pythons.values()):
        misses.append("no Python from 3.11 on was found")
    verdict = f"FAILED: {', '.join(misses)}" if misses else "ok"
    figures = "; ".join(figure for came_out, figure in ends if came_out)
    print(f"{verdict}: {figures}; {time.monotonic() - began:.0f} s")
    return 1 if misses else 0


def base(installs: Installs, python: Interpreter) -> str:
    """The base install on one Python."""
    installs.on(python)
    return f"Python {python.version} installed"


def wheels(installs: Installs, minor: int) -> str:
    """Wheels for a Python that is not here; 3.12's must all exist, a newer one may be too new for a dependency."""
    resolves = installs.resolves(minor)
    if minor == RESOLVED and not resolves:
        raise MissError(f"not every dependency has a wheel for Python 3.{minor}")
    return f"Python 3.{minor} not found here, its wheels {'resolve' if resolves else 'do not resolve'}"


def mac_wheels(installs: Installs) -> str:
    """Wheels for a Mac, MLX among them."""
    if not installs.resolves(RESOLVED, "--platform", MAC):
        raise MissError(f"not every dependency has a wheel for {MAC}")
    return "a Mac's wheels resolve"


def container(installs: Installs, pythons: Mapping[int, Interpreter | None]) -> str:
    """The install beside pinned packages, on a Python that the pinned numpy has a wheel for."""
    python = pythons[12] or pythons[11]
    if python is None:
        raise MissError("neither Python 3.12 nor 3.11 was found, and the pinned numpy has wheels for no newer one")
    count = installs.beside(python)
    pins = ", ".join(f"{name} {version}" for name, version in PINNED.items())
    return f"on Python {python.version} {count} packages beside {pins}, none of these changed"


if __name__ == "__main__":
    sys.exit(main())
