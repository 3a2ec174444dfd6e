"""Slots matched with headers: names, shapes, widths, what is missing, and what nobody asked for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.families import llama, qwen3_5, qwen4_exp
from tensorfold.domain.families.binding import bind, resolve
from tensorfold.domain.families.fields import ConfigError
from tensorfold.domain.families.plans import DecoderPlan
from tensorfold.domain.families.storage import (
    AFFINE_BITS,
    Affine,
    Dense,
    Layout,
    Quantization,
    parse_quantization,
)
from tensorfold.domain.families.stored_modules import Module
from tensorfold.domain.families.tensors import Slot, Source, TensorMap, Weight
from tests.domain.families.configs import llama_config
from tests.domain.families.headers import Headers, header, written
from tests.synthetic.tiny_configs import tiny

FOUR = Quantization(Layout(4, 32))
Q = "model.layers.1.self_attn.q_proj"


def plan(**changed: Any) -> DecoderPlan:
    return llama.plan(llama_config(**changed))


def refusal(plan: DecoderPlan, tensors: Headers, quantization: Quantization | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve(plan, tensors, quantization)
    return caught.value.message


def table(*names: str | Source, shape: tuple[int, ...] = (64, 64), **weight: Any) -> TensorMap:
    return TensorMap({"slot": Slot(names, Weight(shape, **weight))}, prefixes=("", "pre."))


def test_every_slot_of_a_dense_checkpoint_is_bound_to_its_tensor() -> None:
    for dtype in ("BF16", "F16", "F32"):
        bound = resolve(plan(), written(plan().tensors, dtype=dtype), None)
        assert bound.keys() == plan().tensors.slots.keys()
        assert {b.storage for b in bound.values()} == {Dense(dtype)}
        assert bound["layers.1.attention.q"].module == Module(f"{Q}.weight")
        assert bound["readout.norm"].add_one is False


def test_biases_are_bound_with_their_modules() -> None:
    biased = plan(attention_bias=True)
    bound = resolve(biased, written(biased.tensors), None)
    assert bound["layers.1.attention.q"].module == Module(f"{Q}.weight", bias=f"{Q}.bias")
    assert bound["layers.1.mlp.up"].module.bias == ""


@pytest.mark.parametrize("bits", AFFINE_BITS)
@pytest.mark.parametrize("group", [32, 64])
def test_every_affine_layout_is_derived_from_shapes(bits: int, group: int) -> None:
    tensors = written(plan().tensors, layout=Layout(bits, group), dtype="F16")
    bound = resolve(plan(), tensors, Quantization(Layout(bits, group)))
    assert bound["layers.1.attention.q"].module == Module(f"{Q}.weight", f"{Q}.scales", f"{Q}.biases")
    assert bound["layers.1.attention.q"].storage == bound["embedding"].storage == Affine(bits, group, "F16")
    assert bound["layers.1.mlp.pre_norm"].storage == Dense("F16")


def test_a_module_the_config_does_not_name_is_what_its_tensors_say() -> None:
    tensors = written(plan().tensors, layout=Layout(4, 32))
    plain = {name: header(name, "BF16", (256, 64)) for name in ("lm_head.weight",)}
    for part in ("scales", "biases"):
        del tensors[f"lm_head.{part}"]
    bound = resolve(plan(), tensors | plain, Quantization(Layout(8, 64)))
    assert bound["head"].storage == Dense("BF16")
    assert bound["embedding"].storage == Affine(4, 32, "BF16")


def test_an_override_is_held_against_the_shapes() -> None:
    tensors = written(plan().tensors, layout=Layout(4, 32))
    stated = Quantization(Layout(8, 64), {Q: Layout(4, 32), "lm_head": Layout(4, 32)})
    assert resolve(plan(), tensors, stated)["head"].storage == Affine(4, 32, "BF16")
    message = refusal(plan(), tensors, Quantization(Layout(4, 32), {Q: Layout(6, 32)}))
    assert f"states 6 bits in groups of 32 for {Q}.weight, but its shape is that of 4 bits" in message


def test_an_override_may_be_keyed_under_another_prefix() -> None:
    names = ("w",)
    tensors = written(table(*names), prefix=lambda path: "pre.", layout=Layout(4, 32))
    for path in ("w", "pre.w"):
        stated = Quantization(Layout(4, 32), {path: Layout(5, 32)})
        with pytest.raises(ConfigError, match="states 5 bits"):
            bind(table(*names), tensors, stated)


def test_config_and_tensors_must_agree_on_what_is_quantized() -> None:
    dense, affine = written(plan().tensors), written(plan().tensors, layout=Layout(4, 32))
    assert f"that {Q} is quantized, but the checkpoint lacks {Q}.scales" in refusal(
        plan(), dense, Quantization(Layout(4, 32), {Q: Layout(4, 32)})
    )
    assert f"that {Q} is not quantized, but the checkpoint has {Q}.scales" in refusal(
        plan(), affine, Quantization(Layout(4, 32), {Q: None})
    )
    assert "says that model.embed_tokens is not quantized" in refusal(plan(), affine)


def test_missing_tensors_are_listed_up_to_a_cap() -> None:
    tensors = written(plan().tensors)
    del tensors["model.norm.weight"]
    assert refusal(plan(), tensors) == (
        "The checkpoint lacks model.norm.weight; fetch it again or check that config.json is its own."
    )
    message = refusal(plan(), {})
    assert message.startswith("The checkpoint lacks model.embed_tokens.weight, model.layers.0.input_layernorm.weight")
    assert " and 22 more; " in message


@pytest.mark.parametrize("part", ["scales", "biases"])
def test_an_affine_module_that_lost_a_part_is_refused(part: str) -> None:
    tensors = written(plan().tensors, layout=Layout(4, 32))
    del tensors[f"{Q}.{part}"]
    assert refusal(plan(), tensors, FOUR)
    del tensors[f"{Q}.weight"]
    assert f"{Q}.weight" in refusal(plan(), tensors, FOUR)


def test_tensors_nobody_asked_for_are_refused_by_name_up_to_a_cap() -> None:
    tensors = written(plan().tensors)
    extra = {name: header(name, "F32", (1,)) for name in ("model.layers.9.x.weight", "evil\nname" + "x" * 500)}
    message = refusal(plan(), tensors | extra)
    assert "does not use: evil?namexxx" in message
    assert ", model.layers.9.x.weight; " in message
    assert message.isprintable()
    assert len(message) < 400
    crowd = {f"x{i:02}": header(f"x{i:02}", "F32", (1,)) for i in range(20)}
    assert "x07 and 12 more" in refusal(plan(), tensors | crowd)


def test_a_pattern_fits_whole_names_only() -> None:
    some = TensorMap({}, ignored=("a.*.b", "*.freq"))
    assert all(some.ignores(name) for name in ("a.x.b", "a.x\ny.b", "a..b", "x.freq"))
    assert not any(some.ignores(name) for name in ("a.b", "a.x.bc", "xa.x.b", "freq", "axxxb"))


def test_known_extras_are_passed_over() -> None:
    tied = plan(tie_word_embeddings=True)
    extra = ("model.layers.0.self_attn.rotary_emb.inv_freq", "lm_head.weight")
    tensors = written(tied.tensors) | {name: header(name, "F32", (8,)) for name in extra}
    assert "head" not in resolve(tied, tensors, None)
    assert "lm_head.weight" in refusal(plan(tie_word_embeddings=False), tensors)


@pytest.mark.parametrize(
    ("name", "changed", "part"),
    [
        (f"{Q}.weight", ("BF16", (64, 65)), "has shape [64, 65]; config.json makes it [64, 64]"),
        (f"{Q}.weight", ("BF16", (64,)), "has shape [64]"),
        (f"{Q}.weight", ("BF16", ()), "has shape []"),
        (f"{Q}.weight", ("U32", (64, 64)), "has dtype U32; it must be BF16, F16 or F32"),
        (f"{Q}.weight", ("I64", (64, 64)), "has dtype I64"),
        ("model.norm.weight", ("BF16", (65,)), "model.norm.weight has shape [65]"),
        ("model.norm.weight", ("BF16", (1 << 62,) * 40), "has shape [4611686018427387904"),
    ],
)
def test_a_dense_tensor_must_have_the_shape_and_dtype_of_its_slot(
    name: str, changed: tuple[str, tuple[int, ...]], part: str
) -> None:
    message = refusal(plan(), written(plan().tensors) | {name: header(name, *changed)})
    assert part in message
    assert len(message) < 300


@pytest.mark.parametrize(
    ("part", "changed"),
    [
        ("weight", ("U32", (64, 9))),
        ("weight", ("U32", (63, 8))),
        ("weight", ("U32", (64,))),
        ("weight", ("U32", ())),
        ("weight", ("U32", (64, 14))),
        ("weight", ("U32", (64, 0))),
        ("scales", ("BF16", (64, 1))),
        ("scales", ("BF16", (64, 0))),
        ("scales", ("BF16", (2,))),
        ("biases", ("BF16", (64, 3))),
        ("weight", ("I32", (64, 8))),
        ("scales", ("U8", (64, 2))),
        ("biases", ("F16", (64, 2))),
    ],
)
def test_an_affine_module_whose_parts_do_not_fit_is_refused(part: str, changed: tuple[str, tuple[int, ...]]) -> None:
    tensors = written(plan().tensors, layout=Layout(4, 32))
    name = f"{Q}.{part}"
    message = refusal(plan(), tensors | {name: header(name, *changed)}, FOUR)
    assert Q in message
    assert "no affine form of [64, 64]" in message or "has dtype" in message


def test_a_bias_must_be_as_wide_as_the_outputs() -> None:
    biased = plan(attention_bias=True)
    tensors = written(biased.tensors)
    name = f"{Q}.bias"
    assert "has shape [63]; config.json makes it [64]" in refusal(biased, tensors | {name: header(name, "BF16", (63,))})
    del tensors[name]
    assert f"The checkpoint lacks {name};" in refusal(biased, tensors)


def test_a_tensor_that_must_stay_dense_is_refused_when_quantized() -> None:
    tensors = written(plan().tensors) | {
        "model.norm.scales": header("model.norm.scales", "BF16", (2,)),
    }
    assert "model.norm.weight is quantized, which this tensor must not be" in refusal(plan(), tensors, FOUR)


def test_a_layout_the_family_does_not_take_is_refused_with_those_it_does() -> None:
    slot = Slot(("w",), Weight((64, 64)))
    gate = Slot(("gate",), Weight((8, 64), rule="router"))
    narrow = TensorMap({"slot": slot, "gate": gate}, bits=(4,), groups=(32, 64), router_bits=(8,))
    good = written(narrow, layout=Layout(4, 32), router=Layout(8, 64))
    bound = bind(narrow, good, FOUR)
    assert bound["gate"].storage == Affine(8, 64, "BF16")
    with pytest.raises(
        ConfigError, match=r"w\.weight is stored in 5 bits in groups of 32; this model is read in 4 bits in"
    ):
        bind(narrow, written(narrow, layout=Layout(5, 32), router=Layout(8, 64)), FOUR)
    with pytest.raises(
        ConfigError, match=r"gate\.weight is stored in 4 bits in groups of 32; .* in 8 bits in groups of 32 or 64"
    ):
        bind(narrow, written(narrow, layout=Layout(4, 32)), FOUR)


def test_names_and_prefixes_are_tried_in_order() -> None:
    forms = table("first", Source("second", module=False))
    assert bind(forms, {"second": header("second", "F32", (64, 64))}, None)["slot"].module.weight == "second"
    under = bind(forms, {"pre.first.weight": header("pre.first.weight", "F32", (64, 64))}, None)["slot"]
    assert under.module.weight == "pre.first.weight"
    twice = {n: header(n, "F32", (64, 64)) for n in ("first.weight", "second")}
    with pytest.raises(ConfigError, match="does not use: second;"):
        bind(forms, twice, None)


def test_experts_come_stacked_or_each_alone_but_all_alike() -> None:
    experts = table("all", "each.{e}.w", shape=(3, 64, 64))
    stacked = bind(experts, written(experts, layout=Layout(4, 32)), FOUR)["slot"]
    assert len(stacked.modules) == 1
    alone = written(experts, prefer=("each",), layout=Layout(4, 32))
    bound = bind(experts, alone, FOUR)["slot"]
    assert [m.weight for m in bound.modules] == [f"each.{e}.w.weight" for e in range(3)]
    assert bound.storage == Affine(4, 32, "BF16")
    mixed = alone | written(table("each.1.w"), layout=Layout(8, 32))
    with pytest.raises(ConfigError, match=r"each\.0\.w and its 2 fellows are stored in 2 ways; they must be alike"):
        bind(experts, mixed, FOUR)
    del alone["each.2.w.weight"]
    with pytest.raises(ConfigError, match=r"lacks each\.2\.w\.weight;"):
        bind(experts, alone, FOUR)
    with pytest.raises(ConfigError, match=r"lacks all\.weight;"):
        bind(experts, {}, FOUR)


def test_a_piece_of_a_fused_tensor_is_checked_against_the_whole() -> None:
    fused = Source("joint", stored=(128, 64), cut=(64, 128))
    bound = bind(table(fused), {"joint.weight": header("joint.weight", "F32", (128, 64))}, None)["slot"]
    assert bound.source.cut == (64, 128)
    with pytest.raises(ConfigError, match=r"makes it \[128, 64\]"):
        bind(table(fused), {"joint.weight": header("joint.weight", "F32", (64, 64))}, None)


def test_a_transposed_form_is_known_as_swapped() -> None:
    forms = table("plain", Source("turned", transposed=True), shape=(2, 64, 32))
    assert not bind(forms, written(forms), None)["slot"].swapped
    turned = written(forms, prefer=("turned",), layout=Layout(8, 64))
    assert turned["turned.scales"].shape == (2, 32, 1)
    assert bind(forms, turned, FOUR)["slot"].swapped
    assert bind(forms, written(forms, prefer=("turned",)), None)["slot"].swapped


def test_only_a_convolution_may_have_its_axes_swapped() -> None:
    conv = table("conv", shape=(64, 1, 4), rule="conv", bias=True)
    for swap in (False, True):
        assert bind(conv, written(conv, swap=swap), None)["slot"].swapped is swap
    with pytest.raises(ConfigError, match="makes it"):
        bind(table("conv", shape=(64, 1, 4)), written(conv, swap=True), None)
    # A kernel of one tap looks the same both ways and counts as unswapped.
    single = table("conv", shape=(64, 1, 1), rule="conv")
    assert not bind(single, written(single, swap=True), None)["slot"].swapped


def test_norms_follow_the_axis_order_of_the_convolutions() -> None:
    def slots(*centrings: Any) -> TensorMap:
        conv = Slot(("conv",), Weight((64, 1, 4), rule="conv"))
        norms = {f"n{i}": Slot((f"n{i}",), Weight((64,), rule="plain"), c) for i, c in enumerate(centrings)}
        return TensorMap({"conv": conv, **norms})

    both = slots("by_conv_layout", "never", "always", "by_value")
    original = bind(both, written(both), None)
    converted = bind(both, written(both, swap=True), None)
    assert [original[f"n{i}"].add_one for i in range(4)] == [True, False, True, None]
    assert [converted[f"n{i}"].add_one for i in range(4)] == [False, False, True, None]


def test_convolutions_of_both_orders_are_refused() -> None:
    convs = {f"c{i}": Slot((f"c{i}",), Weight((64, 1, 4), rule="conv")) for i in range(2)}
    mixed = written(TensorMap({"c0": convs["c0"]})) | written(TensorMap({"c1": convs["c1"]}), swap=True)
    with pytest.raises(ConfigError, match="mixes convolutions of both axis orders"):
        bind(TensorMap(convs), mixed, None)


def test_optional_slots_and_whole_groups_may_be_absent() -> None:
    slots = {
        "a": Slot(("a",), Weight((4,), rule="plain")),
        "b": Slot(("b",), Weight((4,), rule="plain", optional=True)),
        "mtp.x": Slot(("x",), Weight((4,), rule="plain")),
        "mtp.y": Slot(("y",), Weight((4,), rule="plain")),
    }
    some = TensorMap(slots, together=("mtp.",))
    assert bind(some, written(some, without=("b", "mtp.")), None).keys() == {"a"}
    assert bind(some, written(some), None).keys() == slots.keys()
    with pytest.raises(ConfigError, match=r"lacks y\.weight;"):
        bind(some, written(some, without=("mtp.y",)), None)


def test_integer_constants_have_their_own_dtype() -> None:
    sizes = table(Source("sizes", module=False), shape=(3,), rule="integer")
    assert bind(sizes, written(sizes), None)["slot"].storage == Dense("I64")
    with pytest.raises(ConfigError, match="has dtype F32; it must be I64"):
        bind(sizes, {"sizes": header("sizes", "F32", (3,))}, None)


@given(st.data())
@settings(derandomize=True, deadline=None, max_examples=150)
@pytest.mark.slow
def test_a_damaged_checkpoint_is_refused_in_one_sentence(data: st.DataObject) -> None:
    quantization = data.draw(st.sampled_from([None, FOUR]))
    tensors = written(plan().tensors, layout=quantization.default if quantization else None)
    name = data.draw(st.sampled_from(sorted(tensors)))
    whole = tensors[name]
    shape = data.draw(st.lists(st.integers(0, 300), max_size=4).map(tuple) | st.just(whole.shape))
    dtype = data.draw(st.sampled_from(["F32", "BF16", "U8", "I32", "U32", "F64"]))
    if data.draw(st.booleans()):
        del tensors[name]
    else:
        tensors[name] = header(name, dtype, shape)
    try:
        bound = resolve(plan(), tensors, quantization)
    except ConfigError as error:
        assert error.message.isprintable()
        assert name in error.message or name.rpartition(".")[0] in error.message
    else:
        assert tensors[name].shape == whole.shape
        assert bound.keys() == plan().tensors.slots.keys()


def test_a_real_block_and_real_headers_meet() -> None:
    config = llama_config(
        quantization={"bits": 4, "group_size": 32, "model.embed_tokens": {"bits": 8, "group_size": 32}}
    )
    narrow, wide = written(plan().tensors, layout=Layout(4, 32)), written(plan().tensors, layout=Layout(8, 32))
    tensors = narrow | {name: h for name, h in wide.items() if name.startswith("model.embed_tokens")}
    bound = resolve(llama.plan(config), tensors, parse_quantization(config))
    assert bound["embedding"].storage == Affine(8, 32, "BF16")
    assert bound["head"].storage == Affine(4, 32, "BF16")


def test_norms_that_no_convolution_explains_are_refused_and_not_guessed() -> None:
    alone = qwen3_5.plan(tiny("qwen3_5", num_hidden_layers=1, layer_types=["full_attention"]))
    assert "no convolution, whose axis order would tell how its norms are stored" in refusal(
        alone, written(alone.tensors)
    )


def test_a_convolution_of_one_tap_tells_nothing_and_mixes_with_both_orders() -> None:
    lone = qwen4_exp.plan(tiny("qwen4_exp", ple_conv_kernel_size=1))
    for swap in (False, True):
        assert resolve(lone, written(lone.tensors, swap=swap), None)


def test_a_config_that_states_a_great_many_experts_is_answered_without_naming_each() -> None:
    names = Source("{e}.up")
    experts = TensorMap(
        {f"layers.{n}": Slot((names,), Weight((1 << 40, 64, 64))) for n in range(4)}, prefixes=("", "a.")
    )
    with pytest.raises(ConfigError, match=r"lacks 0\.up\.weight"):
        bind(experts, {}, None)


def test_one_entry_that_stands_alone_is_still_one_of_several() -> None:
    each, whole = (table(Source(name), shape=(1, 64, 64)) for name in ("expert.{e}", "experts"))
    assert bind(each, {"expert.0.weight": header("expert.0.weight", "F32", (64, 64))}, None)["slot"].each
    assert not bind(whole, {"experts.weight": header("experts.weight", "F32", (1, 64, 64))}, None)["slot"].each
