"""The layouts in which each family is published: names, prefixes, axis orders, norms, and widths of affine codes."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tensorfold.domain.families.storage import Layout
from tensorfold.domain.families.tensors import Slot, Source


@dataclass(frozen=True, slots=True)
class Publication:
    """How one publication of a family writes its file.

    `body` stands before the names of the decoder, `outside` before `lm_head` and `mtp.`. Of several names of a slot
    the first or the last is taken, the first wherever the name fits one of `keep_first`. `converted` files have
    convolutions with swapped axes and plain norms. `side_files` puts slots into the table's side files.
    """

    body: str = ""
    outside: str = ""
    prefer: Literal["first", "last"] = "first"
    keep_first: tuple[str, ...] = ()
    converted: bool = False
    side_files: bool = False

    def source(self, slot: Slot) -> Source:
        """The way this publication writes a slot."""
        sources = slot.sources
        kept = any(fnmatch.fnmatch(sources[0].name, pattern) for pattern in self.keep_first)
        return sources[0] if self.prefer == "first" or kept else sources[-1]

    def prefix(self, name: str) -> str:
        """What stands before a name in the file."""
        return self.outside if name.startswith(("lm_head", "mtp.")) else self.body

    def adds_one(self, slot: Slot) -> bool:
        """Whether a reader will add one to this slot's stored values."""
        if slot.centring == "always":
            return True
        return slot.centring in ("by_conv_layout", "by_value") and not self.converted


@dataclass(frozen=True, slots=True)
class Quantized:
    """Affine codes: the layout of modules that fit no pattern, and by pattern of a module's path those that do.

    None is dense. Modules whose rows are no multiple of their group, and slots that must be dense, stay so.
    """

    default: Layout
    modules: Mapping[str, Layout | None] = field(default_factory=dict)

    def layout(self, module: str) -> Layout | None:
        """The layout of a module's path."""
        return next((lay for pattern, lay in self.modules.items() if fnmatch.fnmatch(module, pattern)), self.default)


_ORIGINAL = Publication("model.language_model.")
_CONVERTED = Publication("language_model.model.", "language_model.", converted=True)
PUBLICATIONS: Mapping[tuple[str, str], Publication] = {
    ("qwen3_5", "hf"): _ORIGINAL,
    # The head of drafts comes in a file of its own, as original tensors.
    ("qwen3_5", "mlx"): _CONVERTED,
    ("qwen4_exp", "hf"): Publication("model.language_model.", prefer="last", keep_first=("*ngram_embedding*",)),
    ("qwen4_exp", "mlx"): _CONVERTED,
    ("nemotron_h", "hf"): Publication(prefer="last"),
    ("nemotron_h", "mlx"): Publication(converted=True, side_files=True),
    ("glm5_next", "hf"): _ORIGINAL,
    ("glm5_next", "mlx"): _ORIGINAL,
    ("glm5_next", "mlx_stacked"): Publication(
        "language_model.model.", "language_model.", prefer="last", converted=True
    ),
    ("gemma4", "hf"): Publication("model.language_model.", prefer="last"),
    ("gemma4", "mlx"): Publication("language_model.model."),
}
LAYOUTS: Mapping[str, Quantized] = {
    "qwen3_5": Quantized(Layout(4, 64)),
    "qwen4_exp": Quantized(Layout(4, 32)),
    "nemotron_h": Quantized(Layout(4, 64)),
    "glm5_next": Quantized(Layout(4, 64), {"*self_attn.o_proj": Layout(8, 64), "*shared_experts*": Layout(6, 64)}),
    "gemma4": Quantized(Layout(4, 64), {"*router.proj": Layout(8, 64)}),
}
"""Each family's published affine layout, GLM's as its mixed conversions have it."""
