"""A hub adapter over the loopback hub, with a cache below a folder of its own, that waits for nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.adapters.huggingface.hub import HuggingFaceHub
from tensorfold.adapters.huggingface.settings import HubSettings
from tensorfold.application.checkpoint_parts import CheckpointParts
from tests.fakes.hub_server import HubServer
from tests.fakes.machine import FakeDisk
from tests.synthetic.servable import SERVABLE, write_servable

REPO = "org/model"
TOKEN = "hub_secretToken42"


@cache
def servable_files(shards: int = 3) -> Mapping[str, bytes]:
    """A checkpoint that can be served, in so many shards, as its repository's files."""
    with TemporaryDirectory() as made:
        write_servable(Path(made), replace(SERVABLE, shards=shards))
        return {path.name: path.read_bytes() for path in Path(made).iterdir()}


def settings_for(server: HubServer, folder: Path, **changes: Any) -> HubSettings:
    """Settings of a hub whose cache is below `folder`."""
    from huggingface_hub import get_session

    settings = HubSettings(
        endpoint=server.url,
        cache=folder / "hub",
        offline=False,
        timeout=5.0,
        session=get_session,
        token=lambda: None,
        waits=(0.0,) * 5,
    )
    return replace(settings, **changes)


def hub_over(server: HubServer, folder: Path, disk: FakeDisk | None = None, **changes: Any) -> HuggingFaceHub:
    """The adapter. `changes` go into its settings."""
    reader = FolderReader()
    return HuggingFaceHub(
        settings_for(server, folder, **changes),
        reader,
        CheckpointParts(reader),
        disk or FakeDisk(),
        pause=lambda seconds: None,
    )


def config_of(files: Mapping[str, bytes], **changes: Any) -> bytes:
    """config.json with other fields."""
    return json.dumps(json.loads(files["config.json"]) | changes).encode()


def parts_of(cache: Path) -> list[int]:
    """Bytes of the files that are under way in the one repository of a cache."""
    sizes = []
    for path in (cache / "models--org--model" / "blobs").glob("*.incomplete"):
        # One that is just being finished is none.
        with suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return sizes
