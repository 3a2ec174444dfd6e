"""Text to ids for the traces: the demo's tokenizer where its checkpoint lies in the cache, else words of the text.

Nothing is downloaded or written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass

from tensorfold.entrypoints.container import Container
from tensorfold.entrypoints.settings import cache_folder

END = "<|im_end|>"
_WORDS = re.compile(r"<\|\w+\|>| ?\w+|\n\s*| +|[^\w\s]")
_WORD_IDS = 1 << 17


@dataclass(frozen=True, slots=True)
class Speech:
    """`encode` makes ids below `vocabulary`; `end` closes a turn; `about` names the tokenizer in the output."""

    encode: Callable[[str], list[int]]
    vocabulary: int
    end: int
    about: str

    def turn(self, role: str, text: str) -> list[int]:
        """One whole message of a conversation."""
        return self.encode(f"<|im_start|>{role}\n{text}{END}\n")

    def opening(self) -> list[int]:
        """What a prompt ends with, so that a reply follows."""
        return self.encode("<|im_start|>assistant\n")

    def reply(self, text: str) -> tuple[int, ...]:
        """A reply with the id that ends it."""
        return (*self.encode(text), self.end)


def demo_speech() -> Speech | None:
    """The demo's tokenizer; None when no checkpoint of the demo has been made on this machine."""
    cache = cache_folder(os.environ)
    ready = sorted((cache / "demo").glob("*/tokenizer.json")) if (cache / "demo").is_dir() else []
    if not ready:
        return None
    tokenizer = Container(cache=cache).tokenizer(ready[0].parent)
    return Speech(tokenizer.encode, tokenizer.vocabulary, tokenizer.encode(END)[0], "the demo's tokenizer")


def word_speech() -> Speech:
    """Words, runs of white space and single signs, numbered as they are first seen."""
    known: dict[str, int] = {END: 0}

    def encode(text: str) -> list[int]:
        ids = [known.setdefault(word, len(known)) for word in _WORDS.findall(text)]
        if len(known) > _WORD_IDS:
            raise RuntimeError(f"the text holds over {_WORD_IDS} different words")
        return ids

    return Speech(encode, _WORD_IDS, known[END], "words of the text itself, as no checkpoint of the demo is here")


def best_speech() -> Speech:
    """The demo's tokenizer where there is one."""
    return demo_speech() or word_speech()
