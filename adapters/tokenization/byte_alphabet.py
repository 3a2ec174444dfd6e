"""The alphabet in which byte-level tokenizers spell bytes: every byte is one printable character.

Printable bytes of Latin-1 stand for themselves; the other 68, in ascending order, are U+0100 onwards. Source: the
byte-to-character table of the GPT-2 tokenizer, which every byte-level BPE file since has kept.
"""

from __future__ import annotations

_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = tuple(byte for byte in range(0x100) if byte not in _PRINTABLE)

CHARACTERS: dict[int, str] = {byte: chr(byte) for byte in _PRINTABLE} | {
    byte: chr(0x100 + index) for index, byte in enumerate(_OTHERS)
}
"""Byte to character."""

# For str.translate: a character of the alphabet to its byte's code point, and the Latin-1 characters outside it to one
# that Latin-1 cannot encode, so that a foreign character always shows.
_TO_BYTE: dict[int, int] = dict.fromkeys(_OTHERS, 0xFFFF) | {ord(char): byte for byte, char in CHARACTERS.items()}


def spelled_bytes(token: str) -> bytes:
    """The bytes a token spells; its own UTF-8 when it holds a character outside the alphabet, as decoders do."""
    try:
        return token.translate(_TO_BYTE).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode("utf-8", "replace")
