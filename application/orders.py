"""What a client may ask of the served model, as values: a conversation or a text to continue, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """What a request may set; None is the server's default."""

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


@dataclass(frozen=True, slots=True)
class ChatOrder:
    """A conversation to continue. `template_variables` are passed to the template as they are."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    template_variables: Mapping[str, Any] | None = None
    options: ReplyOptions = ReplyOptions()


@dataclass(frozen=True, slots=True)
class CompletionOrder:
    """A raw prompt, as text or as ids."""

    prompt: str | tuple[int, ...]
    options: ReplyOptions = ReplyOptions()
