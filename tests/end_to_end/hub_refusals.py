"""Repositories, hubs and environments from which nothing may be downloaded: each with the words of its one line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.huggingface.hubs import REPO, TOKEN, config_of
from tests.end_to_end.hub_place import CONFIGS, FILES, NO_HUB, SHARDS, Figures, place
from tests.fakes.families import family_with_a_side_file
from tests.fakes.hub_server import Entries, HubServer


@dataclass(frozen=True, slots=True)
class Refusal:
    """A hub that is set up so that the model must be refused. `says` are words of the sentence.

    `asks` are files beyond the configuration that may have been asked for: the index must be read to be found bad.
    """

    name: str
    says: str
    prepare: Callable[[HubServer], None] = lambda hub: None
    model: str = REPO
    variables: Mapping[str, str] = field(default_factory=dict)
    asks: frozenset[str] = frozenset()
    side_file: str = ""
    commands: tuple[str, ...] = ("pull", "serve")

    def __str__(self) -> str:
        return self.name


def _files(files: Mapping[str, bytes], **settings: Any) -> Callable[[HubServer], None]:
    def prepare(hub: HubServer) -> None:
        hub.repositories.clear()
        hub.add(REPO, files, **settings)

    return prepare


def _without(*names: str) -> dict[str, bytes]:
    return {name: data for name, data in FILES.items() if name not in names}


def _listed(change: Callable[[Entries], Any]) -> Callable[[HubServer], None]:
    def prepare(hub: HubServer) -> None:
        hub.mischief.entries = change

    return prepare


def _more(path: str) -> Callable[[HubServer], None]:
    return _listed(lambda entries: [*entries, {"type": "file", "path": path, "size": 1, "oid": "0" * 40}])


def _config(**changes: Any) -> Callable[[HubServer], None]:
    return _files({**FILES, "config.json": config_of(FILES, **changes)})


def _of_first_shard(**fields: Any) -> Callable[[HubServer], None]:
    return _listed(lambda entries: [e | fields if e["path"] == SHARDS[0] else e for e in entries])


def _placed_in(target: str) -> Callable[[HubServer], None]:
    index = json.loads(FILES["model.safetensors.index.json"])
    index["weight_map"][next(iter(index["weight_map"]))] = target
    return _files({**FILES, "model.safetensors.index.json": json.dumps(index).encode()})


def _known_token(hub: HubServer) -> None:
    hub.tokens = (TOKEN,)
    hub.repositories[REPO].gated = True


def _huge(hub: HubServer) -> None:
    _of_first_shard(size=_HUGE, lfs={"oid": "0" * 64, "size": _HUGE})(hub)


_SMALL = frozenset({"tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json"})
_HUGE = 1 << 49
_FIRST = len(FILES[SHARDS[0]])
_KEYED = {"HF_TOKEN": TOKEN}
REFUSALS = (
    Refusal("missing shard", f"has not all of its weights on the hub: {SHARDS[1]}", _files(_without(SHARDS[1]))),
    Refusal("missing tokenizer", "lacks tokenizer.json on the hub", _files(_without("tokenizer.json"))),
    Refusal("missing side file", "lacks mtp-4bit.safetensors on the hub", side_file="mtp-4bit.safetensors"),
    Refusal("traversal in the list", "leads out of the folder", _more("../../.ssh/authorized_keys")),
    Refusal("absolute path in the list", "leads out of the folder", _more("/etc/cron.d/evil")),
    Refusal("symlink in the list", "is no file but a link", _of_first_shard(type="symlink")),
    Refusal("path for a digest", "states no digest", _of_first_shard(lfs={"oid": "../../../x", "size": _FIRST})),
    Refusal("two sizes", "states two sizes", _of_first_shard(size=7)),
    Refusal("traversal in the index", "a shard is a plain file", _placed_in("../../x.safetensors"), asks=_SMALL),
    Refusal("absolute path in the index", "a shard is a plain file name", _placed_in("/x.safetensors"), asks=_SMALL),
    Refusal("shard of the index that is not there", "lacks x.safetensors", _placed_in("x.safetensors"), asks=_SMALL),
    Refusal("gated without a token", "is gated; accept its terms on its page", _files(FILES, gated=True)),
    Refusal("gated for this token", "has not been let in", _known_token, variables=_KEYED),
    Refusal("bad token", "does not take the token in HF_TOKEN", _files(FILES, gated=True), variables=_KEYED),
    Refusal("unknown repository", "the hub shows no such repository", model="nobody/nothing"),
    Refusal("private repository", "the hub shows no such repository", _files(FILES, private=True)),
    Refusal("unknown revision", "no such revision", model=f"{REPO}@nope"),
    Refusal("no checkpoint", "has no config.json on the hub", _files(_without("config.json"))),
    Refusal("offline", "and HF_HUB_OFFLINE forbids asking the hub", variables={"HF_HUB_OFFLINE": "1"}),
    Refusal("no hub", "nothing listens there", variables={"HF_ENDPOINT": NO_HUB}),
    Refusal("disk too small", "make room, or name another place in HF_HUB_CACHE", _huge, asks=_SMALL),
    Refusal("config of another family", "lacks layer_norm_epsilon", _config(model_type="nemotron_h")),
    Refusal("config of a third family", "lacks linear_num_key_heads", _config(model_type="qwen3_5")),
    Refusal("format that is not read", "quant_method 'awq'", _config(quantization_config={"quant_method": "awq"})),
    Refusal("sizes that cannot be", "hidden_size", _config(hidden_size=-1)),
    Refusal("config that is not JSON", "is not valid JSON", _files({**FILES, "config.json": b"{"})),
    Refusal("unknown family", "no family known here", _config(model_type="x"), commands=("serve",)),
    Refusal("two dashes in a name", "is no name of a repository", model="a--b/c"),
    Refusal("no name at all", "is not a repository such as owner/name", model="nothing", commands=("pull",)),
)


def refuse(refusal: Refusal, command: str, home: Path, figures: Figures) -> None:
    """One command against one hub: one line, exit 1, nothing but the configuration asked for."""
    where = f"{command}, {refusal.name}"
    with place(home) as here, pytest.MonkeyPatch.context() as patch:
        if refusal.side_file:
            family_with_a_side_file(patch, refusal.side_file)
        refusal.prepare(here.hub)
        words = [command, refusal.model, *(["--port", "0"] if command == "serve" else [])]
        ran = here.here(*words, **refusal.variables)
        asked = set(here.hub.files_asked())
        figures.refusals += 1
        figures.config_only += asked <= CONFIGS
        figures.weight_bytes += here.hub.weights_asked()
    # A line that says what is being done may stand on stdout before the refusal; stderr has the refusal alone.
    faults = [fault for fault in ran.refusal_faults() if not fault.startswith("stdout")]
    figures.faults += [f"{where}: {fault}" for fault in faults]
    if refusal.says not in ran.err:
        figures.faults.append(f"{where}: it does not say {refusal.says!r}: {ran.err}")
    if asked - CONFIGS - refusal.asks:
        figures.faults.append(f"{where}: it asked for {sorted(asked - CONFIGS)}")
    if TOKEN in ran.err + ran.out or "library" in ran.err + ran.out:
        figures.faults.append(f"{where}: words of the hub's or a token are shown: {ran.err}")
