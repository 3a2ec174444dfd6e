"""Where a model named on the command line comes from: a folder, or a package that carries it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tensorfold.application.ports.checkpoints import RefusedError, WeightPackage

_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*(@[A-Za-z0-9][A-Za-z0-9._-]*)?")


def locate(model: str, package: WeightPackage, on_progress: Callable[[str], None]) -> Path:
    """The checkpoint folder of a model. Raises RefusedError with one sentence."""
    if model in package.names():
        return package.provide(model, on_progress)
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder
    if _REPO.fullmatch(model):
        raise RefusedError(
            f"{model} is not a folder here, and this version does not download from a hub yet: "
            f"give a checkpoint's folder, or one of {', '.join(package.names())}."
        )
    raise RefusedError(
        f"{model} is neither a folder, nor a repository such as owner/name, nor one of {', '.join(package.names())}."
    )


def served_name(model: str, name: str) -> str:
    """The id clients see: the flag's, or the last part of what was asked for."""
    if name:
        return name
    last = Path(model).name or Path(model).resolve().name
    return last if "/" not in model else last.split("@")[0]
