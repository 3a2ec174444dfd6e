"""A whole server whose model says what a test scripts, token by token, whatever is asked.

Tokens may be any bytes: parts of characters, markup, ends. Windows of planted drafts run over the script as over any
other reply.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.application.generation import Generation
from tensorfold.application.planting import PlantedDrafts, Tally
from tensorfold.application.ports.target_model import TargetModel
from tensorfold.application.ports.tokenizer import ChatTemplate
from tensorfold.application.replies import GenerationRequest
from tensorfold.application.settings import EngineSettings, HttpSettings
from tensorfold.domain.conversation.token_bytes import TokenBytes
from tensorfold.domain.drafting.sources import DraftSource
from tests.end_to_end.hash_server import CONTEXT, Place, hash_server
from tests.fakes.hash_law import HashLaw, absorb
from tests.fakes.hash_model import HashModel
from tests.fakes.tokenizer import SPECIALS, FakeTemplate, FakeTokenizer

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
END = SPECIALS[-1]
PATIENCE_S = 60.0

Token = str | bytes
"""The text or the bytes of a token; `END` is the end token, another special text its own."""


class ScriptTokenizer(FakeTokenizer):
    """The fake tokenizer with the pieces of a script as tokens of their own, beside the 256 bytes."""

    def __init__(self, pieces: Sequence[bytes], specials: Sequence[str] = SPECIALS) -> None:
        super().__init__(256 + len(pieces) + len(specials), specials)
        self._table = (*self._table[:256], *pieces, *self._table[256 + len(pieces) :])
        self._bytes = TokenBytes(self._table, frozenset(self._specials.values()))
        self._piece_ids = {piece: 256 + at for at, piece in enumerate(pieces)}

    def script_id(self, token: Token) -> int:
        """The id of a token of the script."""
        if isinstance(token, str) and token in self._specials:
            return self._specials[token]
        return self._piece_ids[_bytes(token)]


@dataclass(frozen=True)
class ScriptedLaw(HashLaw):
    """A hash law with states in which one token is certain."""

    certain: dict[int, int] = field(default_factory=dict)

    def say(self, prompt: Sequence[int], reply: Sequence[int]) -> None:
        """After this prompt comes this reply."""
        state = self.state_of(prompt)
        for token in reply:
            self.certain[state] = token
            state = absorb(state, token)

    def logits(self, states: NDArray[np.uint64], tokens: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float32]:
        """Rows of logits, as the hash law has them but for the certain ones."""
        rows = super().logits(states, tokens)
        for row, state in zip(rows, states.tolist(), strict=True):
            if state in self.certain:
                row[self.certain[state]] = 4 * self.spread
        return rows


@dataclass(frozen=True, slots=True)
class Said:
    """An answer as a client puts it together. `chunks` are the values of a stream's events, in order."""

    status: int
    headers: dict[str, str]
    raw: str
    text: str = ""
    finish: str | None = None
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    body: dict[str, Any] = field(default_factory=dict)
    chunks: list[dict[str, Any]] = field(default_factory=list)
    reasoning: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)

    @property
    def called(self) -> list[tuple[str, str]]:
        """Name and arguments of each call."""
        return [(call["function"]["name"], call["function"]["arguments"]) for call in self.calls]

    @property
    def told(self) -> tuple[Any, ...]:
        """What must be the same streamed and whole."""
        return self.text, self.reasoning, self.called, self.finish, self.usage


