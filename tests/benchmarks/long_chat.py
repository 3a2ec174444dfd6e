"""A long conversation on a real model: little is read again, a restart resumes from disk, the record repeats nothing.

A system prompt of about 2,000 ids and ten turns of about 60. Printed for each turn: ids of the prompt, kept ones, those
that were read. `--require` exits with 1 when a turn reads more than its new ids, the last reply, 256 and the template's
tail; when the tenth turn's first token is not 5 times sooner than without kept states in the same run; when the
eleventh turn, after a restart, does not resume; when a killed write of a snapshot leaves anything but old or complete
files; when a repeated request adds to the record, or a held run is added again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorfold.entrypoints.settings import cache_folder
from tests.benchmarks.snapshot_kills import Killed, kill_writers
from tests.end_to_end.served import Served, client_of, served

LEAST_KILLS = 500
SOONER = 5.0
SHORTEST = 256
TAIL = 16
"""Ids with which the template opens a reply, at most."""
OVERHEAD = 512
"""Ids that the record writes beside novel ones: the beginnings and ends of pieces."""
REPLY = 60
TURNS = 10


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn's figures; seconds to its first token."""

    prompt: int
    cached: int
    reply: int
    first_s: float
    sha: str
    text: str

    @property
    def read(self) -> int:
        """Ids of the prompt that were not kept."""
        return self.prompt - self.cached


def system_text() -> str:
    """Rules that come to about 2,000 ids."""
    return " ".join(f"Rule {n}: when a reader asks of item {n}, answer it plainly and kindly." for n in range(96))


def ask(client: Any, messages: Sequence[dict[str, str]]) -> Turn:
    """One reply."""
    answer = client.chat.completions.create(model="demo", messages=list(messages), max_tokens=REPLY, temperature=0)
    told, usage = answer.model_extra["tensorfold"], answer.usage
    cached = usage.prompt_tokens_details.cached_tokens
    text = answer.choices[0].message.content or ""
    return Turn(usage.prompt_tokens, cached, usage.completion_tokens, told["ttft_s"], told["token_sha"], text)


def said(turn: int) -> str:
    return (
        f"Question {turn}: tell me in a few plain words what you think of the number {turn * 17}, who may have liked "
        f"it long ago, and which of your rules speaks of item {turn + 3}; then name one more thing of the same kind."
    )


def added(port: int) -> int:
    """Ids in the record, once it takes no more."""
    before = -1
    while True:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/recall", timeout=30) as answer:
            ids = int(json.load(answer)["added_ids"])
        if ids == before:
            return ids
        before = ids
        time.sleep(1.0)


class Chat:
    """The conversation, and what is wrong with it."""

    def __init__(self, model: str, home: Path) -> None:
        self.wrong: list[str] = []
        self._words = [
            "serve", model, "--port", "0", "--name", "demo", "--context", "4096", "--parallel", "2", "--snapshot-dir",
            str(home / "snapshots"), "--recall-dir", str(home / "record"), "--no-update-check",
        ]  # fmt: skip
        self._home = home
        self._messages: list[dict[str, str]] = []

    def run(self) -> str:
        """Ten turns, a restart, the eleventh; the figures in words."""
        with served(self._words, self._home) as server:
            figures = self._ten(server)
            self._end(server)
        with served(self._words, self._home) as server, client_of(server.port) as client:
            last = self._turn(client, TURNS + 1)
            self._end(server)
        if not last.cached:
            self.wrong.append("the eleventh turn resumed nothing from disk")
        return f"{figures}; after a restart {last.cached} of {last.prompt} ids came from disk, {last.first_s:.2f} s"

    def _ten(self, server: Served) -> str:
        with client_of(server.port) as client:
            self._messages = [{"role": "system", "content": system_text()}]
            turns: list[Turn] = []
            for number in range(1, TURNS + 1):
                turns.append(self._turn(client, number, turns[-1] if turns else None))
            last = turns[-1]
            novel = last.prompt + last.reply
            held = added(server.port)
            again = ask(client, self._messages[:-1])
            if added(server.port) != held:
                self.wrong.append(f"a repeated request added {added(server.port) - held} ids to the record")
            if again.sha != last.sha:
                self.wrong.append("a repeated request got another reply")
            if held > novel + OVERHEAD:
                self.wrong.append(f"{held} ids were added to the record of a conversation of {novel}")
            # Nothing is kept of a conversation that begins otherwise.
            other = [{"role": "system", "content": f"New. {self._messages[0]['content']}"}, *self._messages[1:-1]]
            fresh = ask(client, other)
        if fresh.cached:
            self.wrong.append("the uncached turn was not uncached")
        sooner = fresh.first_s / max(last.first_s, 1e-9)
        if sooner < SOONER:
            self.wrong.append(
                f"turn ten's first token came {sooner:.1f} times sooner, at least {SOONER:g} is asked for"
            )
        spared = sum(turn.cached for turn in turns) / sum(turn.prompt for turn in turns)
        return (
            f"turn ten's first token {last.first_s:.2f} s kept, {fresh.first_s:.2f} s uncached ({sooner:.1f} times), "
            f"{100 * spared:.0f}% of all prompt ids kept; record {held} ids of {novel}"
        )

    def _turn(self, client: Any, number: int, before: Turn | None = None) -> Turn:
        self._messages.append({"role": "user", "content": said(number)})
        turn = ask(client, self._messages)
        self._messages.append({"role": "assistant", "content": turn.text})
        new = turn.prompt - (before.prompt + before.reply if before is not None else 0)
        most = new + (before.reply if before is not None else 0) + SHORTEST + TAIL
        print(f"turn {number:2}: prompt {turn.prompt}, kept {turn.cached}, read {turn.read} (at most {most}), "
              f"first token {turn.first_s:.2f} s", flush=True)  # fmt: skip
        if before is not None and turn.read > most:
            self.wrong.append(f"turn {number} read {turn.read} ids, at most {most} were to be read")
        return turn

    def _end(self, server: Served) -> None:
        server.command.interrupt()
        if server.ended():
            self.wrong.append("the server did not end cleanly")


def killed_words(killed: Killed) -> str:
    return f"{killed.kills} killed writes ({killed.cut_short} cut short, {killed.wrong} wrong)"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--require", action="store_true", help="fail when something does not hold")
    parser.add_argument("--model", default="demo", help="a model name or folder")
    parser.add_argument("--kills", type=int, default=LEAST_KILLS)
    flags = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tensorfold-chat-") as folder:
        home = Path(folder)
        killed = kill_writers(home / "killed", flags.kills, 1)
        (home / "cache").symlink_to(cache_folder(os.environ).parent)
        chat = Chat(flags.model, home)
        figures = chat.run()
    wrong = chat.wrong
    if killed.wrong or not killed.cut_short:
        wrong.append(f"snapshots: {killed.first or 'no kill fell into a write'}")
    for line in wrong:
        print(f"  - {line}")
    print(
        f"long chat on {Path(flags.model).name}: {figures}; {killed_words(killed)}; {len(wrong)} missed, "
        f"{time.monotonic() - began:.0f} s"
    )
    return 1 if wrong and flags.require else 0


if __name__ == "__main__":
    sys.exit(main())
