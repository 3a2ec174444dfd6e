"""The door for a third form of matrix products, on the tensor units of M5-class GPUs: not built yet.

Such a form would enter `affine_matmul` beside the other two, for groups of 64 and window widths the load check allows,
and only where it gives their bits; nothing is known here about its order of sums. The probe says whether a machine has
the units, so that a report can name what is left unused.
"""

from __future__ import annotations

import re

import mlx.core as mx

FIRST_GENERATION = 17


def present() -> bool:
    """Whether the GPU is of a generation with tensor units, by MLX's name of its architecture ("applegpu_g17s")."""
    if not mx.metal.is_available():
        return False
    return generation(str(mx.device_info(mx.gpu).get("architecture", ""))) >= FIRST_GENERATION


def generation(architecture: str) -> int:
    """The number in an architecture's name, 0 where there is none."""
    found = re.fullmatch(r"applegpu_g(\d+)[a-z]*", architecture)
    return int(found.group(1)) if found else 0
