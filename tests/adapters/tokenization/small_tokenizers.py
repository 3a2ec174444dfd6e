"""Small tokenizers built here with the library: byte-level BPE, and SentencePiece's spaces with byte fallback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = (
    "the quick brown fox jumps over the lazy dog and the other dog",
    "def area(radius):\n    return 3 * radius ** 2\n",
    "příliš žluťoučký kůň úpěl ďábelské ódy",
    "数学 と 科学 😀 👩‍👩‍👧",
)
TURNS = ("<|start|>", "<|end|>")


def byte_level() -> Tokenizer:
    """Byte-level BPE of some 300 tokens, two special tokens and one added token that is not special."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=list(TURNS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|start|> $A", special_tokens=[("<|start|>", tokenizer.token_to_id("<|start|>"))]
    )
    return tokenizer


def sentencepiece() -> Tokenizer:
    """Merges over `▁` words with a byte for every other character; the text's first space is made up and dropped."""
    pieces = ["▁", "t", "h", "e", "d", "o", "g", "a", "th", "the", "▁the", "do", "dog", "▁dog", "▁▁"]
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("d", "o"), ("do", "g"), ("▁", "dog"), ("▁", "▁")]
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2}
    for piece in [*(f"<0x{byte:02X}>" for byte in range(256)), *pieces]:
        vocabulary[piece] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return tokenizer


def metaspace() -> Tokenizer:
    """The same pieces behind the library's Metaspace parts, with no byte fallback."""
    tokenizer = sentencepiece()
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    return tokenizer


def saved(folder: Path, tokenizer: Tokenizer, **changes: Any) -> Path:
    """`folder` with the tokenizer's file in it; `changes` replace top-level parts of its JSON."""
    file = json.loads(tokenizer.to_str()) | changes
    (folder / "tokenizer.json").write_text(json.dumps(file, ensure_ascii=False), encoding="utf-8")
    return folder
