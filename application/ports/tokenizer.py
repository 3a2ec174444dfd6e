"""Text to ids and back, and messages to text, as values the domain can use.

A reply's text is made from the bytes of its ids, so that stop strings and streamed text are decided on bytes, token by
token. A template comes with the checkpoint and is hostile: it is rendered where it can be stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tensorfold.domain.conversation.template_traits import TemplateTraits
from tensorfold.domain.conversation.token_bytes import TokenBytes


class Tokenizer(Protocol):
    """A checkpoint's tokenizer. Safe to call from several threads."""

    @property
    def vocabulary(self) -> int:
        """Ids the tokenizer knows, added tokens included."""
        ...

    @property
    def identity(self) -> str:
        """Digest of everything that decides which ids a text becomes."""
        ...

    @property
    def record_digest(self) -> str:
        """Digest of what ids mean: vocabulary, merges and added tokens. 64 hexadecimal digits.

        Tokenizers that cut texts differently but give every id the same text share it, and a record of ids with it.
        """
        ...

    @property
    def token_bytes(self) -> TokenBytes:
        """The bytes of every id and the rule that joins them."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Ids of a text. Special tokens written in it are recognised, as templates need. Raises ValueError."""
        ...

    def token_id(self, token: str) -> int | None:
        """The id of a token's exact text, or None."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens included, malformed bytes as U+FFFD."""
        ...


@dataclass(frozen=True, slots=True)
class RenderedChat:
    """A template's output."""

    text: str


class ChatTemplate(Protocol):
    """A checkpoint's chat template. Safe to call from several threads."""

    @property
    def source(self) -> str:
        """Where the template came from: `chat_template.jinja`, `tokenizer_config.json`, or `none`."""
        ...

    @property
    def traits(self) -> TemplateTraits:
        """What the template can take, learned once."""
        ...

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> RenderedChat:
        """Text of a conversation. Raises TemplateError with one sentence when the template refuses or is stopped."""
        ...

    def close(self) -> None:
        """End the renderer's process."""
        ...


class TemplateError(Exception):
    """The template refused the messages, or was stopped at a limit; `message` is a sentence for the client."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
