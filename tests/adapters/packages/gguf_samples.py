"""GGUF files written by the tests: a literal writer, block encoders, and a tiny Llama with a byte-level vocabulary.

Decoders here work value by value in plain Python, so that they share nothing with what they check.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

CODES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 8, "BF16": 30}
BLOCK = {"F32": (1, 4), "F16": (1, 2), "BF16": (1, 2), "Q4_0": (32, 18), "Q4_1": (32, 20), "Q8_0": (32, 34)}
QUANTIZED = ("Q4_0", "Q4_1", "Q8_0")


def string(text: str | bytes) -> bytes:
    """A GGUF string."""
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def value(item: Any) -> bytes:
    """A metadata value with its type in front: bool, int (u32), float (f32), text, or a list of one of them."""
    if isinstance(item, bool):
        return struct.pack("<I?", 7, item)
    if isinstance(item, int):
        return struct.pack("<II", 4, item)
    if isinstance(item, float):
        return struct.pack("<If", 6, item)
    if isinstance(item, str):
        return struct.pack("<I", 8) + string(item)
    if not item:
        return struct.pack("<IIQ", 9, 4, 0)
    kind = value(item[0])[:4]
    return struct.pack("<I", 9) + kind + struct.pack("<Q", len(item)) + b"".join(value(part)[4:] for part in item)


@dataclass
class Sample:
    """A tensor to write: its type, shape (outputs first) and bytes."""

    kind: str
    shape: tuple[int, ...]
    data: bytes


def gguf(metadata: Mapping[str, Any], tensors: Mapping[str, Sample], version: int = 3, alignment: int = 32) -> bytes:
    """A whole file."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    head += b"".join(string(key) + value(item) for key, item in metadata.items())
    body = b""
    for name, tensor in tensors.items():
        body += b"\0" * (-len(body) % alignment)
        dims = tuple(reversed(tensor.shape))
        head += string(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        head += struct.pack("<IQ", CODES.get(tensor.kind, 99), len(body))
        body += tensor.data
    return head + b"\0" * (-len(head) % alignment) + body


def random_rows(kind: str, rows: int, width: int, rng: random.Random) -> bytes:
    """Bytes of rows whose values are small; blocks hold every code pattern."""
    if kind not in QUANTIZED:
        values = np.array([rng.uniform(-2, 2) for _ in range(rows * width)], np.float32)
        if kind == "F32":
            return values.tobytes()
        if kind == "F16":
            return values.astype(np.float16).tobytes()
        return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    blocks = []
    for _ in range(rows * width // 32):
        scales = [rng.uniform(-0.2, 0.2)] + ([rng.uniform(-1, 1)] if kind == "Q4_1" else [])
        blocks.append(struct.pack(f"<{len(scales)}e", *scales) + rng.randbytes(32 if kind == "Q8_0" else 16))
    return b"".join(blocks)


def decoded(kind: str, data: bytes) -> list[float]:
    """The values of `data`, one after the other, each rounded to float32 as the format's arithmetic does."""
    if kind == "F32":
        return list(struct.unpack(f"<{len(data) // 4}f", data))
    if kind == "F16":
        return list(struct.unpack(f"<{len(data) // 2}e", data))
    if kind == "BF16":
        return list(
            struct.unpack(f"<{len(data) // 2}f", b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2)))
        )
    values: list[float] = []
    size = BLOCK[kind][1]
    for start in range(0, len(data), size):
        values += _decoded_block(kind, data[start : start + size])
    return values


