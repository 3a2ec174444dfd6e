"""Tiny checkpoints of the families that the card serves, as the loader takes them; a drafter beside the tiny 27B."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tensorfold.adapters.cuda.loader import Stored
from tensorfold.adapters.cuda.weights import WeightReader
from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.domain.families import llama
from tensorfold.domain.families.binding import bind, resolve
from tensorfold.domain.families.storage import Layout, parse_quantization
from tests.benchmarks.gpu_heads import head_of
from tests.synthetic import llama_checkpoints
from tests.synthetic.llama_checkpoints import TinyLlama
from tests.synthetic.plan_checkpoints import PLANS, dflash_plan, write_checkpoint, write_drafter
from tests.synthetic.publications import Quantized
from tests.synthetic.tiny_configs import tiny, tiny_drafter

_LLAMA = TinyLlama(vocabulary=288, width=128, layers=3, heads=4, kv_heads=2, mlp=192, context=1024)
_CODES = Quantized(Layout(4, 64), {"*.gate": None})


def stored_tiny(folder: Path, family: str, seed: int) -> Stored:
    """A checkpoint written below `folder`: 4 bits in groups of 64 for every other seed, and always Nemotron's.

    The tiny 27B drafts with a DFlash2 drafter, the tiny Nemotron with its own head, the tiny Llama copies alone.
    """
    if family == "llama":
        stored = replace(_LLAMA, quantization=llama_checkpoints.Layout(4, 64), dtype="BF16") if seed % 2 else _LLAMA
        plan, path = llama.plan(stored.config()), replace(stored, seed=1 + seed).write(folder / "checkpoint")
    else:
        config = tiny(family, max_position_embeddings=1024)
        plan = PLANS[family](config)
        quantized = _CODES if seed % 2 or family == "nemotron_h" else None
        path = write_checkpoint(folder / "checkpoint", config, 1 + seed, "mlx", quantized)
    facts = FolderReader().facts(path)
    weights = WeightReader(
        resolve(plan, facts.tensors, parse_quantization(facts.config)), facts, _silent, plan.tensors.probes
    )
    drafter = drafter_weights = None
    if family == "qwen3_5":
        given = tiny_drafter(max_position_embeddings=1024)
        own = FolderReader().facts(write_drafter(folder / "drafter", given, 2 + seed))
        drafter = dflash_plan(given)
        drafter_weights = WeightReader(bind(drafter.tensors, own.tensors, None), own, _silent)
    return Stored(plan, weights, facts.digest, head_of(plan, weights, drafter, drafter_weights))


def _silent(line: str) -> None: ...
