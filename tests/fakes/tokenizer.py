"""A byte-level tokenizer and a chat template over the ids of a hash model: no file, no library, no process.

Special ids come last, the end token at `vocabulary` - 1, where a hash model expects its stop id. Text made of ids is
whatever their bytes say, malformed sequences included.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tensorfold.application.ports.tokenizer import RenderedChat, TemplateError
from tensorfold.domain.conversation.template_traits import TemplateTraits
from tensorfold.domain.conversation.token_bytes import TokenBytes
from tensorfold.domain.recall.identity import record_digest

SYSTEM, USER, ASSISTANT, TOOL, END = "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>"
SPECIALS = (SYSTEM, USER, ASSISTANT, TOOL, END)
ROLES = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT, "tool": TOOL}

# Whole words, and characters cut in two: a token may end inside a character.
_PIECES = (b" the", b"ing", b" of", "é".encode(), b"\xe2\x82", b"\xac", b"\xf0\x9f", b"\x98\x80", b"\n\n", b"```")
_ALPHABET = b" etaoinshrdlucmfwypvbgkjqxz.,\n0123456789ETAOINSHRDLUCMFWYPVBGKJQXZ'\"-!?:;()"


class FakeTokenizer:
    """`vocabulary` ids, the last of them `specials`.

    With at least 256 ordinary ids, ids 0..255 are the bytes and any text survives a round trip (`lossless`); ids behind
    them stand for several bytes and are never made by `encode`. With fewer, each ordinary id is one readable byte and
    `encode` maps other bytes onto them.
    """

    def __init__(self, vocabulary: int = 512, specials: Sequence[str] = SPECIALS) -> None:
        plain = vocabulary - len(specials)
        if plain < 2:
            raise ValueError(f"{vocabulary} ids leave no room beside {len(specials)} special ones")
        self._specials = {text: plain + i for i, text in enumerate(specials)}
        self._table = (*_plain_bytes(plain), *(text.encode() for text in specials))
        self._bytes = TokenBytes(self._table, frozenset(self._specials.values()))
        self._split = re.compile("(" + "|".join(map(re.escape, specials)) + ")") if specials else None
        self._ids = {piece[0]: i for i, piece in reversed(list(enumerate(self._table[:plain]))) if len(piece) == 1}
        self._plain = plain

    @property
    def lossless(self) -> bool:
        """Whether every text survives encoding."""
        return self._plain >= 256

    @property
    def vocabulary(self) -> int:
        """Ids, special ones included."""
        return len(self._table)

    @property
    def identity(self) -> str:
        """Digest of the table."""
        return hashlib.sha256(repr((self._table, sorted(self._specials))).encode()).hexdigest()[:16]

    @property
    def record_digest(self) -> str:
        """Digest of the table, the special ids as added tokens."""
        tokens = ((piece.decode("latin-1"), i) for i, piece in enumerate(self._table[: self._plain]))
        return record_digest(tokens, (), ((i, text, True) for text, i in self._specials.items()))

    @property
    def token_bytes(self) -> TokenBytes:
        """Bytes of each id, joined as they are."""
        return self._bytes

    @property
    def shown_bytes(self) -> tuple[bytes, ...]:
        """Bytes that each id adds to shown text: what a serial reference searches for stop strings."""
        return tuple(self._bytes.of(i) for i in range(self.vocabulary))

    @property
    def end_id(self) -> int:
        """The last id."""
        return self.vocabulary - 1

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """One id per byte; special tokens in the text become their own ids. There is none to add by itself."""
        ids: list[int] = []
        for part in self._split.split(text) if self._split is not None else [text]:
            if part in self._specials:
                ids.append(self._specials[part])
            else:
                ids += [self._ids.get(b, b % self._plain) for b in part.encode("utf-8", "surrogatepass")]
        return ids

    def token_id(self, token: str) -> int | None:
        """The id of a special token, or of a text that is one ordinary token."""
        if token in self._specials:
            return self._specials[token]
        raw = token.encode("utf-8", "surrogatepass")
        return self._table.index(raw) if raw in self._table[: self._plain] else None

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens included."""
        return b"".join(self._table[i] for i in ids if 0 <= i < len(self._table)).decode("utf-8", "replace")


def _plain_bytes(count: int) -> list[bytes]:
    if count < 256:
        rest = bytes(b for b in range(256) if b not in _ALPHABET)
        return [bytes((b,)) for b in (_ALPHABET + rest)[:count]]
    words = (_PIECES[i] if i < len(_PIECES) else b"w%d" % i for i in range(count - 256))
    return [*(bytes((b,)) for b in range(256)), *words]


class FakeTemplate:
    """Renders each message as its role's token, its text and the end token; tools go in front as JSON.

    It behaves as `traits` say: what they deny is lost, refused or written out as None. A role without a token is
    refused, and so is everything after `close` or while `refusal` holds a sentence. `calls` keeps what was asked.
    """

    def __init__(self, traits: TemplateTraits | None = None, source: str = "chat_template.jinja") -> None:
        self._traits = traits or TemplateTraits()
        self._source = source
        self.refusal: str | None = None
        self.closed = 0
        self.calls: list[Mapping[str, Any]] = []

    @property
    def source(self) -> str:
        """As constructed."""
        return self._source

    @property
    def traits(self) -> TemplateTraits:
        """As constructed."""
        return self._traits

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> RenderedChat:
        """Text of a conversation."""
        self.calls.append({"messages": messages, "tools": tools, "variables": variables})
        refusal = "The chat template was closed." if self.closed else self.refusal
        if refusal is not None:
            raise TemplateError(refusal)
        parts: list[str] = []
        if tools and self._traits.takes_tools:
            parts.append(f"{SYSTEM}{json.dumps(list(tools), sort_keys=True)}{END}")
        parts += [self._turn(messages, at) for at in range(len(messages))]
        if add_generation_prompt:
            parts.append(ASSISTANT)
        return RenderedChat("".join(parts))

    def close(self) -> None:
        """Counted; there is no process to end."""
        self.closed += 1

    def _turn(self, messages: Sequence[Mapping[str, Any]], at: int) -> str:
        message, traits = messages[at], self._traits
        role = str(message.get("role"))
        if role not in ROLES:
            raise TemplateError(f"The chat template knows no role {role!r:.80}.")
        if role == "system" and at > 0 and not traits.late_system:
            return ""
        if role == "user" and at > 0 and messages[at - 1].get("role") == "user" and not traits.user_runs:
            raise TemplateError("The chat template wants user and assistant turns to alternate.")
        content = message.get("content")
        text = "None" if content is None and not traits.null_content else _text(content)
        calls = message.get("tool_calls")
        return f"{ROLES[role]}{text}{json.dumps(calls, sort_keys=True) if calls else ''}{END}"


def _text(content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    raise TemplateError("The chat template renders text alone.")
