"""A tiny byte-level tokenizer and chat template, so that the whole server can run on a seeded checkpoint.

Ids: 0 to 2 are `<|endoftext|>`, `<|im_start|>` and `<|im_end|>`, 3 to 258 the bytes, then a few merges. Any text
encodes; `VOCABULARY` ids in all.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = (("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"), ("a", "n"), ("e", "r"), ("Ġ", "a"), ("o", "n"))
VOCABULARY = len(SPECIALS) + 256 + len(MERGES)
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_characters() -> list[str]:
    """The printable character that stands for each byte in byte-level vocabularies."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spare = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]


def tokenizer_json() -> dict[str, Any]:
    """tokenizer.json."""
    words = [*SPECIALS, *byte_characters(), *(a + b for a, b in MERGES)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    marks = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": word, **marks} for i, word in enumerate(SPECIALS)],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {word: i for i, word in enumerate(words)},
            "merges": [list(pair) for pair in MERGES],
        },
    }


def tokenizer_config() -> dict[str, Any]:
    """tokenizer_config.json, the template inside."""
    return {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "chat_template": TEMPLATE,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "added_tokens_decoder": {str(i): {"content": word, "special": True} for i, word in enumerate(SPECIALS)},
    }


def write_tokenizer(folder: Path) -> None:
    """Put both files into a checkpoint folder."""
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(), ensure_ascii=False), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config()), encoding="utf-8")
