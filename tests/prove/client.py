"""The proof of OpenAI's client: long conversations with edits, forced calls and schemas, streamed and plain.

In every dialect of tool calls a conversation grows turn by turn, with an edit now and then, against a served hash model
that is steered to end and notices where prompts are cut. Each turn is asked plain, streamed, without drafts and of a
server that keeps nothing: all must be one reply, in the client's own types, and of the form that was asked for.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import openai
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tensorfold.domain.conversation.dialects import DIALECTS
from tests.end_to_end.asked_forms import ARGUMENTS, NAMED, SCHEMA, TOOLS, Answer, client_of

TURNS, LEAST_TURNS = 24, 20
"""Turns of a conversation, and the fewest that a proof takes in each dialect."""
FORMS: tuple[dict[str, Any], ...] = (
    {},
    {"tools": TOOLS, "tool_choice": "required"},
    {"response_format": SCHEMA},
    {"tools": TOOLS, "tool_choice": NAMED, "parallel_tool_calls": False},
)


@dataclass(frozen=True, slots=True)
class Said:
    """A reply as the client shows it."""

    text: str
    calls: tuple[tuple[str, str], ...]
    finish: str | None
    usage: tuple[int, int]


@dataclass(slots=True)
class Tally:
    """What was asked and seen."""

    requests: int = 0
    turns: int = 0
    edits: int = 0
    calls: int = 0
    answers: int = 0
    prompt: int = 0
    cached: int = 0
    faults: list[str] = field(default_factory=list)


def plain(client: openai.OpenAI, tally: Tally, **fields: Any) -> Said:
    """A whole reply, which must be all that its type promises."""
    said: Any = client.chat.completions.create(model="hash", **fields)
    ChatCompletion.model_validate(said.model_dump())
    choice, usage = said.choices[0], said.usage
    tally.requests += 1
    if "draft" not in fields.get("extra_body", {}):
        tally.prompt += usage.prompt_tokens
        tally.cached += usage.prompt_tokens_details.cached_tokens
    calls = tuple((call.function.name, call.function.arguments) for call in choice.message.tool_calls or ())
    counted = (usage.prompt_tokens, usage.completion_tokens)
    return Said(choice.message.content or "", calls, choice.finish_reason, counted)


def streamed(client: openai.OpenAI, tally: Tally, **fields: Any) -> Said:
    """A stream put together, each of its pieces all that its type promises."""
    text, finish, usage = "", None, (0, 0)
    calls: dict[int, list[str]] = {}
    for chunk in client.chat.completions.create(
        model="hash", stream=True, stream_options={"include_usage": True}, **fields
    ):
        ChatCompletionChunk.model_validate(chunk.model_dump())
        if chunk.usage is not None:
            usage = (chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for call in choice.delta.tool_calls or ():
                known = calls.setdefault(call.index, ["", ""])
                known[0] += call.function.name or ""
                known[1] += call.function.arguments or ""
    tally.requests += 1
    return Said(text, tuple((name, arguments) for name, arguments in calls.values()), finish, usage)


def formed(said: Said, form: dict[str, Any], tally: Tally) -> str:
    """What a reply lacks of the form that was asked for; empty: nothing."""
    try:
        if "tools" in form:
            tally.calls += len(said.calls)
            for name, arguments in said.calls:
                ARGUMENTS[name].validate_json(arguments)
            one = form["tool_choice"] is NAMED
            if said.text or said.finish != "tool_calls" or not said.calls:
                return f"no forced call: {said}"
            return f"not the named call: {said}" if one and [n for n, _ in said.calls] != ["find_files"] else ""
        if said.finish != "stop" or said.calls:
            return f"it did not end: {said}"
        if "response_format" in form:
            tally.answers += 1
            Answer.model_validate_json(said.text)
    except (KeyError, ValueError) as broken:
        return f"{type(broken).__name__} in {said}"
    return ""


def turn(history: list[Any], said: Said, rng: random.Random) -> list[Any]:
    """The conversation behind a reply, with the results of its tools."""
    message: dict[str, Any] = {"role": "assistant", "content": said.text}
    results = []
    if said.calls:
        named = [
            {"id": f"call_{at}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for at, (name, arguments) in enumerate(said.calls)
        ]
        message = {"role": "assistant", "content": None, "tool_calls": named}
        results = [{"role": "tool", "tool_call_id": call["id"], "content": f"{rng.randrange(99)}"} for call in named]
    return [*history, message, *results]


def edited(history: list[Any], rng: random.Random) -> list[Any]:
    """The conversation with another word in one of its user's messages."""
    place = rng.choice([at for at, message in enumerate(history) if message["role"] == "user"])
    changed = {"role": "user", "content": f"No, look for {rng.randrange(1000)} instead."}
    return [*history[:place], changed, *history[place + 1 :]]


def converse(dialect: str, turns: int, seed: int, tally: Tally) -> None:
    """One conversation in a dialect; faults are told in the tally."""
    rng = random.Random(f"{seed}/{dialect}")
    history: list[Any] = [{"role": "system", "content": "Rule: be kind, plain and brief. " * 8}]
    with client_of(dialect, 1 << 20) as client, client_of(dialect, 0) as fresh:
        for number in range(turns):
            if number % 5 == 4:
                history = edited(history, rng)
                tally.edits += 1
            history = [*history, {"role": "user", "content": f"Turn {number}: find {rng.randrange(1000)}."}]
            form = FORMS[number % len(FORMS)]
            heat = {"temperature": 0} if rng.random() < 0.5 else {"temperature": 1.0, "seed": rng.randrange(1000)}
            fields: dict[str, Any] = {"messages": history, **form, **heat}
            said = plain(client, tally, **fields)
            others = (
                streamed(client, tally, **fields),
                plain(client, tally, **fields, extra_body={"draft": False}),
                streamed(fresh, tally, **fields),
            )
            tally.faults += [f"{dialect}, turn {number}: {other} is not {said}" for other in others if other != said]
            if lacks := formed(said, form, tally):
                tally.faults.append(f"{dialect}, turn {number}: {lacks}")
            tally.turns += 1
            history = turn(history, said, rng)


def main(arguments: Sequence[str] | None = None) -> int:
    """Converse in every dialect and print the figures; 1 when anything is wrong or falls short."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=TURNS, help="of each conversation")
    parser.add_argument("--seed", type=int, default=1)
    flags = parser.parse_args(arguments)
    began, tally = time.monotonic(), Tally()
    for dialect in sorted(DIALECTS):
        converse(dialect, flags.turns, flags.seed, tally)
    for fault in tally.faults[:10]:
        print(f"  - {fault}")
    short = tally.turns < LEAST_TURNS * len(DIALECTS) or not (tally.edits and tally.calls and tally.answers)
    cold = 2 * tally.cached < tally.prompt
    print(
        f"client: openai {openai.__version__}, {tally.requests} requests in {len(DIALECTS)} dialects, {tally.turns} "
        f"turns, {tally.edits} edits, {tally.calls} forced calls, {tally.answers} replies of a schema, "
        f"{tally.cached:,} of {tally.prompt:,} prompt tokens kept, {len(tally.faults)} faults, "
        f"{time.monotonic() - began:.0f} s"
    )
    return 1 if tally.faults or short or cold else 0


if __name__ == "__main__":
    sys.exit(main())
