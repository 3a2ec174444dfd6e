"""The families and checkpoints this project lists, as data, and the one way from a config.json to a plan.

Knows names, never files or networks. A family is `served` when its plan module and a backend's builders exist; the
others are listed so that `models` and `info` can say what is coming, and are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tensorfold.domain.families import llama
from tensorfold.domain.families.fields import ConfigError, shown
from tensorfold.domain.families.plans import DecoderPlan, License

Backend = Literal["mlx", "cuda"]
_CARD = License("see its model card")
_NON_COMMERCIAL = License("CC BY-NC-ND 4.0", "The weights may not be used commercially or passed on in changed form.")


@dataclass(frozen=True, slots=True)
class Drafter:
    """A draft model of a family, published apart from its checkpoints; `optional_on` lists backends that do without."""

    repo: str
    license: License
    optional_on: tuple[Backend, ...]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A listed checkpoint: `name` is what `serve` takes.

    `branches` are the revisions that hold weights (empty: the main one). `source` is where it comes from: a hub
    repository or a Python package that carries weights.
    """

    name: str
    backends: tuple[Backend, ...]
    branches: tuple[str, ...] = ()
    source: Literal["hub", "package"] = "hub"
    summary: str = ""
    license: License = _CARD
    experimental: bool = False


@dataclass(frozen=True, slots=True)
class Reader:
    """A family's plan module: how a config becomes a plan and what is refused."""

    plan: Callable[[Mapping[str, Any]], DecoderPlan]
    refuse: Callable[[Mapping[str, Any], str], str | None]


@dataclass(frozen=True, slots=True)
class Family:
    """A family: its config.json spellings, what is listed of it, how it drafts, and its reader when it is served."""

    title: str
    model_types: tuple[str, ...]
    checkpoints: tuple[Checkpoint, ...]
    backends: tuple[Backend, ...]
    drafting: str
    drafters: tuple[Drafter, ...] = ()
    note: str = ""
    reader: Reader | None = None

    @property
    def served(self) -> bool:
        """Whether this version can load it."""
        return self.reader is not None


LLAMA = Family(
    title="Llama",
    model_types=llama.MODEL_TYPES,
    checkpoints=(
        Checkpoint(
            "demo", ("mlx",), source="package", summary="SmolLM2-135M-Instruct, bf16", license=License("Apache-2.0")
        ),
        Checkpoint(
            "demo@4bit",
            ("mlx",),
            source="package",
            summary="SmolLM2-135M-Instruct, 4-bit",
            license=License("Apache-2.0"),
        ),
    ),
    backends=("mlx",),
    drafting="context copies",
    reader=Reader(llama.plan, llama.refuse),
)

NEMOTRON = Family(
    title="Nemotron 3.5 Lightning",
    model_types=("nemotron_h",),
    checkpoints=(Checkpoint("Vontra/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-MLX-4bit", ("mlx", "cuda")),),
    backends=("mlx", "cuda"),
    drafting="included MTP head; context copies on MLX",
)

QWEN_27B = Family(
    title="Qwen3.8-27B",
    model_types=("qwen3_5", "qwen3_5_text"),
    checkpoints=(
        Checkpoint("Vontra/Qwen3.8-27B-MLX-4bit", ("mlx", "cuda")),
        Checkpoint("turboderp/Qwen3.8-27B-exl3", ("cuda",), branches=("3.00bpw", "4.00bpw"), experimental=True),
    ),
    backends=("mlx", "cuda"),
    drafting="DFlash2 and context copies",
    drafters=(Drafter("z-lab/Qwen3.8-27B-DFlash2", _CARD, optional_on=("mlx",)),),
)

QWEN_FLASH_NEXT = Family(
    title="Qwen3.8 Flash Next",
    model_types=("qwen4_exp", "qwen4_exp_text", "qwen3_8_flash_next"),
    checkpoints=(
        Checkpoint("Vontra/Qwen3.8-Flash-Next-MLX-4bit-MTP", ("mlx", "cuda")),
        Checkpoint("turboderp/Qwen3.8-Flash-Next-exl3", ("cuda",), branches=("3.05bpw_h5_ng5",), experimental=True),
    ),
    backends=("mlx", "cuda"),
    drafting="included MTP head and context copies",
)

GLM_FLASH = Family(
    title="GLM-5.3-Flash",
    model_types=("glm5_next", "glm5_next_text"),
    checkpoints=(
        Checkpoint("Vontra/GLM-5.3-Flash-MLX-4bit-MTP", ("mlx", "cuda"), license=License("MIT")),
        Checkpoint("Mia-AiLab/GLM-5.3-Flash-EXL3-TR3-4bpw", ("cuda",), experimental=True),
    ),
    backends=("mlx", "cuda"),
    drafting="MTP; optional DFlash2 on CUDA",
    drafters=(Drafter("incoai/GLM-5.3-Flash-DFlash2", _NON_COMMERCIAL, optional_on=("mlx", "cuda")),),
    note="MLX needs a Mac with 256 GB; CUDA needs two ranks",
)

GEMMA_26B = Family(
    title="Gemma 4 26B-A4B",
    model_types=("gemma4", "gemma4_text"),
    checkpoints=(Checkpoint("mlx-community/gemma-4-26b-a4b-it-4bit", ("mlx",)),),
    backends=("mlx",),
    drafting="context copies",
)

FAMILIES: tuple[Family, ...] = (LLAMA, NEMOTRON, QWEN_27B, QWEN_FLASH_NEXT, GLM_FLASH, GEMMA_26B)


def find(model_type: object) -> Family | None:
    """The family that answers to a config's `model_type`, whatever that value is."""
    return next((f for f in FAMILIES if isinstance(model_type, str) and model_type in f.model_types), None)


def find_checkpoint(name: str) -> tuple[Family, Checkpoint] | None:
    """The listed checkpoint of a name."""
    return next(((f, c) for f in FAMILIES for c in f.checkpoints if c.name == name), None)


def find_drafter(repo: str) -> Family | None:
    """The family that a listed drafter drafts for."""
    return next((f for f in FAMILIES if any(d.repo == repo for d in f.drafters)), None)


def plan_for(config: Mapping[str, Any], backend: str) -> DecoderPlan:
    """The plan of a config.json for a backend. Raises ConfigError when family, backend or a field is refused."""
    family = find(config.get("model_type"))
    if family is None:
        raise ConfigError(unknown(config))
    if family.reader is None:
        raise ConfigError(f"{family.title} is not served by this version, which serves: {served()}.")
    refusal = family.reader.refuse(config, backend)
    if refusal is not None:
        raise ConfigError(refusal)
    return family.reader.plan(config)


def served() -> str:
    """Model types this version serves, as a sentence lists them."""
    return ", ".join(kind for family in FAMILIES if family.reader is not None for kind in family.model_types)


def unknown(config: Mapping[str, Any]) -> str:
    """The refusal of a config whose model type no family answers to."""
    if config.get("model_type") is None:
        return (
            "config.json lacks model_type, so its family is unknown; "
            f"this version serves: {served()} (`tensorfold models`)."
        )
    return (
        f"config.json's model_type is {shown(config['model_type'])}, which is no family known here; "
        f"this version serves: {served()} (`tensorfold models`)."
    )
