"""`python -m tests.kernels.triton.attention_compiled 90` compiles attention for that card, with no card here.

Each kernel with the form that its heads have there; what is under way may not take more shared memory than a block of
the card may have.
"""

from __future__ import annotations

import sys
from typing import Any

import triton  # type: ignore[import-not-found, unused-ignore]
from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found, unused-ignore]

from tensorfold.kernels.triton import attention, move_keys, place_rows, prompt_attention
from tensorfold.kernels.triton.attention import Form, form_of, launched
from tensorfold.kernels.triton.attention_merge import merge_parts
from tensorfold.kernels.triton.prompt_attention import PromptForm, prompt_form
from tests.kernels.triton.starting import with_start

HALF, FULL, WIDE, WORD, LONG, REAL = "*bf16", "*fp32", "*fp64", "*i32", "i32", "fp32"
TYPES = (HALF, FULL, WIDE, WORD, LONG, REAL)
Kinds = list[str | int | bool]
MEMORY = {80: 163 << 10, 90: 227 << 10, 100: 227 << 10, 120: 99 << 10}
"""Shared memory of one block, by architecture."""
ROWS = 64


def part(form: Form) -> Kinds:
    """The arguments of a unit's kernel."""
    sizes: Kinds = [form.heads, form.groups, form.width, form.dims, form.window > 0]
    sizes += [form.tile, form.per_tile, form.split]
    pointers = [*[HALF] * 3, *[WORD] * 6, *[FULL] * 3]
    return [*pointers, REAL, *[LONG] * 4, *sizes, form.parts, form.step, ROWS]


def merge(form: Form) -> Kinds:
    """Those of the merge."""
    heads: Kinds = [form.heads, form.groups, form.width, form.window > 0]
    return [*[FULL] * 3, WORD, HALF, HALF, REAL, *[LONG] * 3, *heads, form.parts, form.least, form.step, True, 64]


def place(form: Form, *, of_rows: bool) -> Kinds:
    """Those of the placing of rows, with gates, norms and a part of each head turned."""
    sizes: Kinds = [form.heads, form.groups, form.width, form.dims, True, 32, False, True, True, of_rows]
    pointers = [HALF, *[WORD] * 4, FULL, FULL, WIDE, *[HALF] * 3]
    return [*pointers, *[LONG] * 2, *[REAL] * 3, *sizes]


def plan(form: Form) -> Kinds:
    """Those of the plan."""
    cut: Kinds = [form.window > 0, form.groups * form.split, form.per_tile, form.parts, form.least, form.step]
    return [*[WORD] * 5, *[LONG] * 3, *cut, ROWS, ROWS]


def span(form: Form, cut: PromptForm) -> Kinds:
    """Those of a prompt's attention."""
    sizes: Kinds = [form.heads, form.groups, form.width, form.dims, form.window > 0, True]
    how: Kinds = [cut.tile, cut.step, cut.stages, cut.parted]
    return [*[HALF] * 3, WORD, HALF, HALF, REAL, *[LONG] * 5, *sizes, *how]


def compiled(kernel: Any, kinds: Kinds, architecture: int, warps: int, stages: int = 3) -> Any:
    """Machine code and what is known of it."""
    names, kinds = kernel.arg_names, with_start(kernel, kinds, architecture)
    assert len(names) == len(kinds), (len(names), len(kinds))
    signature = {n: k if k in TYPES else "constexpr" for n, k in zip(names, kinds, strict=True)}
    constants = {(i,): kind for i, kind in enumerate(kinds) if kind not in TYPES}
    aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(kinds) if str(kind).startswith("*")}
    source = triton.compiler.ASTSource(kernel, signature, constants, aligned)
    made = triton.compile(
        source, target=GPUTarget("cuda", architecture, 32), options={"num_warps": warps, "num_stages": stages}
    )
    assert made.asm["cubin"][:4] == b"\x7fELF"
    return made


if __name__ == "__main__":
    card = int(sys.argv[1])
    shapes = ((24, 4, 256, 0),) if card != 90 else ((24, 4, 256, 0), (32, 2, 128, 0), (32, 8, 128, 4096))
    for heads, groups, width, window in shapes:
        form = form_of(heads, groups, width, window, MEMORY[card], same_chains=card != 100)
        cut = prompt_form(width, MEMORY[card])
        few, large, split = launched(form, 1), launched(form, 63), launched(form, 64)
        kernels: dict[str, tuple[Any, Kinds, int, int]] = {
            "part": (attention._part, part(form), form.warps, form.stages),
            "part_few": (attention._part, part(few), few.warps, few.stages),
            "part_large": (attention._part, part(large), large.warps, large.stages),
            "part_split": (attention._part, part(split), split.warps, split.stages),
            "plan": (attention._plan, plan(form), 4, 3),
            "merge": (merge_parts, merge(form), 2, 3),
            "place": (place_rows._place, place(form, of_rows=True), 4, 3),
            "place_span": (place_rows._place, place(form, of_rows=False), 1, 3),
            "span": (prompt_attention._span, span(form, cut), cut.warps, 3),
        }
        if not form.large:
            del kernels["part_large"], kernels["part_split"]
        shown = kernels if width == 256 else {name: kernels[name] for name in ("part", "part_few", "span")}
        for name, (kernel, kinds, warps, stages) in shown.items():
            made = compiled(kernel, kinds, card, warps, stages)
            assert made.metadata.shared <= MEMORY[card], (name, form, cut, made.metadata.shared)
            if name == "place" and card >= 90:
                # What stands behind it reads early what stands before it wrote: it waits before it lets that start.
                ptx = made.asm["ptx"]
                assert ptx.index("griddepcontrol.wait") < ptx.index("griddepcontrol.launch_dependents")
            print(name, flush=True)
    compiled(move_keys._move, [WORD, WORD, HALF, HALF, LONG, LONG, 4, 256, 256, 16], card, 4)
    print("move", flush=True)
