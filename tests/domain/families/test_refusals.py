"""Every limit of the listed families is a refusal with the sentence a user reads, made from config.json alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tensorfold.domain.families import catalogue, dflash2, gemma4, glm5_next, nemotron_h, qwen3_5, qwen4_exp
from tensorfold.domain.families.catalogue import FAMILIES, Family, find, plan_for, refusal_of
from tensorfold.domain.families.device_limits import (
    apple_generation,
    memory_share,
    most_rows,
    refuse_ranks,
    refuse_rows,
)
from tensorfold.domain.families.fields import ConfigError
from tensorfold.domain.families.missing_heads import missing_head
from tensorfold.domain.families.storage import Layout
from tests.domain.families.sheet_facts import FOUR_32, FOUR_64, gemma_block, multimodal
from tests.fakes.families import family_to_come

EIGHT_64 = {"bits": 8, "group_size": 64}
EXL3 = {"quant_method": "exl3", "bits": 4.0, "head_bits": 6}
NEMOTRON, QWEN = "Vontra/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-MLX-4bit", "Vontra/Qwen3.8-27B-MLX-4bit"
FLASH, GLM = "Vontra/Qwen3.8-Flash-Next-MLX-4bit-MTP", "Vontra/GLM-5.3-Flash-MLX-4bit-MTP"
GEMMA = "mlx-community/gemma-4-26b-a4b-it-4bit"


def stored(module: Any, block: dict[str, Any] | None, method: dict[str, Any] | None = None) -> dict[str, Any]:
    extra = {"quantization": block} if block else {"quantization_config": method} if method else {}
    return multimodal(module.CONFIG, **extra)


GEMMA_READS = "Gemma 4 26B-A4B is read by MLX in 4 bits in groups of 32 or 64 with a router in 8 bits"
GLM_MLX = "GLM-5.3-Flash is read by MLX in 4, 5, 6 or 8 bits in groups of 32, 64 or 128"
GLM_CUDA = "GLM-5.3-Flash is read by CUDA in 4 bits in groups of 64"
PLAIN_ROUTER = {"language_model.model.layers.3.router.proj": False}
REFUSED: tuple[tuple[Any, str, dict[str, Any] | None, str, str], ...] = (
    (
        *(nemotron_h, "mlx", FOUR_32, "Nemotron 3.5 Lightning is read by MLX in 4 bits in groups of 64"),
        f"states 4 bits in groups of 32 for backbone.embeddings: use {NEMOTRON}.",
    ),
    (
        *(nemotron_h, "cuda", EIGHT_64, "Nemotron 3.5 Lightning is read by CUDA in 4 bits in groups of 64"),
        f"states 8 bits in groups of 64 for backbone.embeddings: use {NEMOTRON}.",
    ),
    (
        *(nemotron_h, "mlx", None, "Nemotron 3.5 Lightning is read by MLX in 4 bits in groups of 64"),
        f"states no quantization: use {NEMOTRON}.",
    ),
    (
        *(qwen4_exp, "mlx", FOUR_64, "Qwen3.8 Flash Next is read by MLX in 4 bits in groups of 32"),
        f"states 4 bits in groups of 64 for embed_tokens: use {FLASH}.",
    ),
    (
        *(qwen4_exp, "cuda", FOUR_32 | {"lm_head": {"bits": 8, "group_size": 32}}),
        *("Qwen3.8 Flash Next is read by CUDA in 4 bits in groups of 32",),
        f"states 8 bits in groups of 32 for lm_head: use {FLASH}.",
    ),
    (
        *(glm5_next, "mlx", {"bits": 3, "group_size": 64}, GLM_MLX),
        f"states 3 bits in groups of 64 for embed_tokens: use {GLM}.",
    ),
    (
        *(glm5_next, "cuda", FOUR_64 | {"lm_head": {"bits": 6, "group_size": 64}}, GLM_CUDA),
        f"states 6 bits in groups of 64 for lm_head: use {GLM}.",
    ),
    (
        *(gemma4, "mlx", FOUR_64, GEMMA_READS),
        f"states 4 bits in groups of 64 for layers.0.router.proj: use {GEMMA}.",
    ),
    (
        *(gemma4, "mlx", gemma_block(bits=6), GEMMA_READS),
        f"states 6 bits in groups of 64 for embed_tokens: use {GEMMA}.",
    ),
    (
        *(gemma4, "mlx", gemma_block(group_size=128), GEMMA_READS),
        f"states 4 bits in groups of 128 for embed_tokens: use {GEMMA}.",
    ),
    (
        *(gemma4, "mlx", gemma_block() | PLAIN_ROUTER, GEMMA_READS),
        f"states plain values for layers.3.router.proj: use {GEMMA}.",
    ),
    (gemma4, "mlx", None, GEMMA_READS, f"states no quantization: use {GEMMA}."),
    (
        *(qwen3_5, "cuda", EIGHT_64, "Qwen3.8-27B is read by CUDA in 4 bits in groups of 64"),
        f"states 8 bits in groups of 64 for embed_tokens: use {QWEN}.",
    ),
)


@pytest.mark.parametrize(("module", "backend", "block", "reads", "states"), REFUSED)
def test_another_layout_is_refused_with_the_checkpoint_to_take(
    module: Any, backend: str, block: dict[str, Any] | None, reads: str, states: str
) -> None:
    assert module.refuse(stored(module, block), backend) == f"{reads}, but config.json {states}"


def test_a_backend_that_a_family_is_not_meant_for_is_refused() -> None:
    says = "Gemma 4 26B-A4B is served by MLX alone, not by cuda: start with `--backend mlx`."
    assert gemma4.refuse(stored(gemma4, gemma_block()), "cuda") == says


TAKEN: tuple[tuple[Any, str, dict[str, Any] | None], ...] = (
    (nemotron_h, "mlx", FOUR_64),
    (nemotron_h, "cuda", FOUR_64 | {"backbone.layers.1.mixer.gate": False}),
    (qwen4_exp, "mlx", FOUR_32),
    (qwen4_exp, "cuda", FOUR_32),
    (glm5_next, "mlx", FOUR_64),
    (glm5_next, "cuda", FOUR_64),
    (glm5_next, "mlx", FOUR_64 | {f"language_model.model.layers.{n}.self_attn.o_proj": {"bits": b, "group_size": 64}
                                  for n, b in enumerate((5, 6, 8))}),
    (gemma4, "mlx", gemma_block()),
    (gemma4, "mlx", gemma_block(group_size=32)),
    (qwen3_5, "mlx", None),
    *((qwen3_5, "mlx", {"bits": bits, "group_size": 64}) for bits in (2, 3, 4, 5, 6, 8)),
    (qwen3_5, "cuda", FOUR_64 | {"vision_tower.blocks.0.attn.qkv": {"bits": 8, "group_size": 64}}),
)  # fmt: skip


@pytest.mark.parametrize(("module", "backend", "block"), TAKEN)
@pytest.mark.slow
def test_published_layouts_are_taken(module: Any, backend: str, block: dict[str, Any] | None) -> None:
    assert module.refuse(stored(module, block), backend) is None


@pytest.mark.parametrize(
    ("module", "checkpoint"), [(qwen3_5, QWEN), (qwen4_exp, FLASH), (glm5_next, GLM), (nemotron_h, NEMOTRON)]
)
@pytest.mark.parametrize("place", ["root", "text"])
def test_exl3_is_refused_by_its_name_on_every_backend(module: Any, checkpoint: str, place: str) -> None:
    nested = multimodal(module.CONFIG | {"quantization_config": EXL3})
    config = stored(module, None, EXL3) if place == "root" else nested
    title = module.FORMATS.title
    for backend in ("mlx", "cuda"):
        says = f"{title} in EXL3 is experimental and not served by this version: use {checkpoint}."
        assert module.refuse(config, backend) == says


def test_other_methods_are_refused_by_their_name() -> None:
    config = stored(gemma4, None, {"quant_method": "gptq", "bits": 4})
    says = f"config.json's quantization_config has quant_method 'gptq', which is not read here: use {GEMMA}."
    assert gemma4.refuse(config, "mlx") == says


def test_a_family_is_served_from_the_day_its_line_names_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    config = stored(qwen3_5, FOUR_64)
    later = family_to_come(monkeypatch, catalogue.QWEN_27B)
    refused = str(refusal_of(config, "mlx"))
    assert refused.startswith("Qwen3.8-27B is not served by this version, which serves: llama, mistral, ")
    assert "qwen3_5" not in refused and "gemma4" in refused
    mlx = replace(later, served_on=("mlx",))
    monkeypatch.setattr(catalogue, "FAMILIES", tuple(mlx if f is later else f for f in catalogue.FAMILIES))
    assert plan_for(config, "mlx").family == "qwen3_5"
    assert refusal_of(config, "cuda") == (
        "Qwen3.8-27B is not served on CUDA by this version: start with `--backend mlx`."
    )
    with pytest.raises(ConfigError, match="is read by CUDA in 4 bits"):
        plan_for(stored(qwen3_5, EIGHT_64), "cuda")


def test_a_drafter_is_not_served_alone() -> None:
    says = (
        "config.json is that of Qwen3.8-27B's drafter, which serves nothing alone: serve the model it drafts for with"
    )
    assert str(refusal_of(dflash2.CONFIG, "mlx")).startswith(says)
    stranger = dflash2.CONFIG | {"vocab_size": 250_000}
    assert "is that of a drafter of no model listed here" in str(refusal_of(stranger, "mlx"))


def title_of(module: Any) -> Family:
    family = find(module.CONFIG["model_type"])
    assert family is not None
    return family


def test_a_missing_head_is_said_with_the_command_that_brings_it() -> None:
    def said(module: Any, backend: Any, head: bool = False, drafter: bool = False) -> tuple[str, bool] | None:
        found = missing_head(title_of(module), backend, has_head=head, has_drafter=drafter)
        return None if found is None else (found.text, found.refuses)

    brings = f"This Qwen3.8 Flash Next checkpoint has no MTP head; `tensorfold pull {FLASH}` brings one that has"
    assert said(qwen4_exp, "mlx") == (f"{brings}.", False)
    assert said(qwen4_exp, "cuda") == (f"{brings}, or start with `--no-drafts`.", True)
    pulls = "Qwen3.8-27B's drafter is not used; `tensorfold pull z-lab/Qwen3.8-27B-DFlash2` brings it"
    assert said(qwen3_5, "mlx") == (f"{pulls}.", False)
    assert said(qwen3_5, "cuda") == (f"{pulls}, or start with `--no-drafts`.", True)
    assert said(qwen3_5, "cuda", drafter=True) is None
    assert said(nemotron_h, "cuda", head=True) is None and said(nemotron_h, "cuda") is not None
    # GLM's drafter is optional everywhere, so with a head nothing lacks.
    assert said(glm5_next, "cuda", head=True) is None
    assert said(gemma4, "mlx") is None


def test_windows_on_older_macs_have_at_most_sixteen_rows() -> None:
    plan = qwen3_5.plan(qwen3_5.CONFIG)
    assert [most_rows(plan, generation) for generation in range(7)] == [128, 16, 16, 16, 16, 128, 128]
    narrow = gemma4.plan(gemma4.CONFIG)
    assert [most_rows(narrow, generation) for generation in (0, 2, 5)] == [16, 16, 16]


def test_other_layouts_on_older_macs_need_the_load_checks_proof() -> None:
    says = (
        "Qwen3.8-27B stored as 6 bits in groups of 64 does not keep its rows' bits on an M3: take a conversion of 4 "
        "bits in groups of 64, or start with `--no-drafts`."
    )
    assert refuse_rows("Qwen3.8-27B", Layout(6, 64), 3, proven=False) == says
    assert "stored as plain values" in str(refuse_rows("Qwen3.8-27B", None, 1, proven=False))
    assert refuse_rows("Qwen3.8-27B", Layout(4, 64), 4, proven=False) is None
    assert refuse_rows("Qwen3.8-27B", Layout(6, 64), 3, proven=True) is None
    assert refuse_rows("Qwen3.8-27B", Layout(6, 64), 5, proven=False) is None


@pytest.mark.parametrize(
    ("device", "generation"),
    [
        ("gpu Apple M1", 1),
        ("gpu Apple M2 Ultra", 2),
        ("gpu Apple M3 Max", 3),
        ("gpu Apple M4 Pro", 4),
        ("gpu Apple M5", 5),
        ("gpu Apple M10 Max", 10),
        ("cpu Apple M3 Max, 16 threads", 0),
        ("cpu x86_64, 2 threads", 0),
        ("gpu Apple Paravirtual device", 0),
        ("gpu Apple A17 Pro GPU", 0),
        ("gpu Apple M3 Something", 0),
        ("gpu Apple M0", 0),
        ("gpu AMD Radeon Pro 5500M", 0),
        ("gpu NVIDIA M40", 0),
        ("", 0),
    ],
)
def test_only_an_apple_gpu_whose_name_is_known_has_a_generation(device: str, generation: int) -> None:
    assert apple_generation(device) == generation


def test_glm_takes_85_percent_of_a_mac_up_to_256_gb() -> None:
    rule = glm5_next.plan(glm5_next.CONFIG).memory
    assert [memory_share(rule, gib << 30) for gib in (192, 256, 257, 512)] == [0.85, 0.85, 0.7, 0.7]
    assert memory_share(qwen3_5.plan(qwen3_5.CONFIG).memory, 64 << 30) == 0.7


def test_only_glm_needs_two_ranks() -> None:
    assert refuse_ranks(title_of(glm5_next), 1) == (
        "GLM-5.3-Flash on CUDA needs 2 ranks and 1 were asked for: start with `--tp 2` on each of two machines."
    )
    assert refuse_ranks(title_of(glm5_next), 2) is None
    assert [refuse_ranks(title_of(m), ranks) for m in (qwen3_5, qwen4_exp, nemotron_h) for ranks in (1, 2)] == [
        None
    ] * 6
    assert str(refuse_ranks(title_of(qwen3_5), 3)).endswith(
        "needs 1 or 2 ranks and 3 were asked for: start with `--tp 1`."
    )


def test_default_windows_of_cuda_are_those_documented() -> None:
    assert {f.title: f.cuda_context for f in FAMILIES if f.cuda_context} == {
        "Nemotron 3.5 Lightning": 16_384,
        "GLM-5.3-Flash": 2_051,
    }


def test_chunks_of_prompts_are_the_familys() -> None:
    assert qwen4_exp.plan(qwen4_exp.CONFIG).prefill_chunks == (8192, 4096, 2048)
    others = (qwen3_5, nemotron_h, glm5_next, gemma4)
    assert {module.plan(module.CONFIG).prefill_chunks for module in others} == {(2048,)}
