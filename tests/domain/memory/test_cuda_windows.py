"""The window and the pools of a server on a card: the model's own, a family's default, what was asked for or fits."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from tensorfold.domain.memory.budgets import GIB, Card
from tensorfold.domain.memory.cuda_holding import pages_for, room
from tensorfold.domain.memory.cuda_windows import CHUNK_SHARE, CudaPlan, check_asked_cuda, choose_cuda, with_pools
from tensorfold.domain.memory.windows import LEAST, MemoryRefusal
from tests.domain.memory.cuda_models import H200, SHARED, card_of, nemotron, on_card, qwen

TARGET = 16_384


def chosen(card: Card = H200, asked: int | None = None, **more: int) -> CudaPlan:
    plan, footprint = qwen()
    return choose_cuda(plan, on_card(footprint, card), asked, **more)


def refusal(card: Card, asked: int | None, **more: int) -> str:
    with pytest.raises(MemoryRefusal) as refused:
        chosen(card, asked, **more)
    message = refused.value.message
    assert "\n" not in message and message.endswith("Nothing was loaded.")
    return message


def test_without_a_number_the_window_is_the_models_own_where_it_fits() -> None:
    made = chosen(kept=11)
    assert (made.window.tokens, made.window.bound, made.window.retains) == (262_144, "the model's own window", True)
    assert made.pools.kept == 11 and made.pools.pages_per_lane == pages_for(262_144, 64)
    assert made.pools.pages == 5 * 513 + 11 + 1


def test_a_familys_default_holds_without_a_number_and_0_asks_for_the_models_own() -> None:
    plan, footprint = nemotron()
    default = choose_cuda(plan, on_card(footprint), None, target=TARGET)
    assert (default.window.tokens, default.window.bound) == (TARGET, "the family's default on CUDA")
    whole = choose_cuda(plan, on_card(footprint), 0, target=TARGET)
    assert (whole.window.tokens, whole.window.bound) == (262_144, "the model's own window")
    asked = choose_cuda(plan, on_card(footprint), 100_000, target=TARGET)
    assert (asked.window.tokens, asked.window.bound) == (100_000, "--context")


def test_memory_lowers_a_window_that_was_not_asked_for_to_a_number_of_1024s() -> None:
    made = chosen(card_of(30))
    assert made.window.bound == "memory" and 1024 < made.window.tokens < 262_144 and made.window.tokens % 1024 == 0
    assert made.memory.fits(made.window.tokens)
    assert chosen(card_of(30), 0).window.tokens == made.window.tokens


def test_what_was_asked_for_and_does_not_fit_is_refused_with_what_does() -> None:
    said = refusal(card_of(30), 262_144)
    assert said.startswith("--context 262144 does not fit: one request of it takes ")
    fits = int(said.split("--context ")[2].split()[0])
    assert chosen(card_of(30), fits).window.tokens == fits
    assert "--context " in refusal(card_of(30), fits + 513)


def test_kept_prompt_ends_give_way_to_a_window_that_was_asked_for() -> None:
    card = card_of(36)
    most = max(chosen(card, None).window.tokens, 1024)
    alone = chosen(card, most)
    with_ends = chosen(card, most, kept=11)
    assert with_ends.window.tokens == most and with_ends.pools.kept < 11 and alone.pools.kept == 0


def test_kept_prompt_ends_take_at_most_an_eighth_of_what_the_weights_leave() -> None:
    _, footprint = qwen()
    for gib in (28, 34, 40):
        made = chosen(card_of(gib), kept=64)
        assert footprint.pools is not None
        assert made.pools.kept * footprint.pools.kept() <= on_card(footprint, card_of(gib)).room // 8


def test_weights_that_do_not_fit_while_they_are_read_are_refused() -> None:
    said = refusal(Card(24 * GIB, 20 * GIB, 64 * GIB), None)
    assert said.startswith("The weights take 15.") and "while they are read, and 16.00 GiB are left for them" in said
    assert "a budget of 20.00 GiB, what is free of the card, less 4.00 GiB left to others" in said


def test_a_card_with_room_for_weights_alone_is_refused() -> None:
    assert refusal(Card(24 * GIB, 22 * GIB, 64 * GIB), None).startswith("No request fits beside the weights: they take")
    assert refusal(Card(24 * GIB, 22 * GIB, 64 * GIB), 512, kept=4).startswith("No request fits beside the weights")


def test_memory_that_is_shared_gives_windows_as_a_card_does() -> None:
    made = chosen(SHARED, kept=11)
    assert made.window.tokens == 262_144 and made.memory.budget.bound.startswith("what is available")
    small = replace(SHARED, available=36 * GIB)
    assert 0 < chosen(small).window.tokens < 262_144


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (1, "--context 1 does not fit: a window holds a token of prompt and one of reply; give a number from 2 to"),
        (262_145, "--context 262145 is more than the model's own window of 262144 tokens, which CUDA does not go past"),
    ],
)
def test_a_window_that_no_memory_would_give_is_refused_before_anything_is_fetched(asked: int, says: str) -> None:
    plan, _ = qwen()
    with pytest.raises(MemoryRefusal) as refused:
        check_asked_cuda(plan, asked)
    assert refused.value.message.startswith(says)
    for fine in (None, 0, LEAST, 262_144):
        check_asked_cuda(plan, fine)


def test_whatever_the_card_the_pools_are_what_the_plan_counts_and_no_more_than_there_is() -> None:
    random_ = random.Random(3)
    plan, footprint = qwen()
    assert footprint.pools is not None
    for _ in range(60):
        card, streams, kept = card_of(random_.uniform(26, 160)), random_.choice((1, 2, 8, 9, 32)), random_.randrange(40)
        whole = on_card(footprint, card)
        try:
            made = choose_cuda(plan, whole, None, streams=streams, kept=kept)
        except MemoryRefusal:
            continue
        pages = made.pools.pages - 1 - made.pools.kept
        elastic = made.memory.room - made.memory.work(made.window.tokens)
        assert pages >= made.pools.pages_per_lane
        assert pages * footprint.pools.page <= elastic < (pages + 1) * footprint.pools.page
        assert made.memory.budget.allocator <= whole.budget.allocator
        assert made.pools.lanes == streams + 1 and made.pools.kept <= kept


def test_a_larger_card_never_has_a_smaller_window() -> None:
    windows = [chosen(card_of(gib), kept=8).window.tokens for gib in range(28, 90, 6)]
    assert windows == sorted(windows) and windows[0] < windows[-1] == 262_144


@pytest.mark.parametrize("model", [qwen, nemotron])
def test_a_chunk_of_4096_rows_is_planned_on_a_large_card_and_2048_where_streams_share_it(model: Any) -> None:
    plan, footprint = model()
    alone, shared = (choose_cuda(plan, on_card(footprint), None, streams=streams) for streams in (1, 2))
    assert (alone.memory.footprint.rows, shared.memory.footprint.rows) == (4096, 2048)
    # What the plan counts as work follows.
    sized = replace(alone.memory, footprint=replace(alone.memory.footprint, rows=2048))
    assert alone.memory.work(1) - sized.work(1) == 2048 * footprint.work.row > 0


def test_a_smaller_card_has_smaller_chunks_by_its_budget_alone() -> None:
    _, footprint = qwen()
    found = {gib: chosen(card_of(gib)).memory.footprint.rows for gib in (23.5, *range(24, 60))}
    assert list(found.values()) == sorted(found.values()) and set(found.values()) == {1024, 2048, 4096}
    for gib, rows in found.items():
        share = on_card(footprint, card_of(gib)).room // CHUNK_SHARE
        assert rows == 1024 or rows * footprint.work.row <= share
        # On the smallest card rows are fewer than their share, so that a request fits beside them.
        assert rows in (1024, 4096) or 2 * rows * footprint.work.row > share
        for more in ({"kept": 11}, {"target": TARGET}):
            assert chosen(card_of(gib), **more).memory.footprint.rows == rows


def test_a_window_that_was_asked_for_shortens_chunks_rather_than_being_refused() -> None:
    _, footprint = qwen()
    whole, lengths = on_card(footprint, card_of(40)), set[int]()
    for rows in (4096, 2048, 1024):
        sized = replace(whole, footprint=replace(footprint, rows=rows))
        most = with_pools(sized, room(1, 262_144)).largest(262_144)
        # Pages are whole, so a few tokens more may still fit.
        made = chosen(card_of(40), most)
        assert made.window.tokens == most and made.memory.footprint.rows <= rows
        lengths.add(made.memory.footprint.rows)
    assert lengths == {4096, 2048, 1024}
