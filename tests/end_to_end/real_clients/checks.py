"""What every client library must show of a served model, whatever its own words are.

A check gives the cell of the table, or raises FaultError with what is wrong. Replies are compared with the reply to the
same request asked without any library.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.end_to_end.real_clients.documented import FaultError, run_documented
from tests.end_to_end.real_clients.door import ANSWERS, BARE, WAIT_S, Door
from tests.end_to_end.real_clients.driver import Driver, Said
from tests.end_to_end.real_clients.drivers.loop import TOOL
from tests.end_to_end.real_clients.house import KEY, LEFT, RUNNING, House, until

PROMPT = "Count from one to twenty, in words."
FIELDS: Mapping[str, Any] = {"temperature": 0, "max_tokens": 24}
OK = "ok"


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply that every library must show."""

    text: str
    finish: str
    usage: tuple[int, int]


class Room:
    """One library beside the server and the door."""

    def __init__(self, driver: Driver, house: House, door: Door) -> None:
        self.driver, self.house, self.door = driver, house, door

    def call(self, op: str = "chat", **changes: Any) -> Said:
        """A call with the usual arguments but for what is changed."""
        usual = {"base": self.house.base, "key": KEY, "model": self.house.model, "prompt": PROMPT, "tools": False}
        return self.driver.call(op, **(usual | {"fields": dict(FIELDS)} | changes))

    def wanted(self, **fields: Any) -> Reply:
        """The reply to the usual question, asked without a library. Raises FaultError."""
        status, body = self.house.ask(messages=[{"role": "user", "content": PROMPT}], **(dict(FIELDS) | fields))
        if status != 200:
            raise FaultError(f"the reference is a {status}: {body}")
        choice, usage = body["choices"][0], body["usage"]
        counted = (usage["prompt_tokens"], usage["completion_tokens"])
        return Reply(choice["message"]["content"], choice["finish_reason"], counted)

    def sent(self, before: int) -> list[int]:
        """Statuses of the chats asked since the log had `before` lines of them."""
        until(lambda: len(self.house.told()) > before, "a line of the log")
        return self.house.told()[before:]


def same(said: Said, wanted: Reply) -> None:
    """Raise FaultError unless a library showed the wanted reply, in all that it shows."""
    if said.kind is not None:
        raise FaultError(f"{said.kind}: {said.message}")
    if said.text != wanted.text:
        raise FaultError(f"the text is {said.text!r}, not {wanted.text!r}")
    if said.finish is not None and said.finish != wanted.finish:
        raise FaultError(f"it ended with {said.finish}, not {wanted.finish}")
    if said.usage != wanted.usage:
        raise FaultError(f"the usage is {said.usage}, not {wanted.usage}")


def chat(room: Room) -> str:
    """A whole reply, with its usage."""
    same(room.call(), room.wanted())
    return OK


def stream(room: Room) -> str:
    """A stream, with its usage; several pieces where the library shows pieces."""
    said = room.call("stream")
    same(said, room.wanted())
    if said.pieces is not None and said.pieces < 2:
        raise FaultError(f"{said.pieces} piece of text came")
    return OK if said.pieces is None else f"{said.pieces} pieces"


def stop(room: Room) -> str:
    """A stop string ends the reply before it, streamed and whole."""
    text = room.wanted().text
    places = (at for at in range(2, len(text) - 3) if text[at : at + 3].isprintable())
    word = next((text[at : at + 3] for at in places if text.find(text[at : at + 3]) == at), None)
    if word is None:
        raise FaultError(f"no part of {text!r} can be a stop string")
    wanted = room.wanted(stop=word)
    if wanted.text != text.split(word)[0] or wanted.finish != "stop":
        raise FaultError(f"the reference does not stop at {word!r}: {wanted}")
    for op in ("chat", "stream"):
        same(room.call(op, fields={**FIELDS, "stop": word}), wanted)
    return OK


