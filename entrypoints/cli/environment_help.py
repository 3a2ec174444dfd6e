"""What each command reads from the environment, for the end of its help. Nothing is read here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

MEANINGS: Final[Mapping[str, str]] = {
    "TENSORFOLD_API_KEY": "holds keys, separated by commas",
    "TENSORFOLD_NO_UPDATE_CHECK": "(1) looks for no newer release",
    "TENSORFOLD_PROJECT_URL": "(https://HOST/OWNER/NAME) is where releases are looked for",
    "TENSORFOLD_REQUEST_LOG": "names a file that the bodies of requests are appended to",
    "TENSORFOLD_SEED_SALT": "is an integer mixed into the seed of requests without one",
    "TENSORFOLD_NO_LIVE": "(1) draws no live line on a terminal",
    "TENSORFOLD_MEMORY_LIMIT_GB": "(GiB) lowers the memory budget",
    "TENSORFOLD_CUDA_MEMORY_LIMIT_GB": "(GiB) lowers what is taken of a card",
    "TENSORFOLD_MEMORY_RESERVE_GIB": "(GiB, at least 2) is what a card leaves to others",
    "HF_HUB_CACHE": "(~/.cache/huggingface/hub) is where downloads lie",
    "HF_TOKEN": "opens gated repositories",
    "HF_ENDPOINT": "names another hub",
    "HF_HUB_OFFLINE": "(1) asks no hub",
    "XDG_CACHE_HOME": "(~/.cache) is where converted models, load checks and records of --recall are kept",
}
HUB: Final = ("HF_HUB_CACHE", "HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE")
CACHE: Final = ("XDG_CACHE_HOME",)
MEMORY: Final = (
    "TENSORFOLD_MEMORY_LIMIT_GB",
    "TENSORFOLD_CUDA_MEMORY_LIMIT_GB",
    "TENSORFOLD_MEMORY_RESERVE_GIB",
)
READ: Final[Mapping[str, Sequence[str]]] = {
    "serve": tuple(MEANINGS),
    "pull": (*HUB, *CACHE),
    "models": ("HF_HUB_CACHE", *CACHE),
    "info": (*HUB, *CACHE),
    "update": ("TENSORFOLD_PROJECT_URL", *CACHE),
    "verify": (*MEMORY, *HUB, *CACHE),
    "bench": (*MEMORY, *HUB, *CACHE),
}
"""Variables by command, as the pages of the commands describe them."""


def shown(command: str) -> str:
    """The variables of a command, one sentence."""
    return f"Environment: {'; '.join(f'{name} {MEANINGS[name]}' for name in READ[command])}."
