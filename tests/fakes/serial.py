"""The serial reply of a hash law, made without any of the engine's code: what every other way of decoding must equal.

`serial_reference` is one plain loop, one token a step. `serial_references` steps many cases side by side with arrays
and gives the same replies, fast. Of the product they use only the sampler rule. An end token has no text, so it
completes no stop string.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.sampling import Sampling, draw, draw_rows
from tests.fakes.hash_law import HashLaw, absorb, absorb_rows

Fix = Callable[[Sequence[int], int], Sequence[int] | None]
Allow = Callable[[Sequence[int]], NDArray[np.uint32] | None]

GREEDY = Sampling()
BYTE_IDS: tuple[bytes, ...] = tuple(bytes((i,)) for i in range(256))


@dataclass(frozen=True, slots=True)
class SerialReply:
    """`tokens` of the reply, why it ended, and the stop string that ended it, if one did."""

    tokens: tuple[int, ...]
    finish: Literal["stop", "length"]
    stop: bytes | None = None


@dataclass(frozen=True, slots=True)
class SerialCase:
    """One request. `stop_ids` empty is `ignore_eos`; `stops` are searched in the bytes of the reply alone."""

    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = GREEDY
    stop_ids: frozenset[int] = frozenset()
    stops: tuple[bytes, ...] = ()


def completed_stop(text: bytes | bytearray, added: int, stops: Sequence[bytes]) -> bytes | None:
    """The stop string that the last `added` bytes of `text` completed: the one that begins first, then the longest."""
    found: tuple[int, int, bytes] | None = None
    for stop in stops:
        at = text.find(stop, max(0, len(text) - added - len(stop) + 1))
        if at >= 0 and (found is None or (at, -len(stop)) < found[:2]):
            found = (at, -len(stop), stop)
    return found[2] if found else None


def serial_reference(
    law: HashLaw,
    prompt: Sequence[int],
    max_tokens: int,
    sampling: Sampling = GREEDY,
    stop_ids: frozenset[int] = frozenset(),
    *,
    stops: Sequence[bytes] = (),
    token_bytes: Sequence[bytes] = BYTE_IDS,
    fix: Fix | None = None,
    allow: Allow | None = None,
) -> SerialReply:
    """The reply to `prompt` (at least one id), token by token.

    `fix(emitted, token)` may return tokens that stand in for the drawn one: the first replaces it, the others follow
    undrawn. `allow(emitted)` may return the packed bits of the tokens that may come next.
    """
    reply: list[int] = []
    text = bytearray()
    state = law.state_of(prompt)
    last = prompt[-1]
    forced: list[int] = []
    while True:
        if forced:
            token = forced.pop(0)
        else:
            logits = law.logits(np.array([state], dtype=np.uint64), [last])[0]
            if allow is not None and (words := allow(reply)) is not None:
                logits[np.unpackbits(words.view(np.uint8), bitorder="little")[: law.vocabulary] == 0] = -np.inf
            token = draw(logits, len(prompt) + len(reply), sampling)
            if fix is not None and (run := fix(reply, token)) is not None:
                token, *forced = run
        reply.append(token)
        state, last = absorb(state, token), token
        if token in stop_ids:
            return SerialReply(tuple(reply), "stop")
        piece = token_bytes[token] if token < len(token_bytes) else b""
        text += piece
        if stops and (stop := completed_stop(text, len(piece), stops)) is not None:
            return SerialReply(tuple(reply), "stop", stop)
        if len(reply) >= max_tokens:
            return SerialReply(tuple(reply), "length")


def serial_references(
    law: HashLaw, cases: Sequence[SerialCase], token_bytes: Sequence[bytes] = BYTE_IDS
) -> list[SerialReply]:
    """`serial_reference` of every case; each step draws one token of every case still running."""
    replies: list[SerialReply | None] = [None] * len(cases)
    live = list(range(len(cases)))
    emitted: list[list[int]] = [[] for _ in cases]
    texts = [bytearray() for _ in cases]
    states = np.array([law.state_of(case.prompt) for case in cases], dtype=np.uint64)
    tokens = [case.prompt[-1] for case in cases]
    samplings = [case.sampling for case in cases]
    positions = [len(case.prompt) for case in cases]
    while live:
        tokens = draw_rows(law.logits(states, tokens), positions, samplings)
        states = absorb_rows(states, np.array(tokens, dtype=np.int64))
        going: list[int] = []
        for row, index in enumerate(live):
            token, case = tokens[row], cases[index]
            emitted[index].append(token)
            end = _end(case, emitted[index], texts[index], token_bytes)
            if end is None:
                going.append(row)
            else:
                replies[index] = end
        if len(going) != len(live):
            live = [live[row] for row in going]
            states = states[going]
            tokens = [tokens[row] for row in going]
            samplings = [samplings[row] for row in going]
            positions = [positions[row] for row in going]
        positions = [position + 1 for position in positions]
    return [reply for reply in replies if reply is not None]


def _end(case: SerialCase, emitted: list[int], text: bytearray, token_bytes: Sequence[bytes]) -> SerialReply | None:
    token = emitted[-1]
    if token in case.stop_ids:
        return SerialReply(tuple(emitted), "stop")
    if case.stops and token < len(token_bytes):
        text += token_bytes[token]
        stop = completed_stop(text, len(token_bytes[token]), case.stops)
        if stop is not None:
            return SerialReply(tuple(emitted), "stop", stop)
    return SerialReply(tuple(emitted), "length") if len(emitted) >= case.max_tokens else None
