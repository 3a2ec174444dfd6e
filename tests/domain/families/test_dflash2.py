"""A drafter's config becomes a plan, or one sentence; it drafts only for a model of its sizes."""

from __future__ import annotations

from typing import Any

import pytest

from tensorfold.domain.families import dflash2, glm5_next, qwen3_5
from tensorfold.domain.families.catalogue import GLM_FLASH, QWEN_27B, drafted_family
from tensorfold.domain.families.fields import ConfigError
from tensorfold.domain.families.ops import Attention

OWN, GLM = qwen3_5.plan(qwen3_5.CONFIG), glm5_next.plan(glm5_next.CONFIG)


def inner(**fields: Any) -> dict[str, Any]:
    return {"dflash_config": dflash2.CONFIG["dflash_config"] | fields}


def test_published_settings_are_read() -> None:
    drafter = dflash2.plan(dflash2.CONFIG, OWN)
    assert (drafter.block, drafter.mask_token, drafter.candidates, drafter.causal) == (8, 248_070, 16, False)
    assert (drafter.conv_taps, drafter.conv_group, drafter.selector_rank, drafter.window) == (2, 16, 256, 2048)
    assert drafter.draft_ids == ((0, 98_304), (248_032, 248_320))
    attention = drafter.layers[0][0].op
    assert isinstance(attention, Attention) and attention.rope is not None
    assert (attention.heads, attention.kv_heads, attention.window, attention.rope.theta) == (32, 8, 2048, 1e7)
    assert dflash2.plan(dflash2.GLM_CONFIG, GLM).draft_ids == ()


def test_a_config_that_says_nothing_of_causality_means_causal_blocks() -> None:
    assert dflash2.plan({k: v for k, v in dflash2.CONFIG.items() if k != "is_causal"}).causal


def test_settings_may_stand_at_the_top() -> None:
    flat = {k: v for k, v in dflash2.CONFIG.items() if k != "dflash_config"} | dflash2.CONFIG["dflash_config"]
    assert dflash2.plan(flat) == dflash2.plan(dflash2.CONFIG)


def test_the_model_it_drafts_for_is_found_by_its_sizes() -> None:
    assert drafted_family(dflash2.CONFIG) is QWEN_27B
    assert drafted_family(dflash2.GLM_CONFIG) is GLM_FLASH
    assert drafted_family(dflash2.CONFIG | {"hidden_size": 4096}) is None
    assert drafted_family(dflash2.CONFIG | {"hidden_size": 0}) is None
    assert drafted_family(qwen3_5.CONFIG) is None


@pytest.mark.parametrize(
    ("changes", "target", "part"),
    [
        (
            {},
            GLM,
            "reads layer 61 of its target (target_layer_ids), which has 45 layers: take the drafter published for",
        ),
        (
            inner(target_layer_ids=[5]),
            GLM,
            "The drafter's hidden_size is 5,120 and the model's 4,096: take the drafter",
        ),
        ({"vocab_size": 248_321}, OWN, "The drafter's vocab_size is 248,321 and the model's 248,320"),
        ({"architectures": ["DFlashDraftModel"]}, None, "architectures name no DFlash2DraftModel"),
        ({"architectures": None}, None, "architectures name no DFlash2DraftModel"),
        (inner(target_layer_ids=[5, 5]), None, "it must be a rising list of the target's layers"),
        (inner(target_layer_ids=[]), None, "it must be a rising list of the target's layers"),
        (inner(target_layer_ids=[64]), None, "target_layer_ids[0] as 64"),
        (inner(tree="wide", depth=2), None, "dflash_config has fields that are not read here: tree, depth; take the"),
        (inner(block_size=1), None, "block_size as 1; it must be an integer from 2 to 64"),
        (inner(mask_token_id=248_320), None, "mask_token_id as 248320"),
        (inner(conv_group_size=17), None, "hidden_size as 5,120; it must be a multiple of conv_group_size (17)"),
        (inner(selector_top_k=0), None, "selector_top_k as 0"),
        (
            {"layer_types": ["full_attention"] * 5},
            None,
            "layer_types[0] as 'full_attention'; it must be one of sliding_",
        ),
        ({"use_sliding_window": False}, None, "use_sliding_window as false; it must be true in this family"),
        ({"rope_parameters": None}, None, "lacks rope_theta"),
        ({"attention_bias": True}, None, "attention_bias as true"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], target: Any, part: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        dflash2.plan(dflash2.CONFIG | changes, target)
    assert part in refusal.value.message
    assert dflash2.refuse(dflash2.CONFIG | changes, target) == refusal.value.message
    assert dflash2.refuse(dflash2.CONFIG, OWN) is None
