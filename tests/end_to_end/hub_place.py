"""A home, a loopback hub and the real command between them, in this process or in one of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.adapters.huggingface.hubs import REPO, servable_files
from tests.end_to_end.commands import Ran, environment, in_process
from tests.fakes.hub_server import HubServer, hub_server

FILES = servable_files()
SHARDS = tuple(sorted(name for name in FILES if name.endswith(".safetensors")))
WEIGHT_BYTES = sum(len(FILES[name]) for name in SHARDS)
CONFIGS = {"config.json", "generation_config.json"}
NO_HUB = "http://127.0.0.1:9"
LIMIT_S = 60.0


@dataclass
class Figures:
    """What the scenes add up to."""

    refusals: int = 0
    config_only: int = 0
    weight_bytes: int = 0
    resumed: int = 0
    twice: int = 0
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Place:
    """A hub, a home folder, and the command between them."""

    hub: HubServer
    home: Path

    @property
    def cache(self) -> Path:
        """The hub's cache."""
        return self.home / "hf" / "hub"

    def variables(self, **more: str) -> dict[str, str]:
        """The environment of a command."""
        return environment(self.home) | {"HF_ENDPOINT": self.hub.url, "HF_HOME": str(self.home / "hf"), **more}

    def start(self, *words: str, **more: str) -> subprocess.Popen[str]:
        """The command in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "tensorfold", *words],
            cwd=self.home,
            env=self.variables(**more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, **more: str) -> Ran:
        """The command in a process of its own, waited for."""
        began = time.monotonic()
        with self.start(*words, **more) as process:
            out, err = process.communicate(timeout=LIMIT_S)
        return Ran(process.returncode, out, err, time.monotonic() - began)

    def here(self, *words: str, **more: str) -> Ran:
        """The command in this process: what the hub's library read at its import is set for it."""
        from huggingface_hub import constants

        told = self.variables(**more)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(constants, "ENDPOINT", told["HF_ENDPOINT"])
            patch.setattr(constants, "HF_HUB_CACHE", str(self.cache))
            patch.setattr(constants, "HF_HUB_OFFLINE", told.get("HF_HUB_OFFLINE") == "1")
            patch.setattr(constants, "HF_TOKEN_PATH", str(self.home / "token"))
            for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
                patch.delenv(name, raising=False)
            if "HF_TOKEN" in told:
                patch.setenv("HF_TOKEN", told["HF_TOKEN"])
            patch.setenv("XDG_CACHE_HOME", told["XDG_CACHE_HOME"])
            patch.setenv("TENSORFOLD_NO_UPDATE_CHECK", "1")
            return in_process(words)

    def snapshot(self, revision: str = "main") -> dict[str, bytes]:
        """Contents of what a branch points to in the cache; empty where there is none."""
        root = self.cache / "models--org--model"
        ref = root / "refs" / revision
        folder = root / "snapshots" / ref.read_text() if ref.exists() else root / "none"
        return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


@contextmanager
def place(home: Path) -> Iterator[Place]:
    """A hub with the model, and an empty home."""
    home.mkdir(parents=True, exist_ok=True)
    with hub_server() as hub:
        hub.add(REPO, FILES)
        yield Place(hub, home)
