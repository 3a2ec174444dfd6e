"""Every family served by the whole command over HTTP, from a tiny checkpoint in the layout it is published in.

    python -m tests.end_to_end.families

Weights are seeded noise: what is said means nothing, that it is the same in every form is what counts. A reply that
calls a tool is never drawn from noise; scripted models prove those (`test_families_replies.py`).
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensorfold.adapters.tokenization.tokenizer import load_tokenizer
from tests.end_to_end.clients import get
from tests.end_to_end.family_requests import ASKED, TEMPLATES, WISHES, Got, chat, complete, rendered, source
from tests.end_to_end.served import Served, served
from tests.synthetic.plan_checkpoints import write_checkpoint, write_drafter
from tests.synthetic.publications import LAYOUTS
from tests.synthetic.tiny_configs import tiny, tiny_drafter

SAMPLINGS: tuple[Mapping[str, Any], ...] = ({"temperature": 0}, {"temperature": 1.0, "seed": 7})
PROMPTS = ("1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2", "def one(self):\n    return self.a\n\ndef two(self):\n")
FLAGS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "the model's own head": ((), "up to 3 a round of the model's own head"),
    "--mtp-drafts 1": (("--mtp-drafts", "1"), "up to 1 a round of the model's own head"),
    "--mtp-drafts 3": (("--mtp-drafts", "3"), "up to 3 a round of the model's own head"),
    "--mtp-drafts 0": (("--mtp-drafts", "0"), "the model's own head is left out, as --mtp-drafts 0 asked"),
    "--drafter none": (("--drafter", "none"), "up to 3 a round of the model's own head"),
    "--drafter PATH": (("--drafter", "./drafter"), "trees of ./drafter, windows of"),
    "--no-drafts": (("--no-drafts",), "drafts are off, as --no-drafts asked"),
}
"""Flags of drafting, and what the startup report then says."""
BRINGS = "Qwen3.8-27B's drafter is not used; `tensorfold pull z-lab/Qwen3.8-27B-DFlash2` brings it"


@dataclass(slots=True)
class Tally:
    """What was compared, and what differed."""

    compared: int = 0
    differences: list[str] = field(default_factory=list)

    def hold(self, what: str, got: object, wanted: object) -> None:
        """Count one comparison."""
        self.compared += 1
        if got != wanted:
            self.differences.append(f"{what}: {got!r:.300} is not {wanted!r:.300}")


def write_family(home: Path, family: str) -> None:
    """A family's tiny checkpoint with its template, as `home/FAMILY`."""
    folder = write_checkpoint(home / family, tiny(family), 5, "mlx", LAYOUTS[family])
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    del settings["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "chat_template.jinja").write_text(source(family))


@contextmanager
def family_server(home: Path, family: str, *flags: str) -> Iterator[Served]:
    """`tensorfold serve` of a family written in `home`."""
    with served(["serve", family, "--port", "0", "--context", "512", *flags], home) as server:
        yield server


def forms_agree(port: int, tally: Tally) -> None:
    """Completions and chats, greedy and sampled: whole, streamed, without drafts, and all at once are one reply."""
    asks: list[tuple[Callable[..., Got], tuple[Any, ...], Mapping[str, Any]]]
    asks = [(complete, (port, prompt), s) for prompt in PROMPTS for s in SAMPLINGS]
    asks += [(chat, (port,), s) for s in SAMPLINGS]
    serial = [ask(*given, draft=False, **sampling) for ask, given, sampling in asks]
    for form in ({"stream": False}, {"stream": True}, {"stream": True, "draft": False}):
        for wanted, (ask, given, sampling) in zip(serial, asks, strict=True):
            tally.hold(f"{ask.__name__} {given[1:]} {sampling} {form}", ask(*given, **form, **sampling), wanted)
    with ThreadPoolExecutor(len(asks)) as clients:
        jobs = [
            clients.submit(ask, *given, stream=bool(index % 2), **sampling)
            for index, (ask, given, sampling) in enumerate(asks)
        ]
        for wanted, job in zip(serial, jobs, strict=True):
            tally.hold("at once", job.result(), wanted)


def prompts_agree(port: int, home: Path, family: str, tally: Tally) -> None:
    """What a chat asks for reaches the template: its reply is that of the rendered text, and its prompt as long."""
    tokenizer = load_tokenizer(home / family)
    told: dict[str, Got] = {}
    for wish in WISHES:
        text, sampling = rendered(family, wish), SAMPLINGS[1]
        got = told[text] = chat(port, **wish.body, **sampling)
        tally.hold(f"ids of {wish.name}", got.ids, complete(port, text, **sampling).ids)
        tally.hold(f"prompt of {wish.name}", got.prompt, len(tokenizer.encode(text)))
    tally.hold("replies that differ", len({got.ids for got in told.values()}), len(told))


def drafts_were_verified(port: int, tally: Tally) -> None:
    """A comparison of drafted replies means something only if drafts were there; nothing may be left running."""
    _, health = get(port, "/health")
    tally.hold("drafts verified", health["drafted_total"] > 0, True)
    tally.hold("requests running", (health["status"], health["requests_running"]), ("ok", 0))


def family_agrees(home: Path, family: str) -> Tally:
    """One family, served once."""
    tally = Tally()
    write_family(home, family)
    with family_server(home, family) as server:
        forms_agree(server.port, tally)
        prompts_agree(server.port, home, family, tally)
        drafts_were_verified(server.port, tally)
    return tally


def heads_agree(home: Path) -> Tally:
    """Every flag of drafting on one checkpoint: the startup report says what drafts, and replies are the same."""
    tally = Tally()
    write_family(home, "qwen3_5")
    write_drafter(home / "drafter", tiny_drafter())
    told: dict[str, Sequence[Got]] = {}
    for name, (flags, line) in FLAGS.items():
        with family_server(home, "qwen3_5", *flags) as server:
            told[name] = [complete(server.port, prompt, **s) for prompt in (*PROMPTS, ASKED) for s in SAMPLINGS]
            said = "\n".join(server.lines())
            tally.hold(f"{name} says {line!r}", line in said, True)
            tally.hold(f"{name} tells of the drafter", BRINGS in said, name not in ("--drafter PATH", "--no-drafts"))
            _, health = get(server.port, "/health")
            tally.hold(f"{name} drafts", health["drafted_total"] > 0, name != "--no-drafts")
        for got, wanted in zip(told[name], told["the model's own head"], strict=True):
            tally.hold(name, got, wanted)
    return tally


def main() -> int:
    """All families and all flags; 0 when nothing differs."""
    began = time.monotonic()
    tallies: list[Tally] = []
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        for family in TEMPLATES:
            tallies.append(family_agrees(home, family))
            print(f"{family}: {tallies[-1].compared} compared, {len(tallies[-1].differences)} differ", flush=True)
        tallies.append(heads_agree(home))
        print(f"flags of drafting: {tallies[-1].compared} compared, {len(tallies[-1].differences)} differ", flush=True)
    differences = [line for tally in tallies for line in tally.differences]
    for line in differences:
        print(f"  - {line}")
    print(
        f"families: {len(TEMPLATES)} families and {len(FLAGS)} ways of drafting served, "
        f"{sum(tally.compared for tally in tallies)} replies and facts compared, {len(differences)} differences, "
        f"{time.monotonic() - began:.0f} s"
    )
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
