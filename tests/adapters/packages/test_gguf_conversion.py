"""Whole conversions of tiny GGUF files: every type, both forms, row order, configs, and refusals by name."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.adapters.packages import weight_conversion
from tensorfold.adapters.packages.gguf_conversion import convert
from tensorfold.adapters.packages.safetensors_writer import PlannedTensor, write_safetensors
from tensorfold.adapters.packages.weight_conversion import Form
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families import binding, llama
from tensorfold.domain.families.storage import TensorHeader, parse_quantization
from tests.adapters.packages.gguf_samples import BLOCK, QUANTIZED, Llama, Sample, decoded, random_rows

NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
STEMS = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip


def converted(tmp_path: Path, model: Llama, form: Form) -> Path:
    source, folder = tmp_path / "model.gguf", tmp_path / form.value
    source.write_bytes(model.build())
    folder.mkdir()
    convert(source, folder, form)
    return folder


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text("utf-8"))


def headers(folder: Path) -> dict[str, TensorHeader]:
    """The tensors' headers, read with the standard library."""
    data = (folder / "model.safetensors").read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    return {
        name: TensorHeader(name, entry["dtype"], tuple(entry["shape"]), "model.safetensors",
                           *(begin + at for at in entry["data_offsets"]))
        for name, entry in json.loads(data[8:begin]).items() if name != "__metadata__"
    }  # fmt: skip


