"""The whole command on tiny checkpoints: `tensorfold verify` passes, and replies over HTTP are the serial ones.

Each family is served by `tensorfold serve` in a process of its own; every prompt is asked for without drafts, with
them, streamed, and beside all the others at once. Families take their time side by side: none is timed. Nothing of the
user's is read: caches lie in a temporary folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import traceback
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tensorfold.domain.families.storage import Layout
from tests.synthetic.plan_checkpoints import write_checkpoint, write_drafter
from tests.synthetic.publications import Quantized
from tests.synthetic.servable import SERVABLE, write_servable
from tests.synthetic.tiny_configs import tiny, tiny_drafter
from tests.tree import ROOT

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "llama": (),
    "nemotron_h": (),
    "qwen3_5": ("--drafter", "./drafter"),
}
"""The families, each with the flags that it is started with."""
PROMPTS = (
    "1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4",
    "def one(self):\n    return self.a\n\ndef two(self):\n    return self.a\n",
    "the owl and the hen, the owl and the hen, the owl and the",
    "Heads or tails? Yes or no? Left or right? Answer:",
)
SAMPLINGS: tuple[Mapping[str, Any], ...] = ({"temperature": 0}, {"temperature": 1.0, "seed": 7, "top_p": 0.95})
REPLY = 60
_START_S = 240.0
_VERIFY_S = 240.0


@dataclass(slots=True)
class Verified:
    """What one family's command said and what was compared over HTTP."""

    passed: bool = False
    compared: int = 0
    differences: int = 0
    replies: int = 0
    unequal: int = 0
    drafted: int = 0
    said: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether both passed and something was drafted."""
        return self.passed and not self.differences and self.replies > 0 and not self.unequal and self.drafted > 0


def write(home: Path, family: str) -> None:
    """A family's tiny checkpoint as `home/FAMILY`, and the drafter that belongs to it."""
    codes = Quantized(Layout(4, 64), {"*.gate": None})
    if family == "llama":
        # A card's products take rows of whole groups of 64.
        write_servable(home / family, replace(SERVABLE, width=128, mlp=128))
    else:
        write_checkpoint(home / family, tiny(family), 5, "mlx", codes, "BF16")
    if family == "qwen3_5":
        write_drafter(home / "drafter", tiny_drafter(), 6, "BF16")


def environment(home: Path) -> dict[str, str]:
    """What a command sees."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / ".pkg"), os.environ.get("PYTHONPATH", "")]),
        "XDG_CACHE_HOME": str(home / "cache"),
        "TENSORFOLD_NO_UPDATE_CHECK": "1",
    }


def verify_all(home: Path, backend: str, families: Sequence[str] = tuple(FAMILIES)) -> dict[str, Verified]:
    """Every family, each below a folder of its own; what one of them raises is what it said."""

    def one(family: str) -> Verified:
        own = home / family
        own.mkdir(parents=True)
        made = Verified()
        try:
            verify(own, family, backend, made)
        except Exception:
            made.said.append(traceback.format_exc())
        return made

    with ThreadPoolExecutor(len(families)) as side_by_side:
        return dict(zip(families, side_by_side.map(one, families), strict=True))


def verify(home: Path, family: str, backend: str, made: Verified) -> None:
    """Both for one family, its checkpoint written first. Raises RuntimeError or an OSError where one does not run."""
    write(home, family)
    flags = ("--backend", backend, "--context", "512", "--parallel", "8", *FAMILIES[family])
    command = [sys.executable, "-m", "tensorfold", "verify", family, "--json", *flags]
    done = subprocess.run(
        command, cwd=home, env=environment(home), capture_output=True, text=True, check=False, timeout=_VERIFY_S
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if lines:
        report = json.loads(lines[-1])
        made.passed = bool(report["passed"]) and done.returncode == 0
        made.compared, made.differences, made.said = report["compared"], report["differences"], report["reasons"]
    else:
        made.said.append(f"verify ended with {done.returncode}: {done.stderr[-2000:]}")
    with serving(home, family, flags) as port:
        over_http(port, made)


@contextmanager
def serving(home: Path, family: str, flags: Sequence[str], variables: Mapping[str, str] | None = None) -> Iterator[int]:
    """The port of a running server that sees `variables` too, ended at the end. Raises RuntimeError without one."""
    command = [sys.executable, "-m", "tensorfold", "serve", family, "--port", "0", *flags]
    log = home / f"{family}.log"
    with log.open("w") as out:
        server = subprocess.Popen(
            command, cwd=home, env=environment(home) | dict(variables or {}), stdout=out, stderr=subprocess.STDOUT
        )
    try:
        yield _port(server, log)
    finally:
        server.terminate()
        server.wait(60)


def _port(server: subprocess.Popen[bytes], log: Path) -> int:
    deadline = time.monotonic() + _START_S
    while server.poll() is None and time.monotonic() < deadline:
        line = next((line for line in log.read_text().splitlines() if "] serving " in line), None)
        if line is not None:
            return int(line.partition("/v1 (")[0].rpartition(":")[2])
        time.sleep(0.05)
    raise RuntimeError(f"the server did not serve: {log.read_text()[-2000:]}")


def over_http(port: int, made: Verified) -> None:
    """Every prompt in every form, against the reply without drafts."""
    asks = [{"prompt": prompt, **sampling} for prompt in PROMPTS for sampling in SAMPLINGS]
    serial = [complete(port, ask, draft=False) for ask in asks]
    forms = ({"draft": True}, {"draft": True, "stream": True}, {"draft": False, "stream": True})
    for form in forms:
        _compare(made, serial, [complete(port, ask, **form) for ask in asks])
    with ThreadPoolExecutor(len(asks)) as clients:
        jobs = [clients.submit(complete, port, ask, stream=bool(index % 2)) for index, ask in enumerate(asks)]
        _compare(made, serial, [job.result() for job in jobs])
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as answer:
        made.drafted = json.load(answer)["drafted_total"]


def _compare(made: Verified, serial: Sequence[str], found: Sequence[str]) -> None:
    made.replies += len(found)
    made.unequal += sum(one != other for one, other in zip(serial, found, strict=True))


def complete(port: int, ask: Mapping[str, Any], **form: Any) -> str:
    """The fingerprint of a reply's tokens."""
    body = json.dumps({"max_tokens": REPLY, "ignore_eos": True, **ask, **form}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as answer:
        said = answer.read().decode()
    if not form.get("stream"):
        return str(json.loads(said)["tensorfold"]["token_sha"])
    events = [json.loads(line[6:]) for line in said.splitlines() if line.startswith("data: {")]
    return str(next(event["tensorfold"]["token_sha"] for event in events if "tensorfold" in event))
