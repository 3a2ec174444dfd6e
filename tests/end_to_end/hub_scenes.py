"""Downloads that must end whole, over a loopback hub that counts the bytes of every file; each scene gives its faults.

Every command runs in a process of its own: it is killed, interrupted, started twice, or served from.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.adapters.huggingface.hubs import REPO, TOKEN, parts_of
from tests.end_to_end.clients import get, post
from tests.end_to_end.commands import Ran
from tests.end_to_end.hub_place import (
    CONFIGS,
    FILES,
    LIMIT_S,
    NO_HUB,
    SHARDS,
    WEIGHT_BYTES,
    Figures,
    Place,
    place,
)

BRANCH = "3.00bpw"


def download(home: Path, figures: Figures) -> None:
    """A pull brings every file, says so, and a second one asks for no weight."""
    with place(home) as here:
        ran = here.run("pull", REPO)
        whole = f"{REPO} is complete: "
        _expect(figures, "download", ran, 0, whole, here.snapshot() == FILES)
        here.hub.forget()
        again = here.run("pull", REPO)
        _expect(figures, "second download", again, 0, whole, here.hub.weights_asked() == 0)
        figures.twice += here.hub.weights_asked()


def revision(home: Path, figures: Figures) -> None:
    """A branch is downloaded beside the main one."""
    with place(home) as here:
        other = {**FILES, "generation_config.json": b'{"temperature": 0.5}'}
        here.hub.add(REPO, other, BRANCH)
        ran = here.run("pull", REPO, f"{REPO}@{BRANCH}")
        both = here.snapshot() == FILES and here.snapshot(BRANCH) == other
        _expect(figures, "revision", ran, 0, f"{REPO}@{BRANCH} is complete", both)


def first_failure(home: Path, figures: Figures) -> None:
    """The first repository that is refused ends the command; earlier ones stay, later ones are not asked for."""
    with place(home) as here:
        here.hub.add("org/later", FILES)
        ran = here.run("pull", REPO, "nobody/nothing", "org/later")
        asked = any("org/later" in one.path for one in here.hub.requests)
        kept = here.snapshot() == FILES and not asked
        _expect(figures, "first failure", ran, 1, "nobody/nothing: the hub shows no such repository", kept)


def cut(home: Path, figures: Figures) -> None:
    """A connection that breaks off in a file is taken up at its last byte, by the same command."""
    with place(home) as here:
        here.hub.mischief.cuts = {SHARDS[0]: [100_000], SHARDS[2]: [70_000, 0]}
        ran = here.run("pull", REPO)
        _expect(
            figures, "cut", ran, 0, "the connection broke off; going on from byte 100,000", here.snapshot() == FILES
        )
        figures.resumed += 2
        figures.twice += here.hub.weights_asked() - WEIGHT_BYTES


def killed(home: Path, figures: Figures) -> None:
    """A killed pull leaves nothing that passes for whole; `serve` offline names what lacks; the next pull goes on."""
    with place(home) as here:
        gate = threading.Event()
        here.hub.mischief.hold = {SHARDS[0]: (100_000, gate)}
        _until_partial(here, 100_000, here.start("pull", REPO), signal.SIGKILL)
        offline = here.run("serve", REPO, "--port", "0", HF_HUB_OFFLINE="1")
        named = "is not complete on this machine (missing: " in offline.err and SHARDS[0] in offline.err
        _expect(figures, "offline after a kill", offline, 1, "HF_HUB_OFFLINE forbids asking", named)
        _gone_on_with(here, gate, figures, "pull after a kill")


def _gone_on_with(here: Place, gate: threading.Event, figures: Figures, where: str) -> None:
    """A pull that goes on from the first 100,000 bytes of the first shard."""
    before = here.hub.asked[SHARDS[0]]
    here.hub.mischief.hold = {}
    ran = here.run("pull", REPO)
    fetched = here.hub.asked[SHARDS[0]] - before
    gate.set()
    _expect(figures, where, ran, 0, "is complete", here.snapshot() == FILES)
    figures.resumed += 1
    figures.twice += fetched - (len(FILES[SHARDS[0]]) - 100_000)


def interrupted(home: Path, figures: Figures) -> None:
    """Ctrl-C ends a pull with 130, at once, and the next one goes on."""
    with place(home) as here:
        gate = threading.Event()
        here.hub.mischief.hold = {SHARDS[0]: (100_000, gate)}
        process = here.start("pull", REPO)
        ran = _until_partial(here, 100_000, process, signal.SIGINT)
        _expect(figures, "Ctrl-C", ran, 130, "stopped; what was downloaded stays")
        _gone_on_with(here, gate, figures, "pull after Ctrl-C")


def serve_interrupted(home: Path, figures: Figures) -> None:
    """Ctrl-C while `serve` downloads gives the start up with 0 and a word, as in any moment of a start."""
    with place(home) as here:
        gate = threading.Event()
        here.hub.mischief.hold = {SHARDS[0]: (100_000, gate)}
        ran = _until_partial(here, 100_000, here.start("serve", REPO, "--port", "0"), signal.SIGINT)
        gate.set()
        _expect(figures, "Ctrl-C in serve", ran, 0, "ended before the model was loaded", ran.err == "")


def two_at_once(home: Path, figures: Figures) -> None:
    """Two pulls of one repository: one waits, both succeed, each byte comes once."""
    with place(home) as here:
        gate = threading.Event()
        here.hub.mischief.hold = {SHARDS[0]: (50_000, gate)}
        first = here.start("pull", REPO)
        _wait(lambda: here.hub.asked[SHARDS[0]] >= 50_000)
        second = here.start("pull", REPO)
        assert second.stdout is not None
        said = second.stdout.readline()
        gate.set()
        with first, second:
            ends = [process.communicate(timeout=LIMIT_S) for process in (first, second)]
        codes = (first.returncode, second.returncode)
        if codes != (0, 0) or f"another process is downloading {REPO}; waiting for it" not in said:
            figures.faults.append(f"two at once: ended with {codes}, said {said!r}: {ends}")
        if here.snapshot() != FILES:
            figures.faults.append("two at once: the files are not whole")
        figures.twice += here.hub.weights_asked() - WEIGHT_BYTES


def bad_token(home: Path, figures: Figures) -> None:
    """A stored token the hub does not take leaves public repositories, and is never shown."""
    with place(home) as here:
        (home / "hf").mkdir()
        (home / "hf" / "token").write_text(TOKEN)
        ran = here.run("pull", REPO)
        shown = TOKEN in ran.out + ran.err
        _expect(figures, "bad token", ran, 0, "the hub does not take the token", here.snapshot() == FILES and not shown)


def serves(home: Path, figures: Figures) -> None:
    """`serve` downloads a missing checkpoint, answers under its name, and starts again without a hub."""
    with place(home) as here:
        began = _served(here, figures, "serve of a missing checkpoint", REPO)
        if here.snapshot() != FILES or "is not complete on this machine; asking the hub for the rest" not in began:
            figures.faults.append(f"serve: it did not download the checkpoint: {began!r}")
        here.hub.forget()
        _served(here, figures, "serve of a complete one, no hub", REPO, HF_ENDPOINT=NO_HUB)
        _served(here, figures, "serve of a complete one, offline", REPO, HF_HUB_OFFLINE="1")
        if here.hub.requests:
            figures.faults.append(f"serve of a complete checkpoint asked the hub {len(here.hub.requests)} times")


def told_without_weights(home: Path, figures: Figures) -> None:
    """`info` asks for the configuration alone; `models` and `info` know what is here, offline."""
    with place(home) as here:
        ran = here.run("info", REPO, "--json")
        told = json.loads(ran.out) if ran.code == 0 else {}
        right = (told.get("family"), told.get("complete"), set(here.hub.files_asked())) == ("Llama", False, CONFIGS)
        _expect(figures, "info", ran, 0, "", right)
        here.run("pull", REPO)
        offline = here.run("info", REPO, HF_HUB_OFFLINE="1")
        _expect(
            figures, "info offline", offline, 0, "complete in ", "about 0.32 MB" in offline.out or "kB" in offline.out
        )
        listed = here.run("models", "--json", HF_HUB_OFFLINE="1", HF_ENDPOINT=NO_HUB)
        _expect(figures, "models offline", listed, 0, '"title": "Llama"')


SCENES: tuple[Callable[[Path, Figures], None], ...] = (
    download,
    revision,
    first_failure,
    cut,
    killed,
    interrupted,
    serve_interrupted,
    two_at_once,
    bad_token,
    serves,
    told_without_weights,
)


def _expect(figures: Figures, where: str, ran: Ran, code: int, says: str, right: bool = True) -> None:
    if ran.code != code or says not in ran.out + ran.err or not right or "Traceback" in ran.err:
        figures.faults.append(f"{where}: ended with {ran.code}, right: {right}: {ran.out[-600:]!r} {ran.err[-600:]!r}")


def _wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not until():
        assert time.monotonic() < deadline, "nothing came"
        time.sleep(0.01)


def _until_partial(here: Place, size: int, process: subprocess.Popen[str], number: int) -> Ran:
    """Send a signal once so many bytes of some file lie in the cache."""
    _wait(lambda: size in parts_of(here.cache))
    process.send_signal(number)
    with process:
        out, err = process.communicate(timeout=LIMIT_S)
    return Ran(process.returncode, out, err, 0.0)


def _served(here: Place, figures: Figures, where: str, model: str, **more: str) -> str:
    """Start a server, ask it, end it; what it said before it served."""
    process = here.start("serve", model, "--port", "0", "--context", "64", **more)
    said = ""
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        if "] serving " in line:
            break
    try:
        port = int(said.rpartition("/v1 (")[0].rpartition(":")[2])
        _, listed = get(port, "/v1/models")
        answer = post(port, "/v1/completions", json.dumps({"prompt": "hello", "max_tokens": 2}).encode())
        ids = [one["id"] for one in listed["data"]]
        if ids != ["model"] or answer.status != 200:
            figures.faults.append(f"{where}: it serves {ids} and answers {answer.status}")
    except (ValueError, OSError, KeyError) as wrong:
        figures.faults.append(f"{where}: {wrong!r} after {said!r}")
    finally:
        os.kill(process.pid, signal.SIGINT)
        with process:
            _, err = process.communicate(timeout=LIMIT_S)
    if process.returncode != 0 or err:
        figures.faults.append(f"{where}: ended with {process.returncode}: {err!r}")
    return said