@dataclass
class Scripted:
    """A running server and what it rendered last."""

    place: Place
    template: ChatTemplate
    tokenizer: ScriptTokenizer
    prompts: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def prompt(self) -> str:
        """The text of the last prompt that the engine got."""
        return self.tokenizer.decode(self.prompts[-1])

    def ask(self, body: dict[str, Any] | bytes, path: str = CHAT, **headers: str) -> Said:
        """One request, its answer read to the end."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.call("POST", path, raw, **headers)

    def call(self, method: str, path: str, raw: bytes | None = None, **headers: str) -> Said:
        """Any request; underscores in the names of headers stand for dashes."""
        connection = HTTPConnection("127.0.0.1", self.place.port, timeout=PATIENCE_S)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, raw, named)
            answer = connection.getresponse()
            data = answer.read().decode()
            return _read(answer.status, {name.lower(): text for name, text in answer.getheaders()}, data)
        finally:
            connection.close()

    def chat(self, content: Any = "hello", **fields: Any) -> Said:
        """A chat of one user message."""
        return self.ask({"messages": [{"role": "user", "content": content}], "temperature": 0} | fields)

    def both(self, content: Any = "hello", **fields: Any) -> tuple[Said, Said]:
        """The same chat whole and streamed."""
        return self.chat(content, **fields), self.chat(content, stream=True, **fields)

    def alive(self) -> bool:
        """Whether the next requests are served and nothing is left of those before."""
        self.place.until_empty()
        return self.call("GET", "/v1/models").status == 200 and self.chat(max_tokens=1).status == 200


@contextmanager
def scripted(
    script: Sequence[Token] = ("yes", END),
    *,
    window: int = 1,
    template: ChatTemplate | None = None,
    specials: Sequence[str] = SPECIALS,
    ends: Sequence[str] = (END,),
    listening: HttpSettings | None = None,
    settings: EngineSettings | None = None,
    wrap: Callable[[TargetModel], TargetModel] = lambda model: model,
    context: int = CONTEXT,
) -> Iterator[Scripted]:
    """Serve the script. `window` tokens are drafted rightly each round; `wrap` makes another model of the scripted."""
    pieces = list(dict.fromkeys(_bytes(token) for token in script if token not in specials))
    tokenizer = ScriptTokenizer(pieces, specials)
    law = ScriptedLaw(vocabulary=tokenizer.vocabulary, salt=61)
    reply = [tokenizer.script_id(token) for token in script]
    model = HashModel(law, max_streams=32, batch_rows=128, max_lanes=64, prefill_slice=16)
    template = template or FakeTemplate()
    stop_ids = frozenset(tokenizer.script_id(text) for text in ends)
    with hash_server(
        wrap(model),
        settings or EngineSettings(parallel=4, queue=64, force_windows=window > 1),
        listening=listening or HttpSettings(port=0),
        context=context,
        template=template,
        tokenizer=tokenizer,
        ends=stop_ids,
    ) as place:
        here = Scripted(place, template, tokenizer)
        submit = place.scheduler.submit

        def scripted_submit(request: GenerationRequest, source: DraftSource | None = None) -> Generation:
            law.say(request.prompt, reply)
            here.prompts.append(request.prompt)
            if window > 1:
                lengths = itertools.repeat(window - 1)
                source = PlantedDrafts(len(request.prompt), reply, lengths, "chain", law.vocabulary, Tally())
            return submit(request, source)

        place.scheduler.submit = scripted_submit  # type: ignore[method-assign]
        yield here
    assert not place.faults, place.faults


def _bytes(token: Token) -> bytes:
    return token.encode() if isinstance(token, str) else token


def _read(status: int, headers: dict[str, str], data: str) -> Said:
    kind = headers.get("content-type", "")
    if kind.startswith("text/event-stream"):
        return _read_stream(status, headers, data)
    if not kind.startswith("application/json") or not data:
        return Said(status, headers, data)
    body = json.loads(data)
    choice = (body.get("choices") or [{}])[0]
    message = choice.get("message", {})
    text = message.get("content") or choice.get("text") or ""
    said = Said(status, headers, data, text, choice.get("finish_reason"), body.get("usage"), body.get("error"), body)
    return replace(said, reasoning=message.get("reasoning_content", ""), calls=message.get("tool_calls", []))


def _read_stream(status: int, headers: dict[str, str], data: str) -> Said:
    events = [event for event in data.split("\n\n") if event and not event.startswith(":")]
    assert events[-1] == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
    choices = [choice for chunk in chunks for choice in chunk.get("choices", ())]
    text = "".join(choice.get("delta", choice).get("content") or choice.get("text", "") for choice in choices)
    finishes = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    assert len(finishes) <= 1
    usages = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    errors = [chunk["error"] for chunk in chunks if "error" in chunk]
    assert len(errors) <= 1
    return Said(
        status,
        headers,
        data,
        text,
        finishes[0] if finishes else None,
        usages[-1] if usages else None,
        errors[0] if errors else None,
        {},
        chunks,
        "".join(choice.get("delta", {}).get("reasoning_content", "") for choice in choices),
        _calls([delta for choice in choices for delta in choice.get("delta", {}).get("tool_calls", ())]),
    )


def _calls(deltas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The calls of a stream: the first delta of each has everything but arguments, later ones nothing but arguments."""
    calls: list[dict[str, Any]] = []
    for delta in deltas:
        if delta["index"] == len(calls):
            assert set(delta) == {"index", "id", "type", "function"}
            calls.append({"id": delta["id"], "type": delta["type"], "function": dict(delta["function"])})
        else:
            assert set(delta) == {"index", "function"}
            assert set(delta["function"]) == {"arguments"}
            calls[delta["index"]]["function"]["arguments"] += delta["function"]["arguments"]
    return calls
