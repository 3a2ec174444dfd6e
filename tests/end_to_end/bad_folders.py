"""Bad checkpoints, tokenizers and templates before the real command: each must end in one line, and end altogether."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from tests.adapters.filesystem.bad_checkpoints import CASES, SAYS
from tests.adapters.tokenization.bad_templates import CASES as TEMPLATES
from tests.adapters.tokenization.test_tokenizer_files import BAD as TOKENIZERS
from tests.end_to_end.clients import get, post
from tests.end_to_end.commands import (
    LIMIT_S,
    Ran,
    as_process,
    environment_mark,
    free_port,
    in_process,
    listened,
    marked,
    started,
)
from tests.synthetic.servable import write_servable

MIB = 1 << 20
SPARE_BYTES = 64 * MIB
"""Memory that refusing a folder may take beyond refusing a folder that is not there."""
RENDERER_BYTES = 512 * MIB
"""What the renderer's process may take; the larger of the two counts."""
Kind = Literal["checkpoint", "tokenizer", "template"]


@dataclass(frozen=True, slots=True)
class BadFolder:
    """A folder that nothing may be served from. `says` are words of the refusal, `""` any."""

    kind: Kind
    name: str
    write: Callable[[Path], None]
    says: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}"


def folders() -> Iterator[BadFolder]:
    """All of them."""
    for name, write in CASES:
        yield BadFolder("checkpoint", name, write, SAYS[name])
    for name, (text, _) in TOKENIZERS.items():
        yield BadFolder("tokenizer", name, _with("tokenizer.json", text))
    for name, template in TEMPLATES:
        yield BadFolder("template", name, _with("chat_template.jinja", partial(str, template)))


def _with(file: str, text: Callable[[], str]) -> Callable[[Path], None]:
    """The good tiny folder with another text in one file."""

    def write(folder: Path) -> None:
        write_servable(folder)
        (folder / file).write_text(text(), encoding="utf-8")

    return write


@dataclass
class Tried:
    """What became of one folder. `late` says that the server came up and its first chat was refused."""

    folder: BadFolder
    peak_bytes: int = 0
    late: bool = False
    wrong: list[str] = field(default_factory=list)

    def misses(self) -> list[str]:
        """What is wrong, as lines."""
        return [f"{self.folder}: {line}" for line in self.wrong]


def laid(folder: BadFolder, home: Path) -> Path:
    """The folder on disk, fresh."""
    place = home / "checkpoint"
    for old in home.glob("checkpoint*"):
        if old.is_symlink():
            old.unlink()
        else:
            shutil.rmtree(old)
    place.mkdir(parents=True)
    folder.write(place)
    return place


def refused_here(folder: BadFolder, home: Path, command: str) -> Tried:
    """The command in this process."""
    tried = Tried(folder)
    port = free_port()
    arguments = [command, str(laid(folder, home))]
    ran = in_process([*arguments, "--port", str(port)] if command == "serve" else arguments)
    _judge(tried, ran, port)
    return tried


def refused_apart(folder: BadFolder, home: Path, command: str, most_bytes: int) -> Tried:
    """The command in a process of its own, its memory and its children counted."""
    tried = Tried(folder)
    port = free_port()
    arguments = [command, str(laid(folder, home))]
    ran = as_process([*arguments, "--port", str(port)] if command == "serve" else arguments, home)
    _judge(tried, ran, port)
    tried.peak_bytes = ran.peak_bytes
    if not 0 < ran.peak_bytes <= most_bytes:
        tried.wrong.append(f"{ran.peak_bytes / MIB:.0f} MiB of memory, at most {most_bytes / MIB:.0f} may be taken")
    return tried


def _judge(tried: Tried, ran: Ran, port: int) -> None:
    tried.wrong += ran.refusal_faults()
    if tried.folder.says not in ran.err:
        tried.wrong.append(f"the refusal does not say {tried.folder.says!r}: {ran.err[:300]}")
    if listened(port):
        tried.wrong.append(f"port {port} is still listened on")


def serve_template(folder: BadFolder, home: Path, most_bytes: int) -> Tried:
    """`serve` with a bad template: it is refused at the start, or the server comes up and refuses every chat."""
    tried = Tried(folder)
    port, mark = free_port(), environment_mark()
    with open(home / "out", "w") as out:
        server = started(["serve", str(laid(folder, home)), "--port", str(port)], home, stdout=out, mark=mark)
    try:
        deadline = time.monotonic() + LIMIT_S
        while server.running() and not _green(port):
            if time.monotonic() > deadline:
                tried.wrong.append("neither refused nor serving")
                break
            time.sleep(0.05)
        tried.late = server.running()
        if tried.late:
            _chat_refused(tried, port)
            server.interrupt()
        code, tried.peak_bytes = server.finish()
    finally:
        server.kill()
    err = server.errors()
    if tried.late and (code != 0 or err):
        tried.wrong.append(f"after serving it ended with {code} and said {err[-300:]!r}")
    if not tried.late:
        ran = Ran(code, "", err, 0.0, tried.peak_bytes)
        tried.wrong += ran.refusal_faults()
    if left := marked(mark):
        tried.wrong.append(f"processes {left} are left")
    if listened(port):
        tried.wrong.append(f"port {port} is still listened on")
    if not 0 < tried.peak_bytes <= most_bytes:
        tried.wrong.append(f"{tried.peak_bytes / MIB:.0f} MiB of memory, at most {most_bytes / MIB:.0f} may be taken")
    return tried


def _green(port: int) -> bool:
    try:
        return get(port, "/health")[0] == 200
    except OSError:
        return False


def _chat_refused(tried: Tried, port: int) -> None:
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
    for streamed in (False, True):
        answer = post(port, "/v1/chat/completions", json.dumps(body | {"stream": streamed}).encode())
        message = (answer.error or {}).get("message", "")
        if answer.status != 400 or not message.startswith("The chat template") or not message.isprintable():
            tried.wrong.append(f"its chat was not refused in one line: {answer}")
    plain = post(port, "/v1/completions", json.dumps({"prompt": "hello", "max_tokens": 2}).encode())
    if plain.status != 200 or plain.finish is None:
        tried.wrong.append(f"a raw prompt got {plain}")
