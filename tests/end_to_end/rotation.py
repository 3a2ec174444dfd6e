"""Keys that rotate while clients ask without a pause: what every request with every key must be answered.

A file turns over one key after another, each valid for two turns, beside one that stays and one that a flag gave. A
request is judged by what was certain all the while it ran: a key that was valid throughout must be served, and its
reply must be the right one; a key that was valid at no moment must be refused.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

from tensorfold.adapters.filesystem.key_file import FolderKeyFile
from tensorfold.application.key_lines import Key
from tensorfold.application.key_rotation import KeyRotation
from tensorfold.application.settings import EngineSettings, HttpSettings
from tests.end_to_end.clients import Answer, Client, post, post_bytes
from tests.end_to_end.hash_server import Asked, Place, asked, hash_model, hash_server, until

STEADY, LASTING = "steady-key", "lasting-key"
SHORT = [{"content": f"question {number}", "max_tokens": 4, "stream": number % 2 == 0} for number in range(8)]
LONG = [{"content": f"a long one {number}", "max_tokens": 120, "stream": True, "ignore_eos": True} for number in (1, 2)]
ENDURING = [{"content": "one without end", "max_tokens": 1500, "stream": True, "ignore_eos": True, "draft": False}]
BAD: tuple[bytes | None, ...] = (
    None, b"", b"# none\n", b"two words\n", b"steady:steady-key\n", b"\xff\n", b"k" * (1 << 21),
)  # fmt: skip


def turning(turn: int) -> str:
    """The key of one turn."""
    return f"turning-{turn}-{turn * 7919:x}"


@dataclass
class Turns:
    """How far the file was written, and how far what was written counts. Both only grow."""

    written: int = 1
    applied: int = 1

    def certain(self, turn: int, applied: int) -> bool | None:
        """Whether a key was valid, or invalid, ever since `applied` counted; None when neither is sure."""
        if turn <= applied and turn >= self.written - 1:
            return True
        if turn < applied - 1 or turn > self.written:
            return False
        return None


@dataclass
class Seen:
    """What clients saw."""

    answers: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Answers so far."""
        return sum(list(self.answers.values()))

    def more_than(self, count: int) -> Callable[[], bool]:
        """Whether there are more answers than so many."""
        return lambda: self.count > count


