"""What can be refused about a checkpoint is refused before a weight is read, in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tensorfold.application.catalogue import served_name
from tensorfold.application.counters import Counters
from tensorfold.application.loading import check_config, check_tokenizer, describe, load_engine
from tensorfold.application.ports.checkpoints import CheckpointFacts, RefusedError
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.families.storage import TensorHeader
from tests.application.house import law
from tests.fakes.backend import FakeBackend
from tests.fakes.clock import MachineClock
from tests.fakes.hash_model import HashModel
from tests.fakes.tokenizer import FakeTokenizer

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 512,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
    "eos_token_id": 7,
}
SCALED = {
    "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 16, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "rope_theta": 10000.0,
    }
}  # fmt: skip
SHAPES = {
    "model.embed_tokens.weight": (512, 8),
    "model.norm.weight": (8,),
    "model.layers.0.input_layernorm.weight": (8,),
    "model.layers.0.post_attention_layernorm.weight": (8,),
    "model.layers.0.self_attn.q_proj.weight": (8, 8),
    "model.layers.0.self_attn.k_proj.weight": (4, 8),
    "model.layers.0.self_attn.v_proj.weight": (4, 8),
    "model.layers.0.self_attn.o_proj.weight": (8, 8),
    "model.layers.0.mlp.gate_proj.weight": (16, 8),
    "model.layers.0.mlp.up_proj.weight": (16, 8),
    "model.layers.0.mlp.down_proj.weight": (8, 16),
}


def facts(config: dict[str, Any] | None = None, generation: dict[str, Any] | None = None) -> CheckpointFacts:
    headers = {}
    at = 0
    for name, shape in SHAPES.items():
        size = 4
        for side in shape:
            size *= side
        headers[name] = TensorHeader(name, "F32", shape, "model.safetensors", at, at + size)
        at += size
    return CheckpointFacts(Path("/m"), CONFIG | (config or {}), generation or {}, headers, at, "digest")


def test_a_sound_checkpoint_is_described_with_end_tokens_of_both_files() -> None:
    described = describe(facts(generation={"eos_token_id": [3, 9], "temperature": 0.6, "top_p": 0.9}), "mlx", None)
    assert described.stop_ids == {3, 7, 9}
    assert described.context == 128
    assert described.defaults.temperature == 0.6 and described.defaults.top_p == 0.9
    assert "layers.0.attention.q" in described.bound


@pytest.mark.parametrize(
    ("generation", "temperature"),
    [
        ({}, 0.0),
        ({"do_sample": False, "temperature": 0.7}, 0.0),
        ({"do_sample": True}, 1.0),
        ({"temperature": 0.7}, 0.7),
    ],
)
def test_generation_config_decides_the_default_temperature(generation: dict[str, Any], temperature: float) -> None:
    assert describe(facts(generation=generation), "mlx", None).defaults.temperature == temperature


@pytest.mark.parametrize(
    ("config", "generation", "context", "words"),
    [
        ({"model_type": "nonsense"}, {}, None, "nonsense"),
        ({"hidden_size": 9}, {}, None, "hidden_size|embed_tokens|q_proj|9"),
        ({}, {"temperature": "hot"}, None, "temperature"),
        ({}, {"eos_token_id": 512}, None, "eos_token_id"),
        ({}, {}, 1, "--context 1 does not fit: a window holds a token of prompt and one of reply"),
        (SCALED, {}, 129, "--context 129 does not fit: the checkpoint scales its positions for 128 tokens"),
        ({}, {}, (1 << 20) + 1, "--context 1048577 is more than"),
    ],
)
def test_what_does_not_hold_is_refused_in_one_sentence(
    config: dict[str, Any], generation: dict[str, Any], context: int | None, words: str
) -> None:
    with pytest.raises(RefusedError, match=words) as refusal:
        describe(facts(config, generation), "mlx", context)
    assert "\n" not in refusal.value.message


def test_an_explicit_window_is_taken_whatever_the_models_own_where_positions_are_not_scaled_for_it() -> None:
    assert describe(facts(), "mlx", 64).context == 64
    assert describe(facts(), "mlx", 129).context == 129
    assert describe(facts(), "mlx", 0).context == 128


def test_a_tokenizer_with_ids_the_model_lacks_is_refused() -> None:
    plan = describe(facts(), "mlx", None).plan
    check_tokenizer(plan, FakeTokenizer(512))
    with pytest.raises(RefusedError, match="600 ids but the model's vocabulary is 512"):
        check_tokenizer(plan, FakeTokenizer(600))


def test_the_engine_stands_on_the_smaller_of_both_windows() -> None:
    described = describe(facts(), "mlx", 100)
    backend = FakeBackend(lambda context, streams: HashModel(law(1, 512), context=min(context, 90)))
    said: list[str] = []
    engine, factory = load_engine(
        described,
        facts(),
        backend,
        FakeTokenizer(512),
        EngineSettings(),
        MachineClock(),
        name="m",
        max_tokens=5,
        counters=Counters(),
        sources=(),
        on_progress=said.append,
        log=said.append,
    )
    assert factory.context == 90 and factory.max_tokens == 5 and backend.loaded == ["m"] and said
    engine.model.shutdown()


def test_a_model_is_served_under_its_own_name_unless_told_otherwise(tmp_path: Path) -> None:
    assert served_name("demo@4bit", "") == "demo@4bit"
    assert served_name("owner/name", "") == "name"
    assert served_name("owner/name@main", "") == "name"
    assert served_name(str(tmp_path), "") == tmp_path.name
    assert served_name("demo", "mine") == "mine"


@pytest.mark.parametrize(
    ("changes", "backend", "context", "says"),
    [
        ({}, "cuda", None, "--backend mlx"),
        ({}, "mlx", 1 << 21, r"--context 2097152 is more than the 1048576 tokens"),
        ({"model_type": "gemma4"}, "cuda", None, "Gemma 4 26B-A4B is served by MLX alone, not by cuda"),
        ({"model_type": "gemma4"}, "mlx", None, "config.json lacks hidden_size_per_layer_input"),
        ({"quantization_config": {"quant_method": "awq"}}, "mlx", None, "quant_method 'awq'"),
    ],
)
def test_a_configuration_alone_is_refused_before_anything_is_downloaded(
    changes: dict[str, Any], backend: str, context: int | None, says: str
) -> None:
    config = dict(facts().config)
    assert check_config(config, "mlx", None) == describe(facts(), "mlx", None).plan
    with pytest.raises(RefusedError, match=says):
        check_config(config | changes, backend, context)
