"""What a reply says, put together from a body or from events, and what is wrong with its form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.prove.fuzzing.answers import Answer
from tests.prove.fuzzing.good import Due

FINISHES = ("stop", "length")


@dataclass(frozen=True, slots=True)
class Reply:
    """The parts of a reply that are the same however it comes."""

    text: str
    finish: str
    sha: str
    prompt_tokens: int | None
    completion_tokens: int | None

    def equals(self, due: Due) -> bool:
        """Whether this is the reply that is due. A stream without usage shows no counts."""
        counts = (self.prompt_tokens, self.completion_tokens)
        same = (self.text, self.finish, self.sha) == (due.text, due.finish, due.sha)
        return same and counts in ((None, None), (due.prompt_tokens, due.completion_tokens))


def read_reply(answer: Answer) -> Reply:
    """The reply of an answer with status 200. Raises KeyError, TypeError or ValueError when it has not its form."""
    values = list(answer.events) if answer.streamed else [answer.value]
    text, finishes, block, usage = "", [], None, None
    for value in values:
        _check_head(value, values[0])
        block = value.get("tensorfold", block)
        usage = value.get("usage") or usage
        for choice in value["choices"]:
            if choice["index"] != 0 or choice["logprobs"] is not None:
                raise ValueError(f"a choice {choice}")
            text += "".join(_texts(choice))
            finishes += [choice["finish_reason"]] if choice["finish_reason"] is not None else []
    if len(finishes) != 1 or finishes[0] not in FINISHES:
        raise ValueError(f"finish reasons {finishes}")
    if block is None:
        raise ValueError("no figures")
    if usage is None:
        return Reply(text, finishes[0], block["token_sha"], None, None)
    if usage["total_tokens"] != usage["prompt_tokens"] + usage["completion_tokens"]:
        raise ValueError(f"a usage that does not add up: {usage}")
    return Reply(text, finishes[0], block["token_sha"], usage["prompt_tokens"], usage["completion_tokens"])


def _check_head(value: dict[str, Any], first: dict[str, Any]) -> None:
    for name in ("id", "object", "created", "model", "system_fingerprint"):
        if value[name] != first[name]:
            raise ValueError(f"{name} changes")
    if value["model"] != "hash":
        raise ValueError(f"the model {value['model']!r}")


def _texts(choice: dict[str, Any]) -> Iterator[str]:
    part = choice.get("delta", choice.get("message", {"content": choice.get("text")}))
    yield part.get("content") or ""
