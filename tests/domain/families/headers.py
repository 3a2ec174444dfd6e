"""Writes the headers a checkpoint would have for a tensor map: any prefix, any of the published forms, any storage."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tensorfold.domain.families.storage import Layout, TensorHeader
from tensorfold.domain.families.tensors import Slot, Source, TensorMap

Headers = dict[str, TensorHeader]


def header(name: str, dtype: str, shape: Iterable[int]) -> TensorHeader:
    """A header whose bytes stand nowhere."""
    return TensorHeader(name, dtype, tuple(shape), "model.safetensors", 0, 0)


def written(
    table: TensorMap,
    *,
    prefix: Callable[[str], str] = lambda path: "",
    prefer: tuple[str, ...] = (),
    layout: Layout | None = None,
    router: Layout | None = None,
    dtype: str = "BF16",
    swap: bool = False,
    without: tuple[str, ...] = (),
) -> Headers:
    """Headers of every slot whose path starts with none of `without`.

    A slot is written in the first of its forms whose name holds one of `prefer`, else in its first form; matrices are
    affine when there is a layout.
    """
    found: Headers = {}
    for path, slot in table.slots.items():
        if path.startswith(without):
            continue
        source = _form(slot, prefer)
        for name in _names(prefix(path) + source.name, slot):
            affine = router or layout if slot.weight.rule == "router" else layout
            quantized = affine if source.module and slot.weight.rule in ("matrix", "router") else None
            found |= _module(name, slot, source, quantized, dtype, swap)
    return found


def _form(slot: Slot, prefer: tuple[str, ...]) -> Source:
    chosen = (s for s in slot.sources if any(word in s.name for word in prefer))
    return next(chosen, slot.sources[0])


def _names(name: str, slot: Slot) -> list[str]:
    return [name.replace("{e}", str(e)) for e in range(slot.shape[0])] if "{e}" in name else [name]


def _module(name: str, slot: Slot, source: Source, layout: Layout | None, dtype: str, swap: bool) -> Headers:
    shape = source.stored or (slot.shape[1:] if "{e}" in source.name else slot.shape)
    if (slot.weight.rule == "conv" and swap) or source.transposed:
        shape = (*shape[:-2], shape[-1], shape[-2])
    weight = f"{name}.weight" if source.module else name
    listed = [header(weight, "I64" if slot.weight.rule == "integer" else dtype, shape)]
    if layout is not None:
        listed = [
            header(weight, "U32", (*shape[:-1], shape[-1] * layout.bits // 32)),
            header(f"{name}.scales", dtype, (*shape[:-1], shape[-1] // layout.group)),
            header(f"{name}.biases", dtype, (*shape[:-1], shape[-1] // layout.group)),
        ]
    if slot.weight.bias:
        listed.append(header(f"{name}.bias", dtype, slot.weight.bias_shape(shape)))
    return {h.name: h for h in listed}
