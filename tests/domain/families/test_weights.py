"""What each op needs: shapes, biases, splits, for the variants that no published plan of these tests has."""

from __future__ import annotations

from typing import Any

import pytest

from tensorfold.domain.families.ops import (
    Attention,
    FeedForward,
    HashedNgram,
    KimiDelta,
    LatentAttention,
    Mamba2,
    MixtureOfExperts,
    Norm,
    Router,
    ShortConv,
    SwiGLU,
)
from tensorfold.domain.families.plan_weights import drafter_weights, plan_weights
from tensorfold.domain.families.plans import (
    DecoderPlan,
    DFlashDrafter,
    Embedding,
    Head,
    Readout,
    Sublayer,
    Tap,
)
from tensorfold.domain.families.state import op_state
from tensorfold.domain.families.tensors import TensorMap, Weight
from tensorfold.domain.families.weights import op_weights, parameters

NORM = Norm(1e-6)


def shapes(op: Any, width: int = 8) -> dict[str, tuple[int, ...]]:
    return {name: weight.shape for name, weight in op_weights(op, width)}


def test_a_bias_counts_as_a_parameter_of_each_output() -> None:
    assert parameters({"a": Weight((3, 5), bias=True), "b": Weight((7,)), "c": Weight((9,), rule="integer")}) == 25
    assert (
        parameters({"norm": Weight((7,), rule="plain", bias=True), "conv": Weight((6, 1, 4), rule="conv", bias=True)})
        == 44
    )


def test_attention_norms_its_values_when_asked() -> None:
    op = Attention(2, 1, 4, 1.0, v_norm=NORM)
    assert shapes(op) == {"q": (8, 8), "k": (4, 8), "v": (4, 8), "out": (8, 8), "v_norm": (4,)}


def test_a_latent_with_positions_caches_them_beside_it() -> None:
    op = LatentAttention(2, 6, 5, 4, 2, 3, 1.0, NORM, NORM)
    assert shapes(op) == {
        "q_down": (6, 8),
        "q_norm": (6,),
        "q_up": (12, 6),
        "kv_down": (7, 8),
        "kv_norm": (5,),
        "key_up": (2, 4, 5),
        "value_up": (2, 3, 5),
        "out": (8, 6),
    }
    assert [e.shape for e in op_state(op, "p", "bfloat16")] == [(7,)]


def test_experts_on_a_narrowed_input_have_projections_around_them() -> None:
    op = MixtureOfExperts(Router(4, 2, "sigmoid", input_norm=NORM), FeedForward(6, bias=True), latent=2)
    assert shapes(op) == {
        "router": (4, 8),
        "router.norm": (8,),
        "experts.up": (4, 6, 2),
        "experts.down": (4, 2, 6),
        "latent_down": (2, 8),
        "latent_up": (8, 2),
    }
    assert dict(op_weights(op, 8))["experts.up"].bias


def test_a_scan_may_have_biased_projections_and_a_norm_without_weight() -> None:
    op = Mamba2(2, 3, 4, 1, ShortConv(14, 4), Norm(1e-6, weight=False), projection_bias=True)
    weights = dict(op_weights(op, 8))
    assert "norm" not in weights
    assert weights["in"].bias
    assert weights["out"].bias
    assert weights["in"].sections == (6, 6, 4, 4, 2)


def test_kimi_heads_have_a_convolution_each_for_queries_keys_and_values() -> None:
    found = shapes(KimiDelta(2, 4, 3, ShortConv(8, 4), NORM, -5.0), 16)
    assert [found[f"{part}_conv"] for part in "qkv"] == [(8, 1, 4)] * 3
    assert (found["decay_up"], found["gate_down"], found["step_bias"]) == ((8, 3), (3, 16), (8,))


def test_a_table_without_norm_weights_lists_none() -> None:
    op = HashedNgram(2, 2, 3, (5, 7, 11), (1, 3), 4, 2, 16, 0, ShortConv(16, 4, 2, bias=True), Norm(1e-6, weight=False))
    found = dict(op_weights(op, 8))
    assert found["key"].shape == (16, 12)
    assert found["conv"].bias
    assert not any(name.endswith("_norm") for name in found)
    assert [e.shape for e in op_state(op, "p", "bfloat16")] == [(1,), (6, 16)]


def test_an_op_of_no_plan_has_no_weights() -> None:
    with pytest.raises(TypeError, match="str is no op of a plan"):
        op_weights("attention", 8)  # type: ignore[arg-type]


def test_a_head_may_have_a_bias_and_a_readout_no_weight() -> None:
    plan = DecoderPlan(
        family="x",
        model_type="x",
        width=8,
        embedding=Embedding(16, 8),
        layers=((Sublayer("mlp", SwiGLU(4)),),),
        readout=Readout("norm", Norm(1e-6, weight=False)),
        head=Head(16, tied=False, bias=True),
        context=8,
        activation="float32",
        tensors=TensorMap({}),
        stop_ids=frozenset(),
    )
    weights = plan_weights(plan)
    assert weights.keys() == {"embedding", "layers.0.mlp.gate", "layers.0.mlp.up", "layers.0.mlp.down", "head"}
    assert weights["head"].bias


def test_a_drafter_without_convolutions_and_selector_lists_neither() -> None:
    drafter = DFlashDrafter(
        family="dflash",
        layers=((Sublayer("mlp", SwiGLU(4)),),),
        taps=(Tap(1, "residual"), Tap(2, "residual")),
        context_norm=NORM,
        output_norm=NORM,
        block=16,
        mask_token=4,
        window=8,
        causal=False,
        conv_taps=0,
        conv_group=0,
        selector_rank=0,
        candidates=0,
        width=8,
        vocabulary=16,
    )
    assert {name: w.shape for name, w in drafter_weights(drafter).items()} == {
        "context": (8, 16),
        "context_norm": (8,),
        "layers.0.mlp.gate": (4, 8),
        "layers.0.mlp.up": (4, 8),
        "layers.0.mlp.down": (8, 4),
        "output_norm": (8,),
    }
