"""`python -m tests.kernels.triton.versions 3.6.0 3.9.0`: which of these Tritons compiles every kernel?

Each is installed into a folder of its own that stands before the environment's Triton; torch is the environment's.
Needs no card; the last line says what compiled.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.tree import ROOT

ARCHITECTURES = ("80", "90", "100", "120")
MODULES = tuple(sorted(path.stem for path in Path(__file__).parent.glob("*compiled.py")))
"""Each compiles some kernels for the architecture it is given, and prints a line for each."""


def compiled(version: str, folder: Path) -> dict[str, int]:
    """How many kernels this Triton compiled for each architecture; nothing for one at which it failed."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    subprocess.run([*pip, "--no-deps", "--target", str(folder / "site"), f"triton=={version}"], check=True)
    found: dict[str, int] = {}
    for architecture in ARCHITECTURES:
        counts = [_count(module, architecture, folder) for module in MODULES]
        if all(counts):
            found[architecture] = sum(counts)
    return found


def _count(module: str, architecture: str, folder: Path) -> int:
    """Kernels of one module; 0, with the compiler's words, where it failed."""
    environment = {
        "PYTHONPATH": f"{folder / 'site'}:{ROOT / '.pkg'}:{ROOT}",
        "HOME": str(folder),
        "PATH": "/usr/bin:/bin",
        "TRITON_INTERPRET": "0",
    }
    command = [sys.executable, "-m", f"tests.kernels.triton.{module}", architecture]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    if done.returncode:
        print(f"{module} for sm_{architecture}: {done.stderr[-2000:]}", flush=True)
        return 0
    return len(done.stdout.splitlines())


def main(versions: list[str]) -> int:
    """Compile with each; not zero when anything failed."""
    failed, said = False, []
    for version in versions:
        with tempfile.TemporaryDirectory() as folder:
            found = compiled(version, Path(folder))
        failed = failed or len(found) != len(ARCHITECTURES)
        said.append(f"triton {version}: " + ", ".join(f"sm_{a} {found.get(a, 'FAILED')}" for a in ARCHITECTURES))
        print(said[-1], flush=True)
    print("; ".join(said))
    return int(failed or not versions)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