def expected(model: Llama) -> dict[str, NDArray[np.float32]]:
    """Every checkpoint tensor's values by the definition, rows of queries and keys put in order one by one."""
    made: dict[str, NDArray[np.float32]] = {}
    for name, sample in model.tensors().items():
        values = np.array(decoded(sample.kind, sample.data), np.float32).reshape(sample.shape)
        parts = name.split(".")
        target = NAMES.get(name) or f"model.layers.{parts[1]}.{STEMS[parts[2]]}.{parts[3]}"
        if parts[0] == "blk" and parts[2] in ("attn_q", "attn_k"):
            values = _half_split(values, model.width // model.heads)
        made[target] = values
    return made


def _half_split(rows: NDArray[np.float32], head: int) -> NDArray[np.float32]:
    made = np.empty_like(rows)
    for row in range(len(rows)):
        start, inside = row - row % head, row % head
        made[start + (inside % 2) * (head // 2) + inside // 2] = rows[row]
    return made


def floats(array: mx.array) -> NDArray[np.float32]:
    return np.array(array.astype(mx.float32))


def widened(bits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Values rounded to bfloat16, by MLX."""
    return floats(mx.array(bits).astype(mx.bfloat16))


@pytest.mark.parametrize("kind", BLOCK)
@pytest.mark.slow
def test_the_dense_form_is_every_value_rounded_once_to_bfloat16(tmp_path: Path, kind: str) -> None:
    model = Llama(kind=kind, embedding_kind=kind, own_head=True, attention_bias=True, mlp_bias=True)
    loaded = mx.load(str(converted(tmp_path, model, Form.DENSE) / "model.safetensors"))
    wanted = expected(model)
    assert isinstance(loaded, dict)
    assert loaded.keys() == wanted.keys()
    for name, values in wanted.items():
        assert loaded[name].dtype == mx.bfloat16
        assert np.array_equal(floats(loaded[name]), widened(values)), name


@pytest.mark.parametrize("kind", BLOCK)
@pytest.mark.parametrize("embedding", ["Q8_0", "F16"])
@pytest.mark.slow
def test_the_repack_changes_no_value(tmp_path: Path, kind: str, embedding: str) -> None:
    model = Llama(kind=kind, embedding_kind=embedding, attention_bias=True)
    folder = converted(tmp_path, model, Form.REPACKED)
    loaded = mx.load(str(folder / "model.safetensors"))
    assert isinstance(loaded, dict)
    config = read(folder, "config.json").get("quantization", {})
    for name, values in expected(model).items():
        module = name.removesuffix(".weight")
        if f"{module}.scales" in loaded:
            layout = config.get(module, config)
            wide = [floats(loaded[f"{module}.{part}"]) for part in ("scales", "biases")]
            scales, biases = (mx.array(part) for part in wide)
            got = mx.dequantize(loaded[name], scales, biases, layout["group_size"], layout["bits"])
            assert loaded[f"{module}.scales"].dtype == loaded[f"{module}.biases"].dtype == mx.float16
        else:
            got = loaded[name]
        assert np.array_equal(floats(got), values), name


@pytest.mark.parametrize("kind", BLOCK)
@pytest.mark.parametrize("form", Form)
def test_what_is_written_fills_the_familys_plan(tmp_path: Path, kind: str, form: Form) -> None:
    model = Llama(kind=kind, own_head=kind == "F16", attention_bias=True, mlp_bias=True)
    folder = converted(tmp_path, model, form)
    config = read(folder, "config.json")
    plan = llama.plan(config)
    assert (plan.width, len(plan.layers), plan.context, plan.stop_ids) == (64, 2, 128, frozenset({2}))
    bound = binding.resolve(plan, headers(folder), parse_quantization(config))
    assert bound.keys() == plan.tensors.slots.keys()


def test_blocks_of_rows_join_to_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    whole.mkdir()
    pieces.mkdir()
    first = converted(whole, Llama(), Form.REPACKED)
    monkeypatch.setattr(weight_conversion, "_BLOCK_VALUES", 64 * 20)
    second = converted(pieces, Llama(), Form.REPACKED)
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()


@pytest.mark.parametrize("form", Form)
def test_tensors_are_packed_without_gaps_at_multiples_of_their_item_size(tmp_path: Path, form: Form) -> None:
    folder = converted(tmp_path, Llama(), form)
    tensors = sorted(headers(folder).values(), key=lambda tensor: tensor.begin)
    position = tensors[0].begin
    for tensor in tensors:
        assert tensor.begin == position
        assert tensor.begin % (4 if tensor.dtype in ("U32", "F32") else 2) == 0
        position = tensor.end
    assert position == (folder / "model.safetensors").stat().st_size


def test_norms_narrow_to_float16_only_when_no_value_changes(tmp_path: Path) -> None:
    exact = Sample("F32", (64,), np.full(64, 0.75, np.float32).tobytes())
    inexact = Sample("F32", (64,), np.full(64, 0.1, np.float32).tobytes())
    model = Llama(extra={"output_norm.weight": exact, "blk.0.attn_norm.weight": inexact})
    written = headers(converted(tmp_path, model, Form.REPACKED))
    assert written["model.norm.weight"].dtype == "F16"
    assert written["model.layers.0.input_layernorm.weight"].dtype == "F32"


def test_the_config_holds_what_the_file_says(tmp_path: Path) -> None:
    folder = converted(tmp_path, Llama(), Form.REPACKED)
    config = read(folder, "config.json")
    assert config["rms_norm_eps"] == 1e-5
    assert config["rope_theta"] == 100000.0
    assert (config["head_dim"], config["num_key_value_heads"]) == (16, 2)
    assert config["tie_word_embeddings"] is True
    assert config["torch_dtype"] == "float16"
    embedding = {"group_size": 32, "bits": 8}
    assert config["quantization"] == {"group_size": 32, "bits": 4, "model.embed_tokens": embedding}
    assert read(folder, "generation_config.json") == {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    dense = read(converted(tmp_path, Llama(), Form.DENSE), "config.json")
    assert "quantization" not in dense
    assert dense["torch_dtype"] == "bfloat16"


def test_optional_metadata_takes_its_defaults(tmp_path: Path) -> None:
    left_out = ("attention.head_count_kv", "rope.freq_base", "rope.dimension_count", "vocab_size")
    model = Llama(heads=4, kv_heads=4, changes={f"llama.{key}": None for key in left_out})
    config = read(converted(tmp_path, model, Form.DENSE), "config.json")
    assert (config["num_key_value_heads"], config["rope_theta"], config["head_dim"]) == (4, 10000.0, 16)


def test_linear_rotary_scaling_is_carried_over(tmp_path: Path) -> None:
    model = Llama(changes={"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0})
    config = read(converted(tmp_path, model, Form.DENSE), "config.json")
    assert config["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}
    assert llama.plan(config).tensors.slots


def metadata(key: str, item: Any) -> Llama:
    return Llama(changes={key: item})


def overflowing(kind: str, shape: tuple[int, ...]) -> Sample:
    """A tensor whose first block cannot be kept."""
    data = random_rows(kind, shape[0] if len(shape) > 1 else 1, shape[-1], random.Random(0))
    big = struct.pack("<e", 60000.0) if kind in QUANTIZED else struct.pack("<f", float("nan"))
    return Sample(kind, shape, big + data[len(big) :])


REFUSED: list[tuple[str, Llama, str]] = [
    ("architecture", metadata("general.architecture", "qwen2"), "the architecture 'qwen2'; only llama"),
    ("no_architecture", metadata("general.architecture", None), "the architecture None"),
    ("experts", metadata("llama.expert_count", 8), "sets llama.expert_count"),
    ("unknown_key", metadata("llama.attention.scale", 0.5), "sets llama.attention.scale, which is not converted"),
    ("sliding_window", metadata("llama.attention.sliding_window", 64), "sets llama.attention.sliding_window"),
    ("yarn", metadata("llama.rope.scaling.type", "yarn"), "by 'yarn'; only none and linear"),
    ("linear_without_factor", metadata("llama.rope.scaling.type", "linear"), "no number llama.rope.scaling.factor"),
    ("factor_0", Llama(changes={"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 0.0}), "above 0"),
    ("eps_nan", metadata("llama.attention.layer_norm_rms_epsilon", float("nan")), "which is not above 0"),
    ("eps_text", metadata("llama.attention.layer_norm_rms_epsilon", "1"), "no number"),
    ("no_layers", metadata("llama.block_count", None), "no llama.block_count from 1 to 1000"),
    ("many_layers", metadata("llama.block_count", 1 << 31), "no llama.block_count from 1 to 1000"),
    ("layers_text", metadata("llama.block_count", "2"), "no llama.block_count"),
    ("inner_per_layer", metadata("llama.feed_forward_length", [96, 96]), "no llama.feed_forward_length"),
    ("one_layer_more", metadata("llama.block_count", 3), "lacks blk.2.attn_norm.weight"),
    ("one_layer_less", metadata("llama.block_count", 1), "not converted: blk.1.attn_norm.weight"),
    ("heads", metadata("llama.attention.head_count", 3), "converted are heads in whole groups"),
    ("odd_head", Llama(width=32, inner=32, heads=32, kv_heads=2), "converted are heads in whole groups"),
    ("partial_rope", metadata("llama.rope.dimension_count", 8), "all rotated"),
    ("value_length", metadata("llama.attention.value_length", 8), "8 wide values"),
    ("key_length", metadata("llama.attention.key_length", 32), "32 wide keys"),
    ("vocabulary", metadata("llama.vocab_size", 7), "another vocab_size"),
    ("inner", metadata("llama.feed_forward_length", 64), "the shape [96, 64] where its metadata asks for [64, 64]"),
    ("no_embedding", Llama(dropped=("token_embd.weight",)), "lacks token_embd.weight"),
    ("no_norm", Llama(dropped=("output_norm.weight",)), "lacks output_norm.weight"),
    ("one_bias", Llama(extra={"blk.0.attn_q.bias": Sample("F32", (64,), bytes(256))}), "lacks blk.0.attn_k.bias"),
    ("rope_factors", Llama(extra={"rope_freqs.weight": Sample("F32", (8,), bytes(32))}), "rope_freqs.weight"),
    ("quantized_norm", Llama(extra={"output_norm.weight": Sample("Q8_0", (64,), bytes(68))}), "the vector output_norm"),
    ("not_finite", Llama(extra={"output_norm.weight": overflowing("F32", (64,))}), "not a finite number"),
    (
        "bias_overflow",
        Llama(extra={"blk.1.ffn_up.weight": overflowing("Q4_0", (96, 64))}),
        "tensor blk.1.ffn_up.weight",
    ),
    ("tokenizer", metadata("tokenizer.ggml.model", "llama"), "the tokenizer 'llama'"),
    ("k_quants", Llama(extra={"blk.0.ffn_up.weight": Sample("Q4_K", (96, 64), bytes(4))}), "as number 99"),
]


@pytest.mark.parametrize(("model", "words"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_is_not_converted_is_refused_by_name(tmp_path: Path, model: Llama, words: str) -> None:
    with pytest.raises(RefusedError) as refused:
        converted(tmp_path, model, Form.REPACKED)
    assert words in refused.value.message
    assert refused.value.message.isprintable()
    assert str(tmp_path / "model.gguf") in refused.value.message


def test_a_tensor_that_gets_other_bytes_than_planned_is_an_error(tmp_path: Path) -> None:
    planned = PlannedTensor("a", "F32", (3,), lambda: iter([np.zeros(2, np.float32)]))
    with pytest.raises(ValueError, match="a was planned with 12 bytes and got 8"):
        write_safetensors(tmp_path / "model.safetensors", [planned])
