"""Torch, Triton and the compiler: whether they are here with a card that the kernels run on, and what names them.

Importing this module imports none of them. Every sentence names what mends what it refuses.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from tensorfold.kernels.cuda.compiler import library_paths

EXTRA = "pip install 'tensorfold[cuda]'"
LEAST_CAPABILITY = (8, 0)
"""Cards from Ampere on: those whose matrix units take bf16."""
LEAST_TORCH, LEAST_TRITON, PAST_TRITON = (2, 11), (3, 6), (3, 10)


@dataclass(frozen=True, slots=True)
class Runtime:
    """What rows are computed with: versions and card in words, and the card's compute capability."""

    version: str
    device: str
    capability: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Probe:
    """How this machine is asked, so that tests can answer. `found`: whether a module of that name is installed.

    `version` gives a module's, `seen` the number of cards that torch sees, `capability` the first card's, `compiler`
    whether NVRTC is here.
    """

    platform: str
    found: Callable[[str], bool]
    version: Callable[[str], str]
    seen: Callable[[], int]
    capability: Callable[[], tuple[int, int]]
    compiler: Callable[[], bool]


def missing(probe: Probe | None = None) -> str | None:
    """None when CUDA can run here, else one sentence with what to install or change."""
    asked = probe or _here()
    if not asked.platform.startswith("linux"):
        return "The CUDA backend runs on Linux alone: start with `--backend mlx`."
    for module, title in (("torch", "PyTorch"), ("triton", "Triton")):
        if not asked.found(module):
            return (
                f"{title} is not installed, without which nothing runs on CUDA: install the extra `cuda` (`{EXTRA}`)."
            )
    if not asked.compiler():
        return f"NVRTC is not installed, which compiles the CUDA kernels: install the extra `cuda` (`{EXTRA}`)."
    if not asked.seen():
        return "PyTorch sees no NVIDIA card: check the driver (`nvidia-smi`), and that this PyTorch is built for CUDA."
    return _too_old(asked)


def _too_old(asked: Probe) -> str | None:
    torch, triton = asked.version("torch"), asked.version("triton")
    if _numbers(torch) < LEAST_TORCH:
        return f"PyTorch {torch[:40]} is older than {_dotted(LEAST_TORCH)}: install the extra `cuda` (`{EXTRA}`)."
    if not LEAST_TRITON <= _numbers(triton) < PAST_TRITON:
        allowed = f"from {_dotted(LEAST_TRITON)} to below {_dotted(PAST_TRITON)}"
        return f"Triton {triton[:40]} is not {allowed}: install the extra `cuda` (`{EXTRA}`)."
    capability = asked.capability()
    if capability < LEAST_CAPABILITY:
        least = _dotted(LEAST_CAPABILITY)
        return f"The NVIDIA card here has compute capability {_dotted(capability)}; the kernels need {least} or newer."
    return None


def current() -> Runtime:
    """The runtime of this process; nothing may be missing."""
    import torch
    import triton

    cuda = cast(Any, torch).cuda
    major, minor = cuda.get_device_capability()
    built = cast(Any, torch).version.cuda
    version = f"torch {cast(Any, torch).__version__}, triton {triton.__version__}, cuda {built}"
    return Runtime(version, f"gpu {cuda.get_device_name()} sm_{major}{minor}", (int(major), int(minor)))


def _here() -> Probe:
    return Probe(sys.platform, _found, _version, _seen, _capability, lambda: bool(library_paths()) or _system_nvrtc())


def _found(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _version(module: str) -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version(module)
    except importlib.metadata.PackageNotFoundError:
        # A container's own build may have no metadata of its name.
        return str(getattr(importlib.import_module(module), "__version__", ""))


def _seen() -> int:
    import torch

    cuda = cast(Any, torch).cuda
    return int(cuda.device_count()) if cuda.is_available() else 0


def _capability() -> tuple[int, int]:
    import torch

    major, minor = cast(Any, torch).cuda.get_device_capability()
    return int(major), int(minor)


def _system_nvrtc() -> bool:
    """Whether a toolkit brings the compiler, where no wheel does."""
    import ctypes

    for name in ("libnvrtc.so.13", "libnvrtc.so.12"):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return False


def _numbers(version: str) -> tuple[int, ...]:
    """The first two numbers of a version; an unreadable one counts as the oldest."""
    numbers = []
    for part in version.split(".")[:2]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
