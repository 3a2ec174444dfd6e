"""From a body and one call's types to a C++ file: the signature that MLX would generate, and the body inside it.

MLX declares only what the body names: `x_shape`, `x_strides`, `x_ndim`, and attributes such as
`thread_position_in_grid`. Functions of the header see none of them. The same is done here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

TRIPLES = {
    "thread_position_in_grid": "grid",
    "thread_position_in_threadgroup": "local",
    "threadgroup_position_in_grid": "group",
    "threads_per_threadgroup": "size",
    "dispatch_threads_per_threadgroup": "full",
    "threads_per_grid": "threads",
    "threadgroups_per_grid": "groups",
}
SCALARS = {
    "thread_index_in_threadgroup": "emu::place().index",
    "thread_index_in_simdgroup": "emu::place().lane",
    "simdgroup_index_in_threadgroup": "emu::place().simdgroup",
    "simdgroups_per_threadgroup": "emu::place().simdgroups",
    "threads_per_simdgroup": "32u",
}
ATTRIBUTES = {
    **{name: ("uint3", f"emu::triple(emu::place().{field})") for name, field in TRIPLES.items()},
    **{name: ("uint", value) for name, value in SCALARS.items()},
}
TILE = re.compile(r"(?<![\w*])threadgroup\s+([A-Za-z_]\w*(?:\s*<[^;{}()]*?>)?)\s+(\w+)\s*((?:\[[^;\]]*\])+)\s*;")


@dataclass(frozen=True, slots=True)
class Argument:
    """One input: its Metal type, and whether it is a single value or an array."""

    name: str
    type: str
    ndim: int


def names(text: str, word: str) -> bool:
    """Whether MLX would find this word in `text`: it looks for the letters alone."""
    return word in text


def with_tiles(body: str) -> str:
    """The body with its threadgroup arrays taken from the machine; line numbers stay."""
    return TILE.sub(r"EMU_TILE(\1, \2, \3);", body)


SHAPE_WORDS = {"_shape": "const int*", "_strides": "const int64_t*", "_ndim": "const int&"}


def shape_words(body: str, argument: Argument) -> list[str]:
    """Which of an input's `_shape`, `_strides`, `_ndim` the body asks for; MLX puts them behind the input."""
    return [word for word in SHAPE_WORDS if argument.ndim and names(body, argument.name + word)]


def translate(
    body: str,
    header: str,
    inputs: Sequence[Argument],
    outputs: Sequence[tuple[str, str]],
    template: Mapping[str, tuple[str, str]],
) -> str:
    """The C++ file. `outputs` are (name, type); `template` gives each parameter's kind and value.

    The file exports `entry(void** buffers)`: inputs, each with what is asked about its shape behind it, then outputs.
    """
    parameters: list[tuple[str, str]] = []
    for argument in inputs:
        parameters.append((f"const {argument.type}{'*' if argument.ndim else '&'}", argument.name))
        parameters += [(SHAPE_WORDS[word], argument.name + word) for word in shape_words(body, argument)]
    parameters += [(f"{kind}*", name) for name, kind in outputs]
    passed = [
        f"*static_cast<{kind[:-1]}*>(buffers[{i}])" if kind.endswith("&") else f"static_cast<{kind}>(buffers[{i}])"
        for i, (kind, _) in enumerate(parameters)
    ]
    for name, (kind, value) in sorted(ATTRIBUTES.items()):
        if names(body, name):
            parameters.append((kind, name))
            passed.append(value)
    declared = ", ".join(f"{kind} {name}" for name, (kind, _) in template.items())
    called = f"body<{', '.join(value for _, value in template.values())}>" if template else "body"
    return "\n".join(
        [
            '#include "metal_on_cpu.h"',
            "using namespace metal;",
            '#line 1 "header"',
            header,
            f"template <{declared}>" if template else "",
            f"static void body({', '.join(f'{kind} {name}' for kind, name in parameters)}) {{",
            '#line 1 "body"',
            with_tiles(body),
            "}",
            f'extern "C" void entry(void** buffers) {{ {called}({", ".join(passed)}); }}',
        ]
    )
