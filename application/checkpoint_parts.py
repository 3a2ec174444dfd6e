"""Which files make a checkpoint: what to fetch of a repository, in which order, and what a folder still lacks.

Names are plain file names of the repository's top folder; nothing that could be executed is ever among them. Knows no
hub. Weights come last, so that a folder whose weights are all there has the rest too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorfold.application.ports.checkpoints import CheckpointReader, RefusedError
from tensorfold.domain.families.catalogue import find
from tensorfold.domain.families.listing import side_files

CONFIG = "config.json"
GENERATION = "generation_config.json"
TOKENIZER = "tokenizer.json"
INDEX = "model.safetensors.index.json"
WEIGHTS = "model.safetensors"
_MIB = 1 << 20
SMALL = {
    CONFIG: 4 * _MIB,
    GENERATION: 4 * _MIB,
    TOKENIZER: 128 * _MIB,
    "tokenizer_config.json": 16 * _MIB,
    "chat_template.jinja": 4 * _MIB,
    INDEX: 64 * _MIB,
}
"""Everything but weights, with the most bytes of each that are fetched: what its reader takes."""
_SUFFIX = ".safetensors"
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+=-]{0,200}")
_NUMBERED = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.safetensors")
_STEM = "model-"
_SHOWN = 6


class CheckpointParts:
    """The rule, over the reader of folders."""

    def __init__(self, reader: CheckpointReader) -> None:
        self._reader = reader

    def first(self, repo: str, config: Mapping[str, Any], listed: Mapping[str, int]) -> tuple[str, ...]:
        """Files to fetch before the weights; `listed` are the repository's files with their bytes.

        Raises RefusedError when the list itself shows that the checkpoint is not whole, or a file is too large.
        """
        self._refuse_missing(repo, config, [], listed)
        if gaps := _gaps([name for name in listed if INDEX not in listed or name.startswith(_STEM)]):
            raise RefusedError(
                f"{repo} has not all of its weights on the hub: {_named(gaps)} {'is' if len(gaps) == 1 else 'are'} "
                "not there; ask its publisher, or take another revision."
            )
        for name, most in SMALL.items():
            if listed.get(name, 0) > most:
                raise RefusedError(
                    f"{name} of {repo} has {listed[name]:,} bytes, more than the {most:,} that are read of it."
                )
        return tuple(name for name in SMALL if name in listed)

    def weights(self, repo: str, folder: Path, listed: Mapping[str, int]) -> tuple[str, ...]:
        """The weight files to fetch, once `first` lies in `folder`. Raises RefusedError when one is missing."""
        config = self._reader.config(folder)
        if INDEX in listed or WEIGHTS in listed:
            names = list(self._reader.weight_files(folder))
        elif find(config.get("model_type")) is None:
            names = sorted(name for name in listed if _is_weights(name))
        else:
            names = [WEIGHTS]
        if not names:
            raise RefusedError(f"{repo} holds no safetensors file, and only safetensors weights are read.")
        self._refuse_missing(repo, config, names, listed)
        return tuple(dict.fromkeys((*names, *side_files(config))))

    def missing(self, folder: Path) -> tuple[str, ...]:
        """What a folder with a config.json lacks of a whole checkpoint. Raises RefusedError for a bad one."""
        config = self._reader.config(folder)
        here = {path.name for path in folder.iterdir() if path.exists()}
        if INDEX in here or WEIGHTS in here or find(config.get("model_type")) is not None:
            names = list(self._reader.weight_files(folder))
        else:
            found = [name for name in here if _is_weights(name)]
            names = _gaps(found) if found else [WEIGHTS]
        return tuple(name for name in (*_required(config), *names) if name not in here)

    def size(self, folder: Path) -> int:
        """Bytes of the checkpoint's files in a whole folder."""
        config = self._reader.config(folder)
        here = {path.name for path in folder.iterdir() if path.exists()}
        names = {*SMALL, *side_files(config), *self._reader.weight_files(folder)} & here
        if not names & {WEIGHTS, INDEX}:
            names |= {name for name in here if _is_weights(name)}
        return sum((folder / name).stat().st_size for name in names)

    def _refuse_missing(
        self, repo: str, config: Mapping[str, Any], weights: Sequence[str], listed: Mapping[str, int]
    ) -> None:
        missing = [name for name in (*_required(config), *weights) if name not in listed]
        if missing:
            raise RefusedError(
                f"{repo} lacks {_named(missing)} on the hub, without which it cannot be served; ask its publisher, or "
                "take another revision."
            )


def is_part(name: str) -> bool:
    """Whether a file of that name could ever be fetched."""
    return name in SMALL or _is_weights(name)


def _required(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Files beside the weights that must be there; a drafter, whose family is not known here, needs no tokenizer."""
    tokenizer = (TOKENIZER,) if find(config.get("model_type")) is not None else ()
    return (CONFIG, *tokenizer, *side_files(config))


def _is_weights(name: str) -> bool:
    return name.endswith(_SUFFIX) and _PLAIN.fullmatch(name) is not None


def _gaps(names: Sequence[str]) -> list[str]:
    """Numbered weight files that the numbering of the others says there are, and that are not."""
    series: dict[tuple[str, str], set[str]] = {}
    for name in names:
        found = _NUMBERED.fullmatch(name) if _is_weights(name) else None
        if found:
            series.setdefault((found[1], found[3]), set()).add(found[2])
    gaps: list[str] = []
    for (stem, count), numbers in sorted(series.items()):
        # A count that no checkpoint has is a stranger's number: the index will say what is needed.
        if int(count) <= 1024:
            all_of = (f"{number:05}" for number in range(1, int(count) + 1))
            gaps += [f"{stem}-{number}-of-{count}{_SUFFIX}" for number in all_of if number not in numbers]
    return gaps


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown
