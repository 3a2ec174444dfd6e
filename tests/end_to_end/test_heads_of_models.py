"""Heads and drafters of a real backend under the real engine: replies and rows are the serial ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.adapters.mlx.backend import MlxBackend
from tensorfold.application.ports.backend import ModelCheckpoint
from tensorfold.application.ports.target_model import TargetModel
from tensorfold.application.replies import GenerationRequest
from tensorfold.application.settings import DraftSettings, EngineSettings
from tensorfold.domain.drafting.copies import CopySourceFactory
from tensorfold.domain.families.binding import resolve
from tensorfold.domain.families.storage import parse_quantization
from tensorfold.domain.sampling import Sampling
from tests.adapters.mlx.tiny_families import tiny_family, with_drafter
from tests.application.house import Read, read, serving
from tests.fakes.head_profiles import Profile
from tests.fakes.planted_heads import PlantedHeads
from tests.fakes.wrapped_model import WrappedModel

PROMPTS: tuple[tuple[int, ...], ...] = ((5, 9, 33, 7), (8, 8, 1), (100,))
ASKED = [
    (prompt, sampling) for prompt in PROMPTS for sampling in (Sampling(), Sampling(3, 1.0, 20, 0.95), Sampling(4, 0.7))
]
PROFILE = Profile(((0.9, 0.05), (0.8, 0.1), (0.7, 0.1)))
TOKENS, CONTEXT = 32, 128


class Kept(WrappedModel):
    """A model that outlives its engine."""

    def shutdown(self) -> None:
        """Nothing: another engine comes."""


@pytest.fixture(scope="module", params=["mtp", "drafter"])
def model(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TargetModel]:
    folder: Path = tmp_path_factory.mktemp(request.param)
    one = tiny_family(folder, "qwen3_5")
    if request.param == "drafter":
        one, _ = with_drafter(one, folder)
    facts = FolderReader().facts(one.folder)
    bound = resolve(one.plan, facts.tensors, parse_quantization(facts.config))
    loaded = MlxBackend(folder / "cache").load(
        ModelCheckpoint(one.plan, bound, facts, DraftSettings(drafter_bits=0), one.drafter),
        name="tiny",
        context=CONTEXT,
        max_streams=4,
        on_progress=lambda line: None,
    )
    assert loaded.limits.head is not None
    yield loaded
    loaded.shutdown()


def replies(model: TargetModel, *, draft: bool = True, force: bool = True) -> tuple[Sequence[Read], Any]:
    settings = EngineSettings(parallel=3, force_windows=force)
    with serving(Kept(model), settings=settings, sources=(CopySourceFactory(),), context=CONTEXT) as scheduler:
        asked = [GenerationRequest(prompt, s, TOKENS, draft=draft, audit=True) for prompt, s in ASKED]
        return [read(each) for each in [scheduler.submit(one) for one in asked]], scheduler.counters


@pytest.mark.slow
def test_what_a_real_head_drafts_changes_neither_tokens_nor_rows(model: TargetModel) -> None:
    serial, _ = replies(model, draft=False)
    known = {asked: tuple(one.ids) for asked, one in zip(ASKED, serial, strict=True)}
    planted = PlantedHeads(model, lambda prompt, sampling: known.get((prompt, sampling)), PROFILE)
    for served in (model, planted):
        for force in (True, False):
            got, counters = replies(served, force=force)
            assert [one.ids for one in got] == [one.ids for one in serial]
            assert [one.prints for one in got] == [one.prints for one in serial]
            assert counters.proposer_faults == 0
            if force:
                headed = sum(n for name, n in counters.drafted.items() if "head" in name)
                landed = sum(n for name, n in counters.kept.items() if "head" in name)
                assert headed > 50 and (served is model or landed > 50)
