"""The models that a card is measured with: true geometry, planted weights, no checkpoint.

Configs are read by the families' own readers; they state what is published, and the weights are nobody's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tensorfold.domain.families import dflash2, llama, nemotron_h, qwen3_5
from tensorfold.domain.families.plans import DecoderPlan, DFlashDrafter
from tests.synthetic.plan_checkpoints import true_config
from tests.synthetic.planted_weights import PlantedWeights

LLAMA_8B: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
    "eos_token_id": 128009,
}
"""The 8B of the Llama 3 line, its scaled rotary angles left out: they change no shape."""


@dataclass(frozen=True, slots=True)
class TrueModel:
    """A plan, its weights, and the drafter that is published for it, if there is one."""

    name: str
    plan: DecoderPlan
    weights: PlantedWeights
    drafter: DFlashDrafter | None = None
    drafter_weights: PlantedWeights | None = None

    @property
    def title(self) -> str:
        """What a figure says of the model it was measured on."""
        return f"{self.name}, synthetic weights of true geometry, 4 bits in groups of 64"


def true_model(name: str, layers: int | None = None, seed: int = 1) -> TrueModel:
    """`qwen` (Qwen3.8-27B with its DFlash2 drafter), `nemotron` (3.5 Lightning 30B-A3B) or `llama` (an 8B).

    With `layers` the plan is cut to its first ones; a drafter then reads what is left of its taps.
    """
    if name == "qwen":
        return _qwen(layers, seed)
    if name == "nemotron":
        plan = nemotron_h.plan(true_config("nemotron_h", layers))
        return TrueModel(name, plan, PlantedWeights.of(plan, seed))
    if name != "llama":
        raise ValueError(f"no model of true geometry is called {name!r}; there are {', '.join(NAMES)}")
    plan = llama.plan(LLAMA_8B if layers is None else LLAMA_8B | {"num_hidden_layers": layers})
    return TrueModel(name, plan, PlantedWeights.of(plan, seed))


NAMES = ("qwen", "nemotron", "llama")


def _qwen(layers: int | None, seed: int) -> TrueModel:
    plan = qwen3_5.plan(true_config("qwen3_5", layers))
    count = len(plan.layers)
    config: dict[str, Any] = dict(dflash2.CONFIG)
    if layers is not None:
        own = config["dflash_config"]
        taps = sorted({min(tap, count - 1) for tap in own["target_layer_ids"]})
        config |= {"num_target_layers": count, "dflash_config": own | {"target_layer_ids": taps}}
    drafter = dflash2.plan(config, plan)
    return TrueModel("qwen", plan, PlantedWeights.of(plan, seed), drafter, PlantedWeights.of(drafter, seed))
