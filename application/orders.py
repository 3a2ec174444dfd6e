"""What a client may ask of the served model, as values: a conversation or a text to continue, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensorfold.domain.gates.grammar import Grammar


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """What a request may set; None is the server's default.

    `grammar` holds the reply to a form, as the request's `grammar_field` asked, and `max_tokens` came in `limit_field`.
    `thinking_budget` 0 is the server's.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stops: tuple[str, ...] = ()
    ignore_eos: bool = False
    draft: bool = True
    background: bool = False
    label: str = ""
    thinking_budget: int = 0
    grammar: Grammar | None = None
    grammar_field: str = ""
    limit_field: str = "max_tokens"


@dataclass(frozen=True, slots=True)
class ChatOrder:
    """A conversation to continue. `template_variables` are passed to the template as they are.

    `one_call` asks for the first of several tool calls alone; `as_text` for the reply as it is written, its reasoning
    and calls part of the text. `must_call` forces a call of one of the tools, of `call_name` where it is given.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    template_variables: Mapping[str, Any] | None = None
    options: ReplyOptions = ReplyOptions()
    one_call: bool = False
    as_text: bool = False
    must_call: bool = False
    call_name: str | None = None


@dataclass(frozen=True, slots=True)
class CompletionOrder:
    """A raw prompt, as text or as ids."""

    prompt: str | tuple[int, ...]
    options: ReplyOptions = ReplyOptions()
