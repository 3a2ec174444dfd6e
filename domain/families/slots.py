"""Short spellings of the slots every family has, so that a family's tensor map reads as a table."""

from __future__ import annotations

from tensorfold.domain.families.tensors import Centring, Slot, Source, Split


def matrix(name: str, outputs: int, inputs: int, *, split: Split = "none", bias: bool = False) -> Slot:
    """A projection [outputs, inputs], dense or affine."""
    return Slot((name,), (outputs, inputs), split=split, bias=bias)


def norm(name: str, width: int, *, centring: Centring = "never") -> Slot:
    """A norm's weight [width], never quantized."""
    return Slot((name,), (width,), rule="plain", centring=centring)


def constant(name: str, *shape: int, split: Split = "none") -> Slot:
    """A small tensor without a module around it, kept in float32."""
    return Slot((Source(name, module=False),), shape, rule="float32", split=split)
