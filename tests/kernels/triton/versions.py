"""`python -m tests.kernels.triton.versions 3.6.0 3.9.0`: which of these Tritons compiles every kernel?

Each is installed into an environment of its own in a temporary folder. Needs no card; the last line says what compiled.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from tests.tree import ROOT

ARCHITECTURES = ("80", "90", "100", "120")


def compiled(version: str, folder: Path) -> dict[str, int]:
    """How many kernels this Triton compiled for each architecture; nothing for one at which it failed."""
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"triton=={version}"], check=True)
    environment = {"PYTHONPATH": f"{ROOT / '.pkg'}:{ROOT}", "HOME": str(folder), "PATH": "/usr/bin:/bin"}
    found = {}
    for architecture in ARCHITECTURES:
        command = [str(python), "-m", "tests.kernels.triton.compiled", architecture]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
        if done.returncode:
            print(f"triton {version}, sm_{architecture}: {done.stderr[-2000:]}", flush=True)
        else:
            found[architecture] = len(done.stdout.split())
    return found


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
