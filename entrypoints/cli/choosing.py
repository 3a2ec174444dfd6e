"""Which backend a command runs on: the one that was asked for, else the best that can run here, and why in words.

What was asked for by name is never replaced. Nothing but the libraries' presence is looked at.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.catalogue import Backend
from tensorfold.entrypoints.container import Container
from tensorfold.entrypoints.settings import BackendChoice, RunSettings, cache_folder, run_settings

ASKED = "chosen by --backend"


def choose_backend(asked: str, container: Container, platform: str = sys.platform) -> BackendChoice:
    """The backend for `--backend`. Raises RefusedError where `auto` finds none that can run.

    A backend that was named is checked when the model is opened: other flags may be refused first.
    """
    if asked != "auto":
        return BackendChoice(_named(asked), ASKED)
    if platform == "darwin":
        return BackendChoice("mlx", "auto takes MLX on a Mac")
    if (no_cuda := container.backend("cuda").missing()) is None:
        return BackendChoice("cuda", "auto takes CUDA where there is a card")
    if (no_mlx := container.backend("mlx").missing()) is None:
        return BackendChoice("mlx", f"auto; no CUDA, since {_clause(no_cuda)}")
    raise RefusedError(f"Nothing here can run a model. For an NVIDIA card: {no_cuda} For the processor: {no_mlx}")


def run_with_backend(flags: argparse.Namespace, environment: Mapping[str, str]) -> tuple[RunSettings, Container]:
    """A command's settings and services, with its backend chosen. Raises RefusedError."""
    container = Container(cache=cache_folder(environment))
    return run_settings(flags, environment, choose_backend(flags.backend, container)), container


def _named(asked: str) -> Backend:
    return "cuda" if asked == "cuda" else "mlx"


def _clause(sentence: str) -> str:
    """The first part of a refusal, as it stands inside another sentence."""
    return sentence.split(",")[0].split(": ")[0].removesuffix(".")
