"""From a described checkpoint to pools on a card: before a weight is read, and told in the startup report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tensorfold.application.loading import Described, check_config
from tensorfold.application.memory_planning import PlannedMemory, plan_memory, settled
from tensorfold.application.pooled_admission import PooledAdmission
from tensorfold.application.ports.backend import ModelCheckpoint
from tensorfold.application.ports.checkpoints import CheckpointFacts, RefusedError
from tensorfold.application.prompt_keeping import ChunkMemory, KeepingPlan, PromptKeeping, kept_ends
from tensorfold.application.settings import PUBLISHED, MemorySettings, PromptSettings
from tensorfold.domain.families import nemotron_h, qwen3_5
from tensorfold.domain.families.generation_defaults import read_generation
from tensorfold.domain.memory.budgets import GIB, Card, Machine
from tensorfold.domain.memory.cuda_footprint import cuda_footprint
from tensorfold.domain.memory.plan import Footprint
from tensorfold.domain.prompts.markers import Markers
from tests.application.house import MachineClock
from tests.application.prompt_house import model
from tests.application.test_prompt_keeping import Remembered
from tests.domain.memory.cuda_models import H200, SHARED, bound_of, card_of
from tests.fakes.backend import FakeBackend
from tests.fakes.machine import FakeMemory

QUANTIZED = {"quantization": {"bits": 4, "group_size": 64}}


class OnCard(FakeBackend):
    """A backend on a card that exists in figures alone."""

    def __init__(self, card: Card) -> None:
        super().__init__(lambda context, streams: model(), name="cuda")
        self.card = card

    def machine(self) -> Machine:
        return Machine(128 * GIB, card=self.card)

    def footprint(self, checkpoint: ModelCheckpoint) -> Footprint:
        return cuda_footprint(checkpoint.plan, checkpoint.bound, head=checkpoint.drafts.mtp_drafts != 0)


def planned(
    module: Any = nemotron_h,
    card: Card = H200,
    asked: int | None = None,
    settings: MemorySettings | None = None,
    **more: int,
) -> PlannedMemory:
    config = module.CONFIG | QUANTIZED
    plan = check_config(config, "cuda", asked)
    described = Described(plan, bound_of(plan), read_generation({}, plan.head.vocabulary), frozenset(), plan.context)
    facts = CheckpointFacts(Path("/m"), config, {}, {}, 0, "digest")
    return plan_memory(described, facts, OnCard(card), settings or MemorySettings(), PUBLISHED, None, asked, **more)


def refusal(**asked: Any) -> str:
    with pytest.raises(RefusedError) as refused:
        planned(**asked)
    return refused.value.message


def test_the_familys_default_the_models_own_and_a_number_are_the_windows_of_a_card() -> None:
    assert planned().window.tokens == planned().described.context == 16_384
    assert planned(asked=0).window.tokens == 262_144
    assert planned(asked=40_000).window.tokens == 40_000
    assert planned(qwen3_5).window.tokens == 262_144


def test_the_report_tells_native_and_allocated_capacity_and_what_is_left_to_others() -> None:
    made = planned(kept=11, streams=2)
    assert made.pools is not None and made.pools.kept == 11 and made.pools.lanes == 3
    memory, pages, host = made.lines(binds=False)
    assert host.startswith("memory: a load adds up to 0.") and host.endswith(" holds of the machine's memory")
    assert " by estimate (what is free of the card; 13.98 GiB left to others): weights 17." in memory
    assert (
        f"{made.pools.pages - 1} pages of 512 positions, 3.5 MiB each; a stream of the window has 33; room for 11"
        in pages
    )
    assert made.words.startswith("set by the family's default on CUDA; room to keep a prompt beside it")


def test_the_estimates_parts_are_all_that_the_report_adds_up() -> None:
    made = planned(kept=4)
    sizes = made.plan.footprint.pools
    assert made.pools is not None and sizes is not None
    whole = made.plan.footprint.weights + made.plan.work(made.window.tokens)
    pages = (made.pools.pages - 1 - made.pools.kept) * sizes.page
    # What the plan counts is what the pools hold, to less than a page.
    assert 0 <= made.plan.budget.allocator - whole - pages < sizes.page


def test_a_number_past_the_models_own_window_is_refused_before_a_download() -> None:
    for module in (nemotron_h, qwen3_5):
        with pytest.raises(RefusedError, match="262145 is more than the model's own window of 262144 tokens"):
            check_config(module.CONFIG | QUANTIZED, "cuda", 262_145)
    check_config(qwen3_5.CONFIG | QUANTIZED, "mlx", 262_145)


def test_what_does_not_fit_is_refused_with_the_window_that_does_and_nothing_is_loaded() -> None:
    said = refusal(module=qwen3_5, card=card_of(30), asked=262_144)
    fits = int(said.split("--context ")[2].split()[0])
    assert said.endswith(f"--context {fits} fits. Nothing was loaded.")
    assert planned(qwen3_5, card_of(30), fits).window.tokens == fits


def test_variables_lower_what_is_taken_and_are_named_where_that_is_too_little() -> None:
    small = MemorySettings(card_limit=12 * GIB)
    assert "a budget of 12.00 GiB, TENSORFOLD_CUDA_MEMORY_LIMIT_GB in the environment)" in refusal(settings=small)
    assert "TENSORFOLD_MEMORY_LIMIT_GB in the environment)" in refusal(settings=replace(small, limit=11 * GIB))
    assert "TENSORFOLD_MEMORY_RESERVE_GIB asks to leave 200.00 GiB" in refusal(
        settings=MemorySettings(reserve=200 * GIB)
    )
    less = planned(qwen3_5, settings=MemorySettings(card_limit=24 * GIB))
    assert less.window.bound == "memory" and less.plan.budget.allocator <= 24 * GIB
    assert any(
        "it changes nothing" in line for line in planned(settings=MemorySettings(limit=1 << 40)).lines(binds=False)
    )


def test_a_machine_without_room_for_weights_on_their_way_is_refused() -> None:
    assert "of the machine's memory at a time" in refusal(card=replace(H200, available=3 * GIB))


def test_memory_that_is_shared_is_planned_for_by_what_is_available() -> None:
    assert planned(qwen3_5, SHARED).window.tokens == 262_144
    assert "what is available of the memory that processor and card share" in refusal(
        module=qwen3_5, card=replace(SHARED, available=20 * GIB)
    )


def test_a_wider_pass_of_a_loaded_model_changes_nothing_of_its_pools() -> None:
    made = planned()
    assert settled(made, 1 << 20) is made


def test_kept_prompt_ends_are_those_of_slots_and_of_shared_beginnings() -> None:
    assert kept_ends(PromptSettings(slots=8)) == 11
    assert kept_ends(PromptSettings(slots=0)) == kept_ends(PromptSettings(budget=0)) == 0


def keeping(memory: PlannedMemory, slots: int = 8, chunks: ChunkMemory | None = None) -> PromptKeeping:
    from tensorfold.application.engine import Engine
    from tensorfold.application.settings import EngineSettings

    known = KeepingPlan(PromptSettings(slots=slots), Markers(frozenset({1}), (1, 3)), (), (2048,))
    made = PromptKeeping(known, None, lambda line: None, chunks)
    engine = Engine(model(resume="prompt_end"), EngineSettings(), MachineClock())
    made.plan(engine, memory)
    assert made.keep(engine, memory) is engine.prompts
    return made


def test_prompt_ends_are_kept_in_the_pools_that_were_planned() -> None:
    memory = planned(kept=11)
    made = keeping(memory)
    sizes = memory.plan.footprint.pools
    assert made.cache is not None and memory.pools is not None and sizes is not None
    pages = memory.pools.pages - 1 - 11
    assert made.cache.budget == 11 * sizes.kept() + pages * sizes.page
    assert made.lines()[-1] == "prompt cache: up to 11 prompt ends on the device, in pages no stream needs"


def test_pools_without_room_for_ends_keep_none() -> None:
    made = keeping(planned(kept=0))
    assert made.cache is not None and made.cache.budget == 0 and made.lines()[-1] == "prompt cache: off"


def test_figures_of_a_card_are_told_while_decisions_are_arithmetic() -> None:
    runtime = FakeMemory()
    admission = PooledAdmission(planned().plan, runtime)
    admission.begin()
    runtime.bound = None
    runtime.allocate(100 * GIB)
    told = admission.figures([])
    assert told is not None and (told.active, told.peak, told.cached) == (100 * GIB, 100 * GIB, 0)
    admission.release()
    assert runtime.releases == 0


def test_prompts_are_read_in_the_chunks_that_were_planned_whatever_the_family_names() -> None:
    for memory, rows in ((planned(kept=4), 4096), (planned(streams=4), 2048), (planned(qwen3_5, card_of(21.5)), 1024)):
        made = keeping(memory)
        assert made.cache is not None and made.cache.rule.step == memory.plan.footprint.rows == rows
        assert made.lines()[0].startswith(f"prompts: chunks of up to {rows} tokens, cut")
        assert made.cache.rule.name.startswith(f"grid{rows}+")


def test_a_chunk_of_an_earlier_start_stands_where_the_plan_has_room_for_it_and_as_many_streams_may_share() -> None:
    known = Remembered({})
    small, large = planned(qwen3_5, card_of(22.5)), planned(qwen3_5)
    steps = []
    for memory in (small, large, planned(qwen3_5, streams=4), planned(qwen3_5, card_of(21.5))):
        made = keeping(memory, chunks=known)
        assert made.cache is not None
        steps.append(made.cache.rule.step)
    assert steps == [2048, 2048, 2048, 1024] and large.plan.footprint.rows == 4096
    assert sorted(known.known.values()) == [1024, 2048]
    assert keeping(large, chunks=Remembered({})).lines()[0].startswith("prompts: chunks of up to 4096 tokens, cut")
