"""Tiny checkpoints of listed families as published and as converted, their logits by transformers and mlx-lm, kept.

`python -m tests.adapters.mlx.parity.families` makes the kept logits anew, where both libraries are installed. Past 72
positions every window, ring and convolution of the tiny configs is full and every block of keys has been crossed.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.adapters.mlx.parity.oracles import WANTED, lacking
from tests.synthetic.plan_checkpoints import LAYOUTS, write_checkpoint
from tests.synthetic.tiny_configs import tiny

Logits = NDArray[np.float32]
TOKENS, VOCABULARY = 76, 64
FOLDER = Path(__file__).parent / "golden" / "families"
_ABOUT = FOLDER / "about.json"


@dataclass(frozen=True, slots=True)
class FamilyCase:
    """One checkpoint in one published form; `fields` are what its oracle's config needs beside the checkpoint's own."""

    family: str
    form: str
    oracle: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of its kept logits."""
        return f"{self.family}_{self.form}"

    def tokens(self) -> NDArray[np.int64]:
        """The ids that are fed."""
        return (np.random.Generator(np.random.PCG64(11)).random(TOKENS) * VOCABULARY).astype(np.int64)

    def write(self, folder: Path) -> Path:
        """The checkpoint: dense float32 as first published, in codes as converted."""
        quantization = None if self.form == "hf" else LAYOUTS[self.family]
        config = tiny(self.family, vocab_size=VOCABULARY)
        return write_checkpoint(folder, config, seed=3, form=self.form, quantization=quantization)

    def theirs(self, folder: Path) -> Logits:
        """The oracle's logits [T, V] in float32."""
        path = self.write(folder) / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | dict(self.fields)))
        return _by_transformers(folder, self.tokens()) if self.oracle == "transformers" else _by_mlx_lm(folder, self)


CASES = (
    # transformers clamps time steps from below in its many-row path alone, so its least step is set to none.
    FamilyCase("nemotron_h", "hf", "transformers", {"architectures": ["NemotronHForCausalLM"], "time_step_min": 1e-9}),
    FamilyCase("nemotron_h", "mlx", "mlx_lm"),
    FamilyCase("gemma4", "hf", "transformers", {"architectures": ["Gemma4ForCausalLM"]}),
    FamilyCase("gemma4", "mlx", "mlx_lm", {"vocab_size": VOCABULARY}),
    FamilyCase("qwen3_5", "hf", "transformers", {"architectures": ["Qwen3_5ForCausalLM"]}),
    FamilyCase("qwen3_5", "mlx", "mlx_lm"),
)


def kept(case: FamilyCase) -> Logits:
    """The logits that were kept."""
    with np.load(FOLDER / f"{case.name}.npz") as file:
        logits: Logits = file["logits"]
        return logits


def digest(folder: Path) -> str:
    """SHA-256 of a checkpoint's config and weights: kept logits of other bytes prove nothing."""
    found = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix == ".safetensors" or path.name == "config.json":
            found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()


def digests() -> Mapping[str, str]:
    """Each checkpoint's digest when its logits were made."""
    found: dict[str, str] = json.loads(_ABOUT.read_text())["checkpoints"]
    return found


def _by_transformers(folder: Path, tokens: NDArray[np.int64]) -> Logits:
    torch = importlib.import_module("torch")
    models = importlib.import_module("transformers").AutoModelForCausalLM
    model, told = models.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    if any(told[kind] for kind in ("missing_keys", "mismatched_keys")):
        raise ValueError(f"transformers does not find all of {folder.name}: {told}")
    with torch.no_grad():
        made: Logits = model(torch.tensor(tokens)[None]).logits[0].numpy()
    return made


def _by_mlx_lm(folder: Path, case: FamilyCase) -> Logits:
    import mlx.core as mx
    from mlx.utils import tree_map

    model, _ = importlib.import_module("mlx_lm.utils").load_model(folder)

    def widened(value: mx.array) -> mx.array:
        return value.astype(mx.float32) if mx.issubdtype(value.dtype, mx.floating) else value

    model.update(tree_map(widened, model.parameters()))
    return np.array(model(mx.array(case.tokens())[None])[0].astype(mx.float32))


def main() -> int:
    """Write every case's logits."""
    reason = lacking()
    if reason is not None:
        print(reason)
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    made = {}
    for case in CASES:
        with tempfile.TemporaryDirectory() as scratch:
            made[case.name] = digest(case.write(Path(scratch) / "ours"))
            np.savez_compressed(FOLDER / f"{case.name}.npz", logits=case.theirs(Path(scratch) / "theirs"))
    _ABOUT.write_text(json.dumps({"oracles": dict(WANTED.values()), "checkpoints": made}, indent=1) + "\n")
    print(f"{len(CASES)} cases, {sum(path.stat().st_size for path in FOLDER.iterdir()):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
