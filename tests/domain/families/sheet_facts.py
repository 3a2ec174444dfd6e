"""What `info` must say of each published config: figures as the families' own documents give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tensorfold.domain.families import gemma4, glm5_next, nemotron_h, qwen3_5, qwen4_exp

FOUR_64 = {"bits": 4, "group_size": 64}
FOUR_32 = {"bits": 4, "group_size": 32}


@dataclass(frozen=True, slots=True)
class SheetFacts:
    """A published config with its quantization, and lines of `info` that follow from it."""

    config: Mapping[str, Any]
    lines: tuple[str, ...]


def multimodal(text: Mapping[str, Any], **root: Any) -> dict[str, Any]:
    """A config whose text part is nested, as multimodal checkpoints write it."""
    return {"model_type": str(text["model_type"]).removesuffix("_text"), "text_config": dict(text), **root}


def gemma_block(layers: int = 30, **default: Any) -> dict[str, Any]:
    """The published block: 4 bits, and 8 for every router."""
    paths = (f"language_model.model.layers.{layer}.router.proj" for layer in range(layers))
    return {**FOUR_64, **default, **{path: {"bits": 8, "group_size": 64} for path in paths}}


FACTS = (
    SheetFacts(
        multimodal(qwen3_5.CONFIG, quantization=FOUR_64, vision_config={"depth": 27}),
        (
            "  model type    qwen3_5",
            "  family        Qwen3.8-27B",
            "  layers        64: 48 gated delta net, 64 gated MLP, 16 attention",
            "  hidden size   5,120",
            "  vocabulary    248,320",
            "  window        262,144 tokens",
            "  parameters    26.90 B, 0.42 B of draft head",
            "  quantization  affine, 4-bit in groups of 64",
        ),
    ),
    SheetFacts(
        multimodal(qwen4_exp.CONFIG, quantization=FOUR_32),
        (
            "  family        Qwen3.8 Flash Next",
            "  layers        48: 36 gated delta net, 48 experts, 1 n-gram table, 12 indexed attention",
            "  experts       512",
            "  parameters    125.74 B and 51.20 B of n-gram table, 2.61 B of draft head",
        ),
    ),
    SheetFacts(
        nemotron_h.CONFIG | {"quantization": FOUR_64},
        (
            "  family        Nemotron 3.5 Lightning",
            "  layers        52: 23 Mamba-2, 23 experts, 6 attention",
            "  experts       128",
            "  parameters    31.58 B, 1.34 B of draft head",
            "  side files    mtp-4bit.safetensors",
        ),
    ),
    SheetFacts(
        multimodal(glm5_next.CONFIG, quantization=FOUR_64),
        (
            "  family        GLM-5.3-Flash",
            "  layers        45: 34 Kimi delta attention, 3 gated MLP, 11 latent attention, 42 experts",
            "  experts       288",
            "  window        1,048,576 tokens",
            "  parameters    313.33 B, 7.43 B of draft head",
        ),
    ),
    SheetFacts(
        multimodal(gemma4.CONFIG, quantization=gemma_block()),
        (
            "  family        Gemma 4 26B-A4B",
            "  layers        30: 25 sliding attention, 30 gated MLP, 30 experts, 5 attention",
            "  parameters    25.23 B",
            "  state         20,480 bytes a token and 204,800 bytes for each of the last 1,024 tokens",
        ),
    ),
)
