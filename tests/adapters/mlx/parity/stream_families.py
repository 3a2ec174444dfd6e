"""The families of several residual streams through transformers, in float32, and the kept logits of that.

`python -m tests.adapters.mlx.parity.stream_families` makes them anew, where transformers and torch are installed. They
load the original publication's names themselves, so names, layouts and arithmetic are theirs alone. Other families
stand in `families.py`; these choose keys by score, where ties need a rule, and begin anew at tokens that end a segment.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.adapters.mlx.parity.oracles import lacking
from tests.synthetic.plan_checkpoints import write_checkpoint
from tests.synthetic.tiny_configs import VOCABULARY, text_part, tiny

Logits = NDArray[np.float32]
TOKENS = 80
FOLDER = Path(__file__).parent / "golden" / "stream_families"
_ABOUT = FOLDER / "about.json"
_STOP = 2


@dataclass(frozen=True, slots=True)
class StreamsCase:
    """A family's tiny checkpoint with `fields` changed, and how transformers spells what it spells otherwise."""

    family: str
    seed: int
    fields: Mapping[str, Any]

    def config(self) -> dict[str, Any]:
        """The config.json of the checkpoint; its own head of drafts, which transformers does not have, is left out."""
        return tiny(self.family, **self.fields)

    def write(self, folder: Path) -> Path:
        """The checkpoint as it was first published."""
        return write_checkpoint(folder, self.config(), self.seed, "hf")

    def tokens(self) -> list[int]:
        """The ids that are fed; some end a segment, two of them in a row."""
        generator = np.random.Generator(np.random.PCG64(2_000 + self.seed))
        ids = (3 + generator.random(TOKENS) * (VOCABULARY - 3)).astype(np.int64)
        ids[[9, 10, 23, 47, 48]] = _STOP
        return [int(token) for token in ids]

    def digest(self) -> str:
        """SHA-256 of the checkpoint's files and the ids: kept logits of other bytes prove nothing."""
        digest = hashlib.sha256(json.dumps(self.tokens()).encode())
        with tempfile.TemporaryDirectory() as scratch:
            for file in sorted(self.write(Path(scratch) / "one").glob("*.safetensors")):
                digest.update(file.read_bytes())
        return digest.hexdigest()


CASES = (
    StreamsCase("qwen4_exp", 41, {"num_hidden_layers": 4, "mtp_num_hidden_layers": 0}),
    StreamsCase(
        "glm5_next",
        42,
        {
            "num_hidden_layers": 4,
            "layer_types": ["linear_attention"] * 3 + ["indexed_attention"],
            "mlp_layer_types": ["dense"] + ["sparse"] * 3,
            "num_nextn_predict_layers": 0,
        },
    ),
)


def by_transformers(case: StreamsCase, folder: Path) -> Logits:
    """transformers' logits [T, V] of a whole sequence."""
    torch = importlib.import_module("torch")
    path = case.write(folder)
    model = _model(case, path)
    ties = torch.Tensor.topk
    # Where scores tie, torch leaves open which one it takes; the rule here is the lower id.
    torch.Tensor.topk = lambda scores, k, dim=-1: _stable(torch, scores, k, dim)
    try:
        with torch.no_grad():
            made: Logits = model(torch.tensor(case.tokens())[None]).logits[0].numpy()
    finally:
        torch.Tensor.topk = ties
    return made


def _stable(torch: Any, scores: Any, count: int, dim: int) -> Any:
    order = torch.sort(scores, dim=dim, descending=True, stable=True)
    return torch.return_types.topk((order.values.narrow(dim, 0, count), order.indices.narrow(dim, 0, count)))


def _model(case: StreamsCase, path: Path) -> Any:
    torch, library = importlib.import_module("torch"), importlib.import_module("transformers")
    text = text_part(case.config())
    given = {"dtype": torch.float32, "attn_implementation": "eager"}
    if case.family == "qwen4_exp":
        return library.Qwen4ExpForCausalLM.from_pretrained(path, config=library.Qwen4ExpTextConfig(**text), **given)
    delta = text.pop("linear_attn_config")
    text |= {
        "linear_num_heads": delta["num_heads"],
        "linear_head_dim": delta["head_dim"],
        "linear_conv_kernel_dim": delta["short_conv_kernel_size"],
        "linear_lower_bound": delta["gate_lower_bound"],
    }
    # The checkpoint has no vision part; a small one is made up, and no id of the text reaches it.
    vision = {"depth": 1, "hidden_size": 32, "num_heads": 2, "intermediate_size": 32, "out_hidden_size": 64}
    config = library.Glm5NextConfig(text_config=text, vision_config=vision)
    return library.Glm5NextForConditionalGeneration.from_pretrained(path, config=config, **given)


def kept(case: StreamsCase) -> Logits:
    """The logits that transformers gave."""
    with np.load(FOLDER / f"{case.family}.npz") as file:
        made: Logits = file["transformers"]
    return made


def digests() -> Mapping[str, str]:
    """The digest of each case when its logits were made."""
    found: dict[str, str] = json.loads(_ABOUT.read_text())["checkpoints"]
    return found


def main() -> int:
    """Write every case's logits."""
    reason = lacking()
    if reason is not None:
        print(reason)
        return 1
    FOLDER.mkdir(exist_ok=True)
    for case in CASES:
        with tempfile.TemporaryDirectory() as scratch:
            made = by_transformers(case, Path(scratch) / "one")
        np.savez_compressed(FOLDER / f"{case.family}.npz", transformers=made)
        print(f"{case.family}: {made.shape}, largest {np.abs(made).max():.2f}")
    about = {"oracle": "transformers 5.23.0", "checkpoints": {case.family: case.digest() for case in CASES}}
    _ABOUT.write_text(json.dumps(about, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
