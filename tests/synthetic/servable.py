"""A tiny checkpoint with a tokenizer: everything `serve` and `verify` need, loaded in a blink."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.synthetic.llama_checkpoints import TinyLlama
from tests.synthetic.tokenizer_files import VOCABULARY, write_tokenizer

SERVABLE = TinyLlama(seed=11, vocabulary=VOCABULARY, width=64, layers=2, heads=4, kv_heads=2, mlp=96, context=512)


def write_servable(folder: Path, shape: TinyLlama = SERVABLE) -> Path:
    """A folder to serve from; the vocabulary is the tokenizer's whatever `shape` says."""
    replace(shape, vocabulary=VOCABULARY).write(folder)
    write_tokenizer(folder)
    return folder
