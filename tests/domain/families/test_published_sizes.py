"""Plans of published models have the published numbers of parameters, layers, taps and tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from tensorfold.domain.families import dflash2, gemma4, glm5_next, nemotron_h, qwen3_5, qwen4_exp
from tensorfold.domain.families.ops import Attention, HashedNgram, LatentAttention
from tensorfold.domain.families.plan_weights import drafter_weights, plan_weights
from tensorfold.domain.families.plans import DecoderPlan, HyperConnections, Parallel
from tensorfold.domain.families.tensors import Weight
from tensorfold.domain.families.weights import parameters


def billions(plan: DecoderPlan, *, without: str = "none", only: str = "") -> float:
    weights: Mapping[str, Weight] = {
        path: weight
        for path, weight in plan_weights(plan).items()
        if path.startswith(only) and not path.startswith("mtp." if not only else "none") and without not in path
    }
    return parameters(weights) / 1e9


def ops(plan: DecoderPlan) -> Counter[str]:
    return Counter(type(s.op).__name__ for layer in plan.layers for s in layer)


def test_the_27b_has_26_9_billion_parameters_and_15_head_tensors() -> None:
    plan = qwen3_5.plan(qwen3_5.CONFIG)
    assert round(billions(plan), 1) == 26.9
    assert round(billions(plan, only="layers."), 2) == 24.35
    assert ops(plan) == {"GatedDelta": 48, "Attention": 16, "SwiGLU": 64}
    assert [i for i, layer in enumerate(plan.layers) if isinstance(layer[0].op, Attention)] == list(range(3, 64, 4))
    assert sum(path.startswith("mtp.") for path in plan.tensors.slots) == 15
    assert plan.mtp is not None
    assert sum(stop - start for start, stop in plan.mtp.draft_ids) == 98_592


def test_flash_next_has_125_6_billion_parameters_and_a_table_of_51_2() -> None:
    plan = qwen4_exp.plan(qwen4_exp.CONFIG)
    assert billions(plan, without="ngram.table") == pytest.approx(125.6, abs=0.2)
    assert round(billions(plan, only="layers.1.ngram.table"), 1) == 51.2
    assert ops(plan) == {"GatedDelta": 36, "IndexedAttention": 12, "MixtureOfExperts": 48, "HashedNgram": 1}
    assert (
        round(
            sum(parameters({p: w}) for p, w in plan_weights(plan).items() if ".experts." in p and p[0] == "l") / 1e9, 1
        )
        == 120.8
    )


def test_the_hashed_table_follows_from_the_config() -> None:
    op = qwen4_exp.plan(qwen4_exp.CONFIG).layers[1][0].op
    assert isinstance(op, HashedNgram)
    assert op.multipliers == (23703573157769, 20109073645365, 8052911324071)
    assert op.table_sizes[:3] == (20000003, 20000023, 20000033)
    assert op.table_sizes[-1] == 20000171
    assert sum(op.table_sizes) == 320_001_446
    assert (op.shards * op.shard_rows, op.shard_rows, op.row_width) == (320_001_536, 2_500_012, 160)
    assert op.conv.dilation == 3


def test_nemotron_has_31_57_billion_parameters_and_one_op_a_block() -> None:
    plan = nemotron_h.plan(nemotron_h.CONFIG)
    assert billions(plan) == pytest.approx(31.57, abs=0.01)
    assert billions(plan, only="mtp.") == pytest.approx(1.33, abs=0.01)
    assert ops(plan) == {"Mamba2": 23, "Attention": 6, "MixtureOfExperts": 23}
    assert all(len(layer) == 1 for layer in plan.layers)
    shapes = plan_weights(plan)
    assert shapes["layers.0.mamba.in"].shape == (10304, 2688)
    assert shapes["layers.0.mamba.in"].sections == (4096, 4096, 1024, 1024, 64)


def test_gemma_has_25_23_billion_parameters_and_branches_side_by_side() -> None:
    plan = gemma4.plan(gemma4.CONFIG)
    assert round(billions(plan), 2) == 25.23
    assert ops(plan) == {"Attention": 30, "Parallel": 30}
    feed = plan.layers[0][1].op
    assert isinstance(feed, Parallel)
    assert [branch.name for branch in feed.branches] == ["dense", "routed"]
    full = [i for i, layer in enumerate(plan.layers) if isinstance(layer[0].op, Attention) and not layer[0].op.window]
    assert full == [5, 11, 17, 23, 29]
    assert "layers.5.attention.v" not in plan.tensors.slots
    assert "layers.4.attention.v" in plan.tensors.slots
    assert "head" not in plan.tensors.slots


def test_glm_has_313_3_billion_parameters_among_four_streams() -> None:
    plan = glm5_next.plan(glm5_next.CONFIG)
    assert round(billions(plan), 1) == 313.3
    assert ops(plan) == {"KimiDelta": 34, "LatentAttention": 11, "SwiGLU": 3, "MixtureOfExperts": 42}
    assert isinstance(plan.layers[44][0].op, type(plan.layers[0][0].op))
    assert plan.mtp is not None
    latent = plan.mtp.layers[0][0]
    assert isinstance(latent.op, LatentAttention)
    assert not isinstance(latent.residual, HyperConnections)
    # 4.2 GB at 4.5 bits.
    assert billions(plan, only="mtp.") * 4.5 / 8 == pytest.approx(4.2, abs=0.05)


def test_the_drafters_have_their_published_sizes_and_81_tensors() -> None:
    own = dflash2.plan(dflash2.CONFIG)
    glm = dflash2.plan(dflash2.GLM_CONFIG, glm5_next.plan(glm5_next.CONFIG))
    assert round(parameters(drafter_weights(own)) / 1e9, 3) == 1.924
    assert round(parameters(drafter_weights(glm)) / 1e9, 4) == 1.1711
    assert len(own.tensors.slots) == 81
    assert [tap.layer for tap in own.taps] == [6, 20, 34, 48, 62]
    assert {tap.form for tap in glm.taps} == {"stream_mean"}
    mixes = {path: w for path, w in drafter_weights(own).items() if ".mix." in path}
    assert parameters(mixes) == 5 * 2 * (20_480 + 6_553_600)


@pytest.mark.parametrize(
    ("module", "think", "calls", "efforts"),
    [
        (qwen3_5, "</think>", "function_parameters", ("low", "medium", "xhigh")),
        (qwen4_exp, "</think>", "function_parameters", ("low", "medium", "xhigh")),
        (nemotron_h, "</think>", "function_parameters", ()),
        (gemma4, "<channel|>", "gemma4", ()),
        (glm5_next, "</think>", "arg_key_value", ("low", "high", "max")),
    ],
)
def test_every_family_states_its_dialect(module: object, think: str, calls: str, efforts: tuple[str, ...]) -> None:
    dialect = module.plan(module.CONFIG).dialect  # type: ignore[attr-defined]
    assert (dialect.think_close, dialect.tool_calls, dialect.efforts) == (think, calls, efforts)