def _decoded_block(kind: str, block: bytes) -> list[float]:
    scale = np.float32(struct.unpack("<e", block[:2])[0])
    if kind == "Q8_0":
        return [float(scale * np.float32(code)) for code in struct.unpack("<32b", block[2:])]
    least = np.float32(struct.unpack("<e", block[2:4])[0]) if kind == "Q4_1" else np.float32(-8) * scale
    nibbles = block[4:] if kind == "Q4_1" else block[2:]
    codes = [byte % 16 for byte in nibbles] + [byte // 16 for byte in nibbles]
    return [float(scale * np.float32(code) + least) for code in codes]


def alphabet() -> dict[int, str]:
    """The byte alphabet: printable bytes stand for themselves, the others for characters from 256 on."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in kept]
    return {byte: chr(byte) for byte in kept} | {byte: chr(256 + place) for place, byte in enumerate(others)}


SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("h e", "l l", "he ll", "Ġ w", "Ġw o", "1 2", "Ã ©", "' s", "Ġ Ġ")


def tokens() -> list[str]:
    """A vocabulary: three control tokens, the byte alphabet, the merges' results."""
    return [*SPECIAL, *alphabet().values(), *(merge.replace(" ", "") for merge in MERGES)]


@dataclass
class Llama:
    """A tiny Llama; every field may be changed before `build`."""

    kind: str = "Q4_1"
    embedding_kind: str = "Q8_0"
    norm_kind: str = "F32"
    layers: int = 2
    width: int = 64
    inner: int = 96
    heads: int = 4
    kv_heads: int = 2
    own_head: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    seed: int = 1
    version: int = 3
    vocabulary: Sequence[str] = field(default_factory=tokens)
    changes: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Sample] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()

    def metadata(self) -> dict[str, Any]:
        """Metadata; a change to None drops the key."""
        made: dict[str, Any] = {
            "general.architecture": "llama",
            "llama.block_count": self.layers,
            "llama.context_length": 128,
            "llama.embedding_length": self.width,
            "llama.feed_forward_length": self.inner,
            "llama.attention.head_count": self.heads,
            "llama.attention.head_count_kv": self.kv_heads,
            "llama.rope.freq_base": 100000.0,
            "llama.rope.dimension_count": self.width // self.heads,
            "llama.attention.layer_norm_rms_epsilon": 1e-5,
            "llama.vocab_size": len(self.vocabulary),
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "smollm",
            "tokenizer.ggml.tokens": list(self.vocabulary),
            "tokenizer.ggml.token_type": [3 if token in SPECIAL else 1 for token in self.vocabulary],
            "tokenizer.ggml.merges": list(MERGES),
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.padding_token_id": 2,
            "tokenizer.chat_template": "{{ messages }}",
        }
        made.update(self.changes)
        return {key: item for key, item in made.items() if item is not None}

    def tensors(self) -> dict[str, Sample]:
        """Every tensor, with seeded values."""
        rng = random.Random(self.seed)
        made: dict[str, Sample] = {}

        def add(name: str, kind: str, *shape: int) -> None:
            rows = shape[0] if len(shape) > 1 else 1
            made[name] = Sample(kind, shape, random_rows(kind, rows, shape[-1], rng))

        add("token_embd.weight", self.embedding_kind, len(self.vocabulary), self.width)
        add("output_norm.weight", self.norm_kind, self.width)
        if self.own_head:
            add("output.weight", self.kind, len(self.vocabulary), self.width)
        keys = self.width // self.heads * self.kv_heads
        for layer in range(self.layers):
            at = f"blk.{layer}."
            for norm in ("attn_norm", "ffn_norm"):
                add(f"{at}{norm}.weight", self.norm_kind, self.width)
            for stem, rows in (("attn_q", self.width), ("attn_k", keys), ("attn_v", keys), ("attn_output", self.width)):
                add(f"{at}{stem}.weight", self.kind, rows, self.width)
                if self.attention_bias:
                    add(f"{at}{stem}.bias", "F32", rows)
            for stem, rows, width in (
                ("ffn_gate", self.inner, self.width),
                ("ffn_up", self.inner, self.width),
                ("ffn_down", self.width, self.inner),
            ):
                add(f"{at}{stem}.weight", self.kind, rows, width)
                if self.mlp_bias:
                    add(f"{at}{stem}.bias", "F32", rows)
        made.update(self.extra)
        return {name: tensor for name, tensor in made.items() if name not in self.dropped}

    def build(self) -> bytes:
        """The file."""
        return gguf(self.metadata(), self.tensors(), self.version)
