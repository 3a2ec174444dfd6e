"""The listed families, and the way from a config to a plan or a refusal."""

from __future__ import annotations

from typing import Any

import pytest

from tensorfold.domain.families import catalogue, gemma4
from tensorfold.domain.families.catalogue import FAMILIES, find, find_checkpoint, plan_for, published_plan
from tensorfold.domain.families.fields import ConfigError
from tests.domain.families.configs import llama_config
from tests.fakes.families import family_to_come


def refusal(config: dict[str, Any], backend: str = "mlx") -> str:
    with pytest.raises(ConfigError) as caught:
        plan_for(config, backend)
    return caught.value.message


def test_every_published_checkpoint_is_listed_with_its_branches() -> None:
    listed = {c.name: (c.backends, c.branches) for family in FAMILIES for c in family.checkpoints}
    both = (("mlx", "cuda"), ())
    assert listed == {
        "demo": both,
        "demo@4bit": (("mlx",), ()),
        "Vontra/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-MLX-4bit": both,
        "Vontra/Qwen3.8-27B-MLX-4bit": both,
        "turboderp/Qwen3.8-27B-exl3": (("cuda",), ("3.00bpw", "4.00bpw")),
        "Vontra/Qwen3.8-Flash-Next-MLX-4bit-MTP": both,
        "turboderp/Qwen3.8-Flash-Next-exl3": (("cuda",), ("3.05bpw_h5_ng5",)),
        "Vontra/GLM-5.3-Flash-MLX-4bit-MTP": both,
        "Mia-AiLab/GLM-5.3-Flash-EXL3-TR3-4bpw": (("cuda",), ()),
        "mlx-community/gemma-4-26b-a4b-it-4bit": (("mlx",), ()),
    }


def test_every_listed_family_is_served_by_mlx_and_three_by_cuda() -> None:
    assert {family.title: family.served_on for family in FAMILIES} == {
        "Llama": ("mlx", "cuda"),
        "Nemotron 3.5 Lightning": ("mlx", "cuda"),
        "Qwen3.8-27B": ("mlx", "cuda"),
        "Qwen3.8 Flash Next": ("mlx",),
        "GLM-5.3-Flash": ("mlx",),
        "Gemma 4 26B-A4B": ("mlx",),
    }


def test_a_listed_checkpoint_is_found_by_its_name_alone() -> None:
    found = find_checkpoint("demo@4bit")
    assert found is not None
    assert found[0] is catalogue.LLAMA
    assert found[1].license.name == "Apache-2.0"
    assert found[1].source == "package"
    assert find_checkpoint("demo@8bit") is None


def test_drafters_state_their_terms_and_where_they_may_be_left_out() -> None:
    drafters = {d.repo: d for family in FAMILIES for d in family.drafters}
    assert drafters["z-lab/Qwen3.8-27B-DFlash2"].optional_on == ("mlx",)
    assert "commercially" in drafters["incoai/GLM-5.3-Flash-DFlash2"].license.special


def test_plans_state_the_terms_of_their_listed_checkpoint() -> None:
    for family in FAMILIES:
        plan = published_plan(family)
        if plan is not None:
            assert plan.license == family.checkpoints[0].license


def test_every_model_type_belongs_to_one_family() -> None:
    types = [name for family in FAMILIES for name in family.model_types]
    assert len(types) == len(set(types))
    assert all(find(name) is not None for name in types)
    assert all(find(name) is None for name in ("gpt2", "", None, 7, ["llama"], {"llama": 1}))


def test_a_served_config_becomes_a_plan() -> None:
    plan = plan_for(llama_config(), "mlx")
    assert plan.family == "llama"
    assert len(plan.layers) == 3


def test_a_backend_or_field_that_does_not_do_is_refused_by_the_family() -> None:
    assert "start with `--backend mlx`" in refusal(gemma4.CONFIG, "cuda")
    assert "vocab_size as -1" in refusal(llama_config(vocab_size=-1))


def test_a_listed_family_that_no_backend_serves_is_refused_by_its_title(monkeypatch: pytest.MonkeyPatch) -> None:
    family_to_come(monkeypatch, catalogue.GEMMA_26B)
    assert refusal({"model_type": "gemma4"}) == (
        "Gemma 4 26B-A4B is not served by this version, which serves: llama, mistral, qwen2, nemotron_h, qwen3_5, "
        "qwen3_5_text, qwen4_exp, qwen4_exp_text, qwen3_8_flash_next, glm5_next, glm5_next_text."
    )


@pytest.mark.parametrize("model_type", ["gpt2", 7, ["llama"], True, "x" * 500, "a\nb"])
def test_an_unknown_model_type_is_refused_with_the_command_that_lists(model_type: Any) -> None:
    message = refusal({"model_type": model_type})
    assert "which is no family known here; this version serves: llama" in message
    assert message.isprintable()
    assert len(message) < 340


def test_a_missing_model_type_is_said_to_be_missing() -> None:
    assert refusal({}).startswith("config.json lacks model_type")
