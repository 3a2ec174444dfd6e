"""A layout that a family does not read costs its config.json alone, whichever command meets it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tensorfold.domain.families import dflash2, nemotron_h, qwen3_5
from tests.adapters.huggingface.hubs import REPO
from tests.domain.families.sheet_facts import FOUR_64
from tests.domain.families.test_refusals import EXL3, REFUSED, stored
from tests.end_to_end.hub_place import CONFIGS, FILES, Place, place

ON_MLX = [case for case in REFUSED if case[1] == "mlx"]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Place]:
    with place(tmp_path) as made:
        yield made


def publish(here: Place, config: dict[str, Any]) -> None:
    here.hub.repositories.clear()
    here.hub.add(REPO, {**FILES, "config.json": json.dumps(config).encode()})


@pytest.mark.slow
def test_another_layout_is_refused_before_a_byte_beyond_its_config(here: Place) -> None:
    for module, _, block, reads, states in ON_MLX:
        publish(here, stored(module, block))
        for command in ("pull", "serve"):
            ran = here.here(command, REPO)
            assert ran.refusal_faults() == []
            assert ran.err == f"tensorfold: {reads}, but config.json {states}\n"
    assert here.hub.weights_asked() == 0
    assert set(here.hub.files_asked()) <= CONFIGS


def test_info_tells_a_refused_layout_with_both_reasons(here: Place) -> None:
    publish(here, stored(nemotron_h, None))
    said = here.here("info", REPO).out.splitlines()
    assert "  backends      none" in said
    for name in ("MLX", "CUDA"):
        reads = f"Nemotron 3.5 Lightning is read by {name} in 4 bits in groups of 64"
        assert any(line.startswith(f"  not {name.lower():10}{reads}, but config.json states no ") for line in said)


def test_exl3_and_a_missing_side_file_are_refused_before_weights(here: Place) -> None:
    cases = {
        "Qwen3.8-27B in EXL3 is experimental and not served by this version": stored(qwen3_5, None, EXL3),
        "org/model lacks mtp-4bit.safetensors on the hub, without which it cannot be": stored(nemotron_h, FOUR_64),
        "gives mask_token_id as -1": dflash2.CONFIG
        | {"dflash_config": dflash2.CONFIG["dflash_config"] | {"mask_token_id": -1}},
    }
    for says, config in cases.items():
        publish(here, config)
        ran = here.here("pull", REPO)
        assert ran.refusal_faults() == [] and says in ran.err
    assert here.hub.weights_asked() == 0


def test_a_drafter_is_refused_by_serve_and_taken_by_pull(here: Place) -> None:
    publish(here, dflash2.CONFIG)
    ran = here.here("serve", REPO)
    assert ran.refusal_faults() == [] and "Qwen3.8-27B's drafter, which serves nothing alone" in ran.err
    assert here.hub.weights_asked() == 0
    pulled = here.here("pull", REPO)
    assert (pulled.code, pulled.err) == (0, "")
    assert pulled.out.splitlines()[-1] == "[tensorfold] org/model: it is a DFlash2 drafter for Qwen3.8-27B"