@dataclass
class House:
    """A server whose keys rotate, and its clients."""

    place: Place
    path: Path
    rotation: KeyRotation
    turns: Turns
    said: list[str]
    sample: Asked
    seen: Seen = field(default_factory=Seen)

    def ask(self, key: str, wanted: Asked) -> Answer:
        """One request."""
        headers = {"Authorization": f"Bearer {key}"} if len(key) % 2 else {"x-api-key": key}
        return post(self.place.port, wanted.path, json.dumps(wanted.body).encode(), headers)

    def judge(self, who: str, answer: Answer, wanted: Asked, valid: bool | None) -> None:
        """Count an answer, and keep it when it is wrong."""
        served = answer.equals(wanted)
        refused = answer.status == 401 and answer.error is not None and not answer.faults
        self.seen.answers[f"{who} {'served' if served else 'refused'}"] += 1
        if not served and not refused:
            self.seen.wrong.append(f"{who}: neither served nor refused: {answer}")
        elif valid is True and not served:
            self.seen.wrong.append(f"{who}: lost at turn {self.turns}")
        elif valid is False and served:
            self.seen.wrong.append(f"{who}: wrongly admitted at turn {self.turns}")

    def write(self, data: bytes | None, *, how: str = "renamed") -> None:
        """Change the file as a tool does, looking at it as the server would at every moment between."""
        if data is None:
            self.path.unlink()
        elif how == "renamed":
            fresh = self.path.with_suffix(".fresh")
            fresh.write_bytes(data)
            fresh.chmod(0o600)
            os.replace(fresh, self.path)
        else:
            with self.path.open("wb", buffering=0) as file:
                for part in (data[: len(data) // 2], data[len(data) // 2 :]):
                    self.rotation.look()
                    self.judge("steady, file half written", self.ask(STEADY, self.sample), self.sample, True)
                    file.write(part)
        if how == "asked":
            self.rotation.look(asked=True)
        else:
            self.rotation.look()
            self.rotation.look()

    def turn(self, how: str) -> None:
        """Give out one more key and take the oldest back."""
        self.turns.written += 1
        self.write(contents(self.turns.written), how=how)
        until(lambda: self.turns.applied == self.turns.written, lambda: f"{self.turns}, {self.said[-2:]}")


def contents(turn: int) -> bytes:
    """The file at a turn."""
    return f"# turn {turn}\nnew: {turning(turn)}\nsteady: {STEADY}\nold: {turning(turn - 1)}\n".encode()


@contextmanager
def house(folder: Path) -> Iterator[House]:
    """A server over a hash model whose keys come from a file in `folder`."""
    path, turns = folder / "keys", Turns()
    said: list[str] = []
    path.write_bytes(contents(1))
    path.chmod(0o600)
    listening = HttpSettings(port=0, keys=(("cli-1", LASTING),), key_file=path)
    with hash_server(hash_model(), EngineSettings(parallel=8, queue=64), listening=listening) as place:

        def take(keys: Sequence[Key]) -> None:
            place.http.keys.rotate(keys)
            found = [int(key.split("-")[1]) for label, key in keys if label == "new"]
            turns.applied = max([turns.applied, *found])

        rotation = KeyRotation(FolderKeyFile(path), take, said.append)
        rotation.open()
        yield House(place, path, rotation, turns, said, asked(SHORT[:1])[0])
        place.until_empty()


def rotate_under_load(home: House, rotations: int) -> None:
    """Turn the file over while clients of every kind ask; what they saw is kept in the house."""
    short, long = asked(SHORT), asked(LONG)
    ending = threading.Event()
    crowd: list[tuple[str, Callable[[], int | str], Sequence[Asked]]] = [
        ("steady", lambda: STEADY, short),
        ("steady", lambda: STEADY, short),
        ("lasting", lambda: LASTING, short),
        ("newest", lambda: home.turns.applied, short),
        ("newest", lambda: home.turns.applied, short),
        ("newest, long", lambda: home.turns.applied, long),
        ("retired", lambda: max(0, home.turns.applied - 2), short),
        ("long retired", lambda: 0, short),
        ("not yet", lambda: home.turns.written + 3, short),
        ("never", lambda: "never-a-key", short),
        ("nearly", lambda: f"{STEADY}x", short),
    ]
    clients = [threading.Thread(target=_client, args=(home, ending, *one), daemon=True) for one in crowd]
    for client in clients:
        client.start()
    for turn, how in zip(range(rotations), cycle(("renamed", "in place", "asked")), strict=False):
        home.turn(how)
        # So many answers between two turns that every kind of client sees each key come and go.
        until(home.seen.more_than(home.seen.count + 2 * len(crowd)), f"answers after turn {turn}")
    ending.set()
    for client in clients:
        client.join(120)
        if client.is_alive():
            home.seen.wrong.append("a client never came to its end")


def _client(
    home: House, ending: threading.Event, who: str, choose: Callable[[], int | str], wanted: Sequence[Asked]
) -> None:
    for one in cycle(wanted):
        if ending.is_set():
            return
        applied, chosen = home.turns.applied, choose()
        try:
            answer = home.ask(turning(chosen) if isinstance(chosen, int) else chosen, one)
        except OSError as broken:
            home.seen.wrong.append(f"{who}: the connection broke: {broken!r}")
            continue
        valid = home.turns.certain(chosen, applied) if isinstance(chosen, int) else chosen in (STEADY, LASTING)
        home.judge(who, answer, one, valid)


def outlive_the_key(home: House) -> bool:
    """A reply that began with a key ends whole after that key is gone; whether it still ran then."""
    (one,) = asked(ENDURING)
    body = json.dumps(one.body).encode()
    key = turning(home.turns.applied)
    client = Client(home.place.port)
    client.send(post_bytes(one.path, body, {"x-api-key": key}))
    client.receive_events(3)
    for how in ("renamed", "asked", "renamed"):
        home.turn(how)
    home.judge("its key is gone", home.ask(key, one), one, False)
    running = any(home.place.scheduler.loads())
    home.judge("outlived its key", client.answer(), one, True)
    return running


def spoil_the_file(home: House) -> int:
    """Every bad file closes the file's keys, says why once, and opens them again when it is good; how many were."""
    one = home.sample
    for data in BAD:
        said = len(home.said)
        home.write(data)
        home.judge("steady, file bad", home.ask(STEADY, one), one, False)
        home.judge("lasting, file bad", home.ask(LASTING, one), one, True)
        home.rotation.look()
        told = home.said[said:]
        if len(told) != 1 or "None of its keys is valid until it is good again" not in told[0] or STEADY in told[0]:
            home.seen.wrong.append(f"a bad file was told as {told}")
        home.write(contents(home.turns.written))
        home.judge("steady, file good", home.ask(STEADY, one), one, True)
    return len(BAD)
