"""The families and checkpoints this project lists, as data, and the one way from a config.json to a plan.

Knows names, never files or networks. Every family has a plan module, so that `models` and `info` tell its facts with no
backend installed; a backend serves it from the day `served_on` names that backend, and refuses it by name before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from tensorfold.domain.families import dflash2, gemma4, glm5_next, llama, nemotron_h, qwen3_5, qwen4_exp
from tensorfold.domain.families.fields import ConfigError, shown
from tensorfold.domain.families.formats import BACKEND_TITLES, Formats
from tensorfold.domain.families.plans import MODEL_CARD, DecoderPlan, License

Backend = Literal["mlx", "cuda"]
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
    license: License = MODEL_CARD
    experimental: bool = False


@dataclass(frozen=True, slots=True)
class Reader:
    """A family's plan module: how a config becomes a plan, what is refused, in which formats, and a published config.

    `published` is empty and `formats` None for a family that has no checkpoint of its own.
    """

    plan: Callable[[Mapping[str, Any]], DecoderPlan]
    refuse: Callable[[Mapping[str, Any], str], str | None]
    formats: Formats | None = None
    published: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Family:
    """A family: its config.json spellings, what is listed of it, how it drafts, and how its configs are read.

    `backends` are meant to run it, `served_on` do so in this version. `has_head` says that its listed checkpoints hold
    a draft head of the model's own. `cuda_ranks` are the numbers of CUDA ranks it may be split over, `cuda_context` the
    window aimed at there without `--context`, 0 for what fits.
    """

    title: str
    model_types: tuple[str, ...]
    checkpoints: tuple[Checkpoint, ...]
    backends: tuple[Backend, ...]
    drafting: str
    reader: Reader
    served_on: tuple[Backend, ...] = ()
    drafters: tuple[Drafter, ...] = ()
    note: str = ""
    has_head: bool = False
    cuda_ranks: tuple[int, ...] = (1, 2)
    cuda_context: int = 0

    @property
    def served(self) -> bool:
        """Whether this version can load it."""
        return bool(self.served_on)


LLAMA = Family(
    title="Llama",
    model_types=llama.MODEL_TYPES,
    checkpoints=(
        Checkpoint(
            "demo",
            ("mlx", "cuda"),
            source="package",
            summary="SmolLM2-135M-Instruct, bf16",
            license=License("Apache-2.0"),
        ),
        Checkpoint(
            "demo@4bit",
            ("mlx",),
            source="package",
            summary="SmolLM2-135M-Instruct, 4-bit",
            license=License("Apache-2.0"),
        ),
    ),
    backends=("mlx", "cuda"),
    drafting="context copies",
    reader=Reader(llama.plan, llama.refuse),
    served_on=("mlx", "cuda"),
)

NEMOTRON = Family(
    title="Nemotron 3.5 Lightning",
    model_types=("nemotron_h",),
    checkpoints=(
        Checkpoint(
            "Vontra/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-MLX-4bit", ("mlx", "cuda"), license=nemotron_h.LICENSE
        ),
    ),
    backends=("mlx", "cuda"),
    drafting="included MTP head and context copies",
    reader=Reader(nemotron_h.plan, nemotron_h.refuse, nemotron_h.FORMATS, nemotron_h.CONFIG),
    served_on=("mlx", "cuda"),
    note="the MTP head is a file of its own, mtp-4bit.safetensors, which pull and serve check for",
    has_head=True,
    cuda_context=16_384,
)

QWEN_27B = Family(
    title="Qwen3.8-27B",
    model_types=("qwen3_5", "qwen3_5_text"),
    checkpoints=(
        Checkpoint("Vontra/Qwen3.8-27B-MLX-4bit", ("mlx", "cuda"), license=qwen3_5.LICENSE),
        Checkpoint("turboderp/Qwen3.8-27B-exl3", ("cuda",), branches=("3.00bpw", "4.00bpw"), experimental=True),
    ),
    backends=("mlx", "cuda"),
    drafting="DFlash2 and context copies",
    reader=Reader(qwen3_5.plan, qwen3_5.refuse, qwen3_5.FORMATS, qwen3_5.CONFIG),
    served_on=("mlx", "cuda"),
    drafters=(Drafter("z-lab/Qwen3.8-27B-DFlash2", MODEL_CARD, optional_on=("mlx",)),),
    note="windows of at most 16 rows on M1 to M4",
)

QWEN_FLASH_NEXT = Family(
    title="Qwen3.8 Flash Next",
    model_types=("qwen4_exp", "qwen4_exp_text", "qwen3_8_flash_next"),
    checkpoints=(
        Checkpoint("Vontra/Qwen3.8-Flash-Next-MLX-4bit-MTP", ("mlx", "cuda"), license=qwen4_exp.LICENSE),
        Checkpoint("turboderp/Qwen3.8-Flash-Next-exl3", ("cuda",), branches=("3.05bpw_h5_ng5",), experimental=True),
    ),
    backends=("mlx", "cuda"),
    drafting="included MTP head and context copies",
    reader=Reader(qwen4_exp.plan, qwen4_exp.refuse, qwen4_exp.FORMATS, qwen4_exp.CONFIG),
    served_on=("mlx",),
    has_head=True,
)

GLM_FLASH = Family(
    title="GLM-5.3-Flash",
    model_types=("glm5_next", "glm5_next_text"),
    checkpoints=(
        Checkpoint("Vontra/GLM-5.3-Flash-MLX-4bit-MTP", ("mlx", "cuda"), license=glm5_next.LICENSE),
        Checkpoint("Mia-AiLab/GLM-5.3-Flash-EXL3-TR3-4bpw", ("cuda",), experimental=True),
    ),
    backends=("mlx", "cuda"),
    drafting="MTP; optional DFlash2 on CUDA",
    reader=Reader(glm5_next.plan, glm5_next.refuse, glm5_next.FORMATS, glm5_next.CONFIG),
    served_on=("mlx",),
    drafters=(Drafter("incoai/GLM-5.3-Flash-DFlash2", _NON_COMMERCIAL, optional_on=("mlx", "cuda")),),
    note="MLX needs a Mac with 256 GB, of which it takes up to 85%; CUDA needs two ranks",
    has_head=True,
    cuda_ranks=(2,),
    cuda_context=2_051,
)

GEMMA_26B = Family(
    title="Gemma 4 26B-A4B",
    model_types=("gemma4", "gemma4_text"),
    checkpoints=(Checkpoint("mlx-community/gemma-4-26b-a4b-it-4bit", ("mlx",), license=gemma4.LICENSE),),
    backends=("mlx",),
    drafting="context copies",
    reader=Reader(gemma4.plan, gemma4.refuse, gemma4.FORMATS, gemma4.CONFIG),
    served_on=("mlx",),
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


def drafted_family(config: Mapping[str, Any]) -> Family | None:
    """The family whose published model a DFlash2 drafter's config fits; None for other configs and other models."""
    if not dflash2.recognises(config):
        return None
    if dflash2.refuse(config) is not None:
        return None
    targets = ((f, published_plan(f)) for f in FAMILIES if f.drafters)
    return next((f for f, plan in targets if plan is not None and dflash2.refuse(config, plan) is None), None)


