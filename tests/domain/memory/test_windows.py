"""A window: asked for, stated or what fits; every refusal names the one that would be taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tensorfold.domain.families import llama
from tensorfold.domain.families.plans import DecoderPlan
from tensorfold.domain.memory.windows import MOST, MemoryRefusal, check_asked, choose
from tests.domain.memory.plans import memory_plan

CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "vocab_size": 512, "rms_norm_eps": 1e-5, "max_position_embeddings": 8192,
    "tie_word_embeddings": True, "eos_token_id": 7,
}  # fmt: skip
SCALED = {
    "rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 1024, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "rope_theta": 10000.0,
}  # fmt: skip


def model(**changes: Any) -> DecoderPlan:
    return llama.plan(CONFIG | changes)


def refusal(plan: DecoderPlan, room: int, asked: int | None, **more: int) -> str:
    with pytest.raises(MemoryRefusal) as refused:
        choose(plan, memory_plan(room, **more), asked)
    assert "\n" not in refused.value.message
    return refused.value.message


def test_where_two_copies_fit_the_window_is_the_checkpoints() -> None:
    made = choose(model(), memory_plan(2 * 8192), None)
    assert (made.tokens, made.bound, made.retains) == (8192, "the checkpoint", True)


def test_a_window_that_lacks_room_to_keep_its_prompt_is_lowered_to_whole_steps_that_have_it() -> None:
    made = choose(model(), memory_plan(2 * 8192 - 1), None)
    assert (made.tokens, made.bound, made.retains) == (7168, "memory", True)


def test_where_no_step_could_be_kept_the_window_is_what_one_request_fits_in() -> None:
    assert choose(model(), memory_plan(1500), None).tokens == 1024
    assert not choose(model(), memory_plan(1500), None).retains
    assert choose(model(), memory_plan(100), None).tokens == 100


def test_an_explicit_window_that_fits_one_request_is_taken_as_it_is() -> None:
    assert choose(model(), memory_plan(3001), 3001).tokens == 3001
    assert choose(model(), memory_plan(6002), 3001).retains


def test_an_explicit_window_that_does_not_fit_is_refused_with_the_one_that_does() -> None:
    said = refusal(model(), 3 << 20, 4000, row=1 << 10)
    assert said.startswith("--context 4000 does not fit: one request of it takes 3.9 MiB and 3.0 MiB are left")
    assert "--context 3072 fits" in said and "70% of a test's RAM" in said
    assert choose(model(), memory_plan(3 << 20, row=1 << 10), 3072).tokens == 3072


def test_an_explicit_window_beyond_the_checkpoints_starts_where_positions_are_not_scaled_for_it() -> None:
    assert choose(model(), memory_plan(1 << 20), 9000).tokens == 9000
    said = refusal(model(rope_scaling=SCALED), 1 << 20, 9000)
    assert "--context 9000 does not fit: the checkpoint scales its positions for 8192 tokens" in said
    assert "from 2 to 8192" in said


def test_zero_drops_the_checkpoints_cap_alone() -> None:
    assert choose(model(), memory_plan(30_000), 0).tokens == 14_336
    assert choose(model(), memory_plan(1 << 30), 0).tokens == MOST
    assert choose(model(rope_scaling=SCALED), memory_plan(1 << 30), 0).tokens == 8192


@pytest.mark.parametrize(("asked", "words"), [(1, "from 2 to"), (MOST + 1, f"more than the {MOST} tokens")])
def test_a_window_that_none_may_have_is_refused_without_a_look_at_memory(asked: int, words: str) -> None:
    with pytest.raises(MemoryRefusal, match=words):
        check_asked(model(), asked)


def test_weights_that_do_not_fit_are_refused_with_both_figures() -> None:
    said = refusal(model(), -(1 << 30), None, weights=5 << 30)
    assert said.startswith("The weights take 5.00 GiB of memory and 4.00 GiB are left for them (a budget of 7.00 GiB")


@pytest.mark.parametrize("asked", [None, 0, 100])
def test_where_not_even_two_tokens_fit_it_is_said(asked: int | None) -> None:
    assert "No request fits beside the weights" in refusal(model(), 1, asked)


def test_a_limit_that_bounds_the_budget_is_named_as_what_lowers_it() -> None:
    plan = memory_plan(10, row=100)
    plan = replace(plan, budget=replace(plan.budget, bound="TENSORFOLD_MEMORY_LIMIT_GB"))
    with pytest.raises(MemoryRefusal, match="raise TENSORFOLD_MEMORY_LIMIT_GB, take a smaller checkpoint"):
        choose(model(), plan, None)


def test_the_same_figures_give_the_same_window_every_time() -> None:
    assert len({choose(model(), memory_plan(9999), asked) for asked in (None, None) for _ in range(10)}) == 1
