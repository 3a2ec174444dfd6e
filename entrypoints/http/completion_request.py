"""The body of a text completion: a raw prompt, as text or as ids, that runs as given."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from tensorfold.application.orders import CompletionOrder
from tensorfold.entrypoints.http import fields
from tensorfold.entrypoints.http.fields import Flag, not_supported, only, read, refuse
from tensorfold.entrypoints.http.generation_fields import GenerationFields

ACCEPTED = "must be a string, a list of token ids, or a list with one of these"


def _prompt(value: Any) -> str | tuple[int, ...]:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], (str, list)):
        return _one(value[0], (0,))
    if isinstance(value, list) and len(value) > 1 and isinstance(value[0], (str, list)):
        raise not_supported(f"holds {len(value)} prompts; this server takes one per request")
    return _one(value, ())


def _one(value: Any, at: tuple[int, ...]) -> str | tuple[int, ...]:
    if not isinstance(value, (str, list)):
        raise refuse(ACCEPTED, at=at)
    if not value:
        raise refuse("is empty; it needs at least one token", at=at)
    if isinstance(value, str):
        return value
    for index, token in enumerate(value):
        if type(token) is not int or token < 0:
            raise refuse("must be a token id, an integer of 0 or more", at=(*at, index))
    return tuple(value)


def _suffix(value: Any) -> None:
    if fields.text(value):
        raise not_supported("asks for text between prompt and suffix, which this server does not offer")


class CompletionRequest(GenerationFields):
    """`POST /v1/completions` with a prompt."""

    prompt: Annotated[str | tuple[int, ...], read(_prompt), Field(validate_default=True)] = Field(default="")
    add_special_tokens: Annotated[Flag, only(False, what="special tokens around a raw prompt")] = None
    echo: Annotated[Flag, only(False, what="the prompt in the reply")] = None
    suffix: Annotated[None, read(_suffix)] = None

    def order(self, label: str) -> CompletionOrder:
        """The application's view; `label` names the key that asked."""
        return CompletionOrder(self.prompt, self.options(label=label))