@lru_cache(maxsize=16)
def published_plan(family: Family) -> DecoderPlan | None:
    """The plan of a family's published model; None where it has none of its own."""
    return family.reader.plan(family.reader.published) if family.reader.published else None


def plan_for(config: Mapping[str, Any], backend: str) -> DecoderPlan:
    """The plan of a config.json for a backend. Raises ConfigError when family, backend or a field is refused."""
    refusal = refusal_of(config, backend)
    if refusal is not None:
        raise ConfigError(refusal)
    return family_of(config).reader.plan(config)


def family_of(config: Mapping[str, Any]) -> Family:
    """The family of a config. Raises ConfigError when there is none."""
    family = find(config.get("model_type"))
    if family is None:
        raise ConfigError(_drafter(config) if dflash2.recognises(config) else unknown(config))
    return family


def refusal_of(config: Mapping[str, Any], backend: str) -> str | None:
    """Why this version cannot serve a config on a backend, as one sentence; None when it can."""
    try:
        family = family_of(config)
    except ConfigError as error:
        return error.message
    if not family.served:
        return f"{family.title} is not served by this version, which serves: {served()}."
    # What the family itself refuses stays true in later versions, so it is said first.
    own = family.reader.refuse(config, backend)
    if own is None and backend not in family.served_on:
        able = family.served_on[0]
        title = BACKEND_TITLES.get(backend, backend)
        return f"{family.title} is not served on {title} by this version: start with `--backend {able}`."
    return own


def served() -> str:
    """Model types this version serves, as a sentence lists them."""
    return ", ".join(kind for family in FAMILIES if family.served for kind in family.model_types)


def _drafter(config: Mapping[str, Any]) -> str:
    target = drafted_family(config)
    whose = f"{target.title}'s drafter" if target else "a drafter of no model listed here"
    return (
        f"config.json is that of {whose}, which serves nothing alone: serve the model it drafts for with `--drafter`."
    )


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
