"""Every published naming of every family binds to its plan: stacked or per expert, fused or split, plain or affine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tensorfold.domain.families import dflash2, gemma4, glm5_next, nemotron_h, qwen3_5, qwen4_exp
from tensorfold.domain.families.binding import Bound, bind, resolve
from tensorfold.domain.families.fields import ConfigError
from tensorfold.domain.families.plans import DecoderPlan
from tensorfold.domain.families.storage import Affine, Dense, Layout, Quantization
from tests.domain.families.headers import Headers, header, written

FOUR, WIDE = Layout(4, 64), Layout(8, 64)
SMALL_QWEN = {"num_hidden_layers": 4, "vocab_size": 1024, "eos_token_id": 2}
FLASH = (
    qwen4_exp.CONFIG
    | SMALL_QWEN
    | {"num_experts": 3, "num_experts_per_tok": 2, "ngram_vocab_size_base": 50, "split_ngram_parts": 4}
)


def original(path: str) -> str:
    """Body under the language model, head and draft head beside it."""
    return "" if path.startswith(("head", "mtp.")) else "model.language_model."


def converted(path: str) -> str:
    return "language_model." if path.startswith(("head", "mtp.")) else "language_model.model."


def settled(plan: DecoderPlan, tensors: Headers, layout: Layout | None) -> Mapping[str, Bound]:
    return resolve(plan, tensors, Quantization(layout) if layout else None)


def added(bound: Mapping[str, Bound], answer: bool | None) -> set[str]:
    """Slots of layer 3 and of the whole model that get one added, by their answer."""
    return {path for path, b in bound.items() if b.add_one is answer and ("layers.3." in path or "layers" not in path)}


def test_the_27b_binds_as_first_published_with_centred_norms() -> None:
    plan = qwen3_5.plan(qwen3_5.CONFIG | SMALL_QWEN)
    extra = {"model.visual.blocks.0.norm.weight": header("model.visual.blocks.0.norm.weight", "BF16", (4,))}
    bound = settled(plan, written(plan.tensors, prefix=original) | extra, None)
    assert bound.keys() == plan.tensors.slots.keys()
    assert added(bound, True) == {
        "readout.norm",
        *(f"layers.3.attention.{n}" for n in ("pre_norm", "q_norm", "k_norm")),
        "layers.3.mlp.pre_norm",
        *(f"mtp.{n}" for n in ("embedding_norm", "hidden_norm", "readout.norm")),
    }
    assert bound["layers.0.delta.norm"].add_one is False
    assert bound["mtp.layers.0.attention.q_norm"].add_one is True
    assert not bound["layers.0.delta.conv"].swapped


def test_the_27b_binds_as_converted_without_its_head_of_drafts() -> None:
    plan = qwen3_5.plan(qwen3_5.CONFIG | SMALL_QWEN)
    tensors = written(plan.tensors, prefix=converted, layout=FOUR, swap=True, without=("mtp.",))
    bound = settled(plan, tensors, FOUR)
    assert not any(path.startswith("mtp.") for path in bound)
    assert added(bound, True) == set()
    assert bound["layers.0.delta.conv"].swapped
    assert bound["layers.0.delta.qkv"].storage == Affine(4, 64, "BF16")
    assert bound["layers.0.delta.decay_log"].storage == Dense("BF16")
    assert bound["head"].module.scales == "language_model.lm_head.scales"


def test_a_converted_27b_with_a_head_from_elsewhere_shifts_the_heads_norms_alone() -> None:
    plan = qwen3_5.plan(qwen3_5.CONFIG | SMALL_QWEN)
    body = written(plan.tensors, prefix=converted, layout=FOUR, swap=True, without=("mtp.",))
    head = {name: h for name, h in written(plan.tensors, prefix=original).items() if name.startswith("mtp.")}
    bound = settled(plan, body | head, FOUR)
    assert bound["readout.norm"].add_one is False
    assert bound["mtp.readout.norm"].add_one is True
    assert bound["mtp.layers.0.attention.q"].storage == Dense("BF16")


def test_half_a_head_of_drafts_is_refused() -> None:
    plan = qwen3_5.plan(qwen3_5.CONFIG | SMALL_QWEN)
    tensors = written(plan.tensors, prefix=original, without=("mtp.join",))
    with pytest.raises(ConfigError, match=r"lacks model\.language_model\.mtp\.fc\.weight"):
        settled(plan, tensors, None)


def test_flash_next_binds_as_converted_with_stacked_experts_and_shards() -> None:
    plan = qwen4_exp.plan(FLASH)
    tensors = written(plan.tensors, prefix=converted, layout=Layout(4, 32), swap=True)
    bound = settled(plan, tensors, Layout(4, 32))
    assert bound.keys() == plan.tensors.slots.keys()
    assert len(bound["layers.0.mlp.experts.up"].modules) == 1
    assert [m.weight.rpartition("shard_")[2] for m in bound["layers.1.ngram.table"].modules] == [
        f"{e}.weight" for e in range(4)
    ]
    assert bound["layers.1.ngram.table"].storage == Affine(4, 32, "BF16")
    assert bound["layers.1.ngram.multipliers"].storage == Dense("I64")
    assert bound["layers.3.attention.indexer.k"].source.cut == (512, 640)
    assert {b.add_one for path, b in bound.items() if "norm" in path and ".delta.norm" not in path} == {None}
    assert bound["layers.0.delta.norm"].add_one is False


@pytest.mark.parametrize(("prefer", "pieces"), [((".experts.gate_up", ".experts.down"), 1), (("{e}.",), 3)])
def test_flash_next_binds_as_first_published_fused_or_per_expert(prefer: tuple[str, ...], pieces: int) -> None:
    plan = qwen4_exp.plan(FLASH)
    tensors = written(plan.tensors, prefix=original, prefer=(*prefer, "ngram_embedding"))
    bound = settled(plan, tensors, None)
    experts = [bound[f"layers.2.mlp.experts.{part}"] for part in ("gate", "up", "down")]
    assert [len(b.modules) for b in experts] == [pieces] * 3
    assert [b.source.cut for b in experts] == ([(0, 640), (640, 1280), None] if pieces == 1 else [None] * 3)


def test_flash_next_may_store_its_table_in_one_piece() -> None:
    plan = qwen4_exp.plan(FLASH)
    sharded = written(plan.tensors, prefix=original)
    whole = "model.language_model.layers.1.ple.ple_embedding.ngram_embedding.weight"
    rows = plan.tensors.slots["layers.1.ngram.table"].shape
    tensors = {name: h for name, h in sharded.items() if ".shard_" not in name}
    bound = settled(plan, tensors | {whole: header(whole, "BF16", (rows[0] * rows[1], rows[2]))}, None)
    assert bound["layers.1.ngram.table"].source.view == rows


def test_flash_next_takes_no_other_width_and_no_quantized_router() -> None:
    plan = qwen4_exp.plan(FLASH)
    with pytest.raises(ConfigError, match="in 8 bits in groups of 32; this model is read in 4 bits in groups of 32:"):
        settled(plan, written(plan.tensors, prefix=converted, layout=Layout(8, 32), swap=True), Layout(8, 32))
    tensors = written(plan.tensors, prefix=converted, layout=Layout(4, 32), swap=True)
    name = "language_model.model.layers.0.mlp.gate"
    tensors[f"{name}.scales"] = header(f"{name}.scales", "BF16", (3, 80))
    with pytest.raises(ConfigError, match=r"gate\.weight is quantized, which this tensor must not be"):
        settled(plan, tensors, Layout(4, 32))


def test_flash_next_does_without_constants_and_draft_head() -> None:
    plan = qwen4_exp.plan(FLASH)
    absent = ("mtp.", *(f"layers.1.ngram.{n}" for n in ("multipliers", "table_sizes", "offsets")))
    bound = settled(plan, written(plan.tensors, prefix=original, without=absent), None)
    assert plan.tensors.slots.keys() - bound.keys() == {p for p in plan.tensors.slots if p.startswith(absent)}


SMALL_NEMOTRON = nemotron_h.CONFIG | {
    "hybrid_override_pattern": "MEM*E",
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "vocab_size": 512,
}


def test_nemotron_binds_stacked_with_its_side_file() -> None:
    plan = nemotron_h.plan(SMALL_NEMOTRON)
    bound = settled(plan, written(plan.tensors, layout=FOUR, swap=True), FOUR)
    assert bound.keys() == plan.tensors.slots.keys()
    assert bound["layers.1.experts.experts.up"].module.weight == "backbone.layers.1.mixer.switch_mlp.fc1.weight"
    assert bound["mtp.layers.1.experts.router"].storage == Dense("BF16")
    # The side file's names lack the prefix it is seen with.
    side = plan.tensors.side_files[0]
    assert bound["mtp.join"].module.weight.removeprefix(side.prefix) == "layers.0.eh_proj.weight"
    assert {b.add_one for b in bound.values()} == {False}


def test_nemotron_binds_per_expert_without_its_head() -> None:
    plan = nemotron_h.plan(SMALL_NEMOTRON)
    bound = settled(plan, written(plan.tensors, prefer=("{e}",), without=("mtp.",)), None)
    assert [m.weight for m in bound["layers.4.experts.experts.down"].modules] == [
        f"backbone.layers.4.mixer.experts.{e}.down_proj.weight" for e in range(4)
    ]
    assert bound["layers.0.mamba.conv"].module.bias == "backbone.layers.0.mixer.conv1d.bias"


SMALL_GLM = glm5_next.CONFIG | {
    "num_hidden_layers": 5,
    "n_routed_experts": 3,
    "num_experts_per_tok": 2,
    "vocab_size": 512,
    "eos_token_id": [2],
}


def test_glm_binds_per_expert_with_its_draft_layer_after_the_last() -> None:
    plan = glm5_next.plan(SMALL_GLM)
    tensors = written(plan.tensors, prefix=lambda path: "" if path == "head" else "model.language_model.", layout=FOUR)
    bound = settled(plan, tensors, FOUR)
    assert bound.keys() == plan.tensors.slots.keys()
    keys, values = bound["layers.3.attention.key_up"], bound["layers.3.attention.value_up"]
    assert keys.module == values.module
    assert (keys.source.view, keys.source.cut, values.source.cut) == ((64, 512, 512), (0, 256), (256, 512))
    assert bound["mtp.join"].module.weight == "model.language_model.layers.5.eh_proj.weight"
    assert bound["layers.3.attention.indexer.k_norm"].module.bias.endswith("indexer.k_norm.bias")
    assert len(bound["mtp.layers.0.mlp.experts.up"].modules) == 3
    assert {b.add_one for b in bound.values()} == {False}


def test_glm_binds_as_converted_with_split_heads_and_one_convolution() -> None:
    plan = glm5_next.plan(SMALL_GLM)
    prefer = ("switch_mlp", "embed_q", "unembed_out", "attn_hc", "ffn_hc", "forget_gate.A", "forget_gate", "mtp.0")

    def prefix(path: str) -> str:
        return "language_model." if path.startswith(("head", "mtp.")) else "language_model.model."

    tensors = written(plan.tensors, prefix=prefix, prefer=prefer, layout=FOUR, swap=True)
    tensors = {name: h for name, h in tensors.items() if not any(f".{part}_conv1d" in name for part in "qkv")}
    for layer in (0, 1, 2, 4):
        module = f"language_model.model.layers.{layer}.self_attn"
        joint, decay = f"{module}.conv1d.weight", f"{module}.forget_gate.A"
        del tensors[f"{decay}_log"]
        tensors |= {joint: header(joint, "BF16", (24576, 4, 1)), decay: header(decay, "F32", (64,))}
    bound = settled(plan, tensors, FOUR)
    assert bound["layers.3.attention.key_up"].swapped
    assert not bound["layers.3.attention.value_up"].swapped
    assert bound["layers.0.delta.decay_log"].source.takes_log
    cuts = [bound[f"layers.0.delta.{part}_conv"].source for part in "qkv"]
    assert [(s.axis, s.cut) for s in cuts] == [(0, (0, 8192)), (0, (8192, 16384)), (0, (16384, 24576))]
    assert bound["mtp.layers.0.attention.q_down"].module.weight.startswith("language_model.mtp.0.block.self_attn")
    assert bound["layers.4.mlp.residual.base"].module.weight == "language_model.model.layers.4.ffn_hc.base"


SMALL_GEMMA = gemma4.CONFIG | {
    "num_hidden_layers": 6,
    "layer_types": gemma4.CONFIG["layer_types"][:6],
    "num_experts": 4,
    "top_k_experts": 2,
    "vocab_size": 512,
}


def test_gemma_binds_as_converted_with_an_8_bit_router() -> None:
    plan = gemma4.plan(SMALL_GEMMA)
    tensors = written(plan.tensors, prefix=lambda path: "language_model.model.", layout=FOUR, router=WIDE)
    bound = settled(plan, tensors, FOUR)
    assert bound.keys() == plan.tensors.slots.keys()
    assert bound["layers.0.feed.routed.router"].storage == Affine(8, 64, "BF16")
    assert bound["layers.0.feed.routed.experts.gate"].storage == Affine(4, 64, "BF16")
    assert bound["layers.5.feed.scale"].module.weight == "language_model.model.layers.5.layer_scalar"


def test_gemma_binds_as_first_published_with_fused_experts() -> None:
    plan = gemma4.plan(SMALL_GEMMA)
    tensors = written(
        plan.tensors, prefix=lambda path: "model.language_model.", prefer=("gate_up_proj", ".experts.down")
    )
    bound = settled(plan, tensors, None)
    assert bound["layers.0.feed.routed.experts.up"].source.cut == (704, 1408)
    assert bound["layers.0.feed.routed.experts.down"].module.weight.endswith("experts.down_proj")


@pytest.mark.parametrize(("layout", "router"), [(FOUR, FOUR), (Layout(6, 64), WIDE), (Layout(4, 128), WIDE)])
def test_gemma_refuses_other_layouts(layout: Layout, router: Layout) -> None:
    plan = gemma4.plan(SMALL_GEMMA | {"num_hidden_layers": 1, "layer_types": ["full_attention"]})
    tensors = written(plan.tensors, prefix=lambda path: "language_model.model.", layout=layout, router=router)
    with pytest.raises(ConfigError, match="this model is read in"):
        settled(plan, tensors, layout)


@pytest.mark.parametrize("config", [dflash2.CONFIG, dflash2.GLM_CONFIG])
def test_a_drafter_binds_on_its_own(config: dict[str, Any]) -> None:
    table = dflash2.plan(config).tensors
    bound = bind(table, written(table), None)
    assert bound["selector.successor"].module.weight == "candidate_selector.successor_codebook"
    assert bound["layers.4.mlp.mix.base"].module.weight == "layers.4.mlp_conv.base_kernel"
    assert len({m.weight for b in bound.values() for m in b.modules}) == 81
