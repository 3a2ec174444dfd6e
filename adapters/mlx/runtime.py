"""The MLX library itself: whether it is here and new enough, and what names the device it runs on.

Importing this module does not import MLX. Every sentence names the command that mends what it refuses.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import sys
from dataclasses import dataclass

from tensorfold.domain.families.device_limits import apple_generation
from tensorfold.kernels.cpu.workers import processors

LEAST = (0, 32, 2)
_PACKAGE = "'mlx>=0.32.2'" if sys.platform == "darwin" else "'mlx[cpu]>=0.32.2'"
INSTALL = f"pip install -U {_PACKAGE}"


@dataclass(frozen=True, slots=True)
class Runtime:
    """What rows are computed with. `memory` is the machine's RAM in bytes.

    `cpu` tells whether MLX's device is a processor, `metal` whether it is a GPU that our own kernels may run on.
    """

    version: str
    device: str
    cpu: bool
    memory: int
    metal: bool = False

    @property
    def place(self) -> str:
        """The device in a sentence."""
        return "this CPU" if self.cpu else "this GPU"

    @property
    def apple_generation(self) -> int:
        """The number in the name of an Apple GPU that rows are computed on; 0 for anything else."""
        return apple_generation(self.device)


def missing() -> str | None:
    """None when MLX can run here, else one sentence with the line that installs it."""
    try:
        importlib.import_module("mlx.core")
    except ImportError:
        return f"MLX is not installed for this machine: run `{INSTALL}`."
    version = _version()
    if _numbers(version) < LEAST:
        least = ".".join(map(str, LEAST))
        return f"MLX {version} is older than {least}, the oldest that is read here: run `{INSTALL}`."
    return None


def current() -> Runtime:
    """The runtime of this process; MLX must not be missing."""
    import mlx.core as mx
    import numpy as np

    cpu = mx.default_device().type == mx.DeviceType.cpu
    version = f"mlx {_version()}, numpy {np.__version__}" if cpu else f"mlx {_version()}"
    name = str(mx.device_info().get("device_name", platform.machine()))
    device = f"cpu {name}, {processors()} threads" if cpu else f"gpu {name}"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Runtime(version, device, cpu, memory, metal=not cpu and mx.metal.is_available())


def _version() -> str:
    module = importlib.import_module("mlx.core")
    return str(getattr(module, "__version__", ""))


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version; an unreadable one counts as the oldest."""
    numbers = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)
