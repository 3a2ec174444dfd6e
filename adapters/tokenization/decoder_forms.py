"""From a tokenizer file's decoder to bytes: what each token's text stands for, and how tokens join.

Two kinds of decoder can be read a token at a time: byte-level BPE, and SentencePiece's spaces with byte fallback. Any
other is refused by name, because streamed text and stop strings rest on the bytes of single ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensorfold.adapters.tokenization.byte_alphabet import spelled_bytes
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.conversation.token_bytes import JoinRule

_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True, slots=True)
class DecoderForm:
    """How tokens become text: the bytes of one token's text, and the rule that joins them."""

    to_bytes: Callable[[str], bytes]
    rule: JoinRule


def decoder_form(decoder: Mapping[str, Any] | None) -> DecoderForm:
    """The form of a decoder's configuration. Raises RefusedError naming the part that cannot be read."""
    if decoder is None:
        raise RefusedError("tokenizer.json has no decoder, so the bytes of its tokens are unknown; use ByteLevel BPE.")
    steps = list(_flattened(decoder))
    if [step.get("type") for step in steps] == ["ByteLevel"]:
        return DecoderForm(spelled_bytes, "concat")
    return _sentencepiece(steps)


def _flattened(decoder: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    if decoder.get("type") == "Sequence":
        return [step for part in decoder["decoders"] for step in _flattened(part)]
    return [decoder]


def _sentencepiece(steps: Sequence[Mapping[str, Any]]) -> DecoderForm:
    """Spaces written as another character, bytes as `<0xNN>`, one leading space dropped from the whole text."""
    replacements: list[tuple[str, str]] = []
    fallback = fused = False
    rule: JoinRule = "concat"
    for step in steps:
        match step:
            case {"type": "Metaspace", "replacement": str(mark), "prepend_scheme": scheme} if not (fused or fallback):
                replacements.append((mark, " "))
                rule = "concat" if scheme == "never" else "strip_first_space"
            case {"type": "Replace", "pattern": {"String": str(mark)}, "content": str(text)} if not (fused or fallback):
                replacements.append((mark, text))
            case {"type": "ByteFallback"} if not fused:
                fallback = True
            case {"type": "Fuse"}:
                fused = True
            case {"type": "Strip", "content": " ", "start": 1, "stop": 0} if fused and rule == "concat":
                rule = "strip_first_space"
            case _:
                raise RefusedError(_unreadable(step))
    if not replacements and not fallback:
        raise RefusedError(_unreadable(steps[-1] if steps else {"type": "an empty Sequence"}))
    return DecoderForm(_Pieces(tuple(replacements), fallback), rule)


def _unreadable(step: Mapping[str, Any]) -> str:
    return (
        f"tokenizer.json decodes with {step.get('type')}, whose tokens have no bytes of their own here; "
        "ByteLevel and SentencePiece decoders are served."
    )


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Bytes of a SentencePiece token."""

    replacements: tuple[tuple[str, str], ...]
    fallback: bool

    def __call__(self, token: str) -> bytes:
        for mark, text in self.replacements:
            token = token.replace(mark, text)
        if self.fallback and (byte := _BYTE.fullmatch(token)):
            return bytes.fromhex(byte[1])
        return token.encode("utf-8", "replace")