def refusal(status: int, words: str, **changes: Any) -> Callable[[Room], str]:
    """A refusal of the server's: its status, its own words, streamed and whole, and one request for each."""

    def check(room: Room) -> str:
        said = Said()
        for op in ("chat", "stream"):
            before = len(room.house.told())
            given = {"base": room.house.base + changes["below"]} if "below" in changes else changes
            said = room.call(op, **given)
            if said.kind is None or said.status not in (None, status) or words not in said.message:
                raise FaultError(f"{op}: {said} is not a {status} with {words!r}")
            if (sent := room.sent(before)) != [status]:
                raise FaultError(f"{op}: it sent requests that were answered with {sent}")
        return said.kind or ""

    return check


def tools(room: Room) -> str:
    """Tool definitions are refused where the template has none, in its words, and taken where it renders them."""
    status, body = room.house.ask(messages=[{"role": "user", "content": PROMPT}], tools=[TOOL], **FIELDS)
    if status == 400:
        return refusal(400, body["error"]["message"], tools=True)(room)
    said = room.call(tools=True)
    if said.kind is not None:
        raise FaultError(f"{said.kind}: {said.message}")
    return "taken"


def leave(room: Room) -> str:
    """A stream that is left frees its lane, and the next request is served."""
    before = room.house.count(LEFT)
    said = room.call("leave", fields={"temperature": 0, "max_tokens": room.house.longest()})
    if said.kind is not None or said.pieces != 2:
        raise FaultError(f"{said} is not a stream that was left after two pieces")
    until(lambda: room.house.count(LEFT) == before + 1, "a client that left")
    until(lambda: room.house.count(RUNNING) == 0, "a free lane")
    same(room.call(), room.wanted())
    return OK


def full(room: Room) -> str:
    """A full server refuses with 503; when the client comes back after `Retry-After` there is room."""
    wanted, said = room.wanted(), Said()
    before = len(room.house.told())

    def ask() -> None:
        nonlocal said
        said = room.call()

    asking = threading.Thread(target=ask)
    with room.house.full():
        asking.start()
        until(lambda: 503 in room.house.told()[before:], "a 503")
    asking.join()
    sent = room.house.told()[before:]
    same(said, wanted)
    if sent != [503, 200]:
        raise FaultError(f"its requests were answered with {sent}")
    return "served at 2nd"


def knocks(answer: str) -> Callable[[Room], str]:
    """How often a library sends a request that is always answered so; the door's words reach its user."""

    def check(room: Room) -> str:
        said = room.call(base=room.door.base(answer))
        came = room.door.take(answer)
        error = ANSWERS[answer]
        if said.kind is None or error.message not in said.message:
            raise FaultError(f"{said} does not say {error.message!r}")
        if "x-should-retry" in error.headers and len(came) != 1:
            raise FaultError(f"it was sent {len(came)} times, though trying again was forbidden")
        waits = [later - sooner for sooner, later in pairwise(came)]
        if "Retry-After" in error.headers and (not waits or min(waits) < WAIT_S):
            raise FaultError(f"it came back after {[round(wait, 2) for wait in waits]} s, {WAIT_S} was asked for")
        return f"sent {len(came)}x"

    return check


def documented(room: Room) -> str:
    """What docs/clients.md says of a library runs as it stands there, but for the address and the key."""
    return run_documented(room.driver.name, room.driver.python, room.driver.home, room.house.base, KEY)


UNHONOURED = "presence_penalty asks for a penalty, which this server does not offer."
CHECKS: Mapping[str, Callable[[Room], str]] = {
    "chat, usage": chat,
    "stream, usage": stream,
    "stop string": stop,
    "401 wrong key": refusal(401, "The API key is not one of this server's.", key="wrong"),
    "404 wrong path": refusal(404, "the base URL of this server ends in /v1", below="/nowhere"),
    "400 field not offered": refusal(400, UNHONOURED, fields={"presence_penalty": 1}),
    "400 too long": refusal(400, "This model's maximum context length is", fields={"max_tokens": 10_000_000}),
    "400 tools": tools,
    "docs/clients.md": documented,
    "stream left": leave,
    "503 full, Retry-After 5": full,
    "always 503, Retry-After 1": knocks("full"),
    "500, x-should-retry: false": knocks("fault"),
    "409, x-should-retry: false": knocks("conflict"),
    **{f"bare {status}": knocks(f"bare-{status}") for status in BARE},
}
