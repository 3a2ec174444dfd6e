"""Rows of windows, trees and shared launches have the bits of one-row steps, greedy and sampled, on real arithmetic."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tensorfold.adapters.mlx.model import MlxModel
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.windows import Window, chain, tree
from tests.adapters.mlx.models import absorb, rows, serial, serial_tree

pytestmark = pytest.mark.slow
GREEDY = Sampling()
SAMPLED = Sampling(seed=5, temperature=1.1, top_k=40, top_p=0.95)
WIDTHS = range(1, 17)
# Prompts that leave windows before, across and behind the edges of a 64-key block and a 20-key sliding window.
PROMPTS = (1, 18, 21, 55, 64, 130)


def ids(seed: int, count: int) -> list[int]:
    generator = random.Random(seed)
    return [generator.randrange(96) for _ in range(count)]


def random_tree(seed: int, size: int) -> Window:
    generator = random.Random(seed)
    parents = [generator.randrange(max(0, row - 4), row) for row in range(1, size)]
    tokens = ids(seed, size)
    return tree(tokens[0], tokens[1:], parents)


@pytest.mark.parametrize("sampling", (GREEDY, SAMPLED), ids=("greedy", "sampled"))
def test_every_width_of_window_draws_what_one_row_steps_draw(model: MlxModel[Any], sampling: Sampling) -> None:
    assert model.limits.chain_width == 16
    for prompt in PROMPTS:
        lane = absorb(model, ids(prompt, prompt), 200)
        tokens = ids(prompt + 1, 16)
        copy = model.fork(lane)
        expected = serial(model, copy, tokens, sampling)
        for width in WIDTHS:
            assert rows(model, [(lane, chain(tokens[0], tokens[1:width]), sampling)])[0] == expected[:width]
        model.close(copy)
        model.close(lane)


@pytest.mark.parametrize("sampling", (GREEDY, SAMPLED), ids=("greedy", "sampled"))
def test_every_node_of_a_tree_draws_what_steps_along_its_path_draw(model: MlxModel[Any], sampling: Sampling) -> None:
    assert model.limits.tree_width == 16
    for prompt in PROMPTS[1::2]:
        lane = absorb(model, ids(prompt, prompt), 200)
        for seed in range(3):
            window = random_tree(100 * prompt + seed, 16 - 3 * seed)
            assert rows(model, [(lane, window, sampling)])[0] == serial_tree(model, lane, window, sampling)
        model.close(lane)


def test_a_kept_branch_leaves_the_lane_where_steps_along_it_leave_it(model: MlxModel[Any]) -> None:
    for prompt in PROMPTS[1::2]:
        window = random_tree(prompt, 14)
        for row in range(0, len(window), 2):
            lane, other = absorb(model, ids(prompt, prompt), 200), absorb(model, ids(prompt, prompt), 200)
            path = window.path_to(row)
            rows(model, [(lane, window, GREEDY)], [path])
            serial(model, other, [window.tokens[r] for r in path], GREEDY)
            assert model.export(lane) == model.export(other)
            model.close(lane)
            model.close(other)


def test_a_partly_kept_chain_leaves_the_lane_where_steps_leave_it(model: MlxModel[Any]) -> None:
    for prompt in PROMPTS:
        tokens = ids(prompt + 7, 16)
        for kept in (0, 1, 9, 16):
            lane, other = absorb(model, ids(prompt, prompt), 200), absorb(model, ids(prompt, prompt), 200)
            rows(model, [(lane, chain(tokens[0], tokens[1:]), GREEDY)], [tuple(range(kept))])
            serial(model, other, tokens[:kept], GREEDY)
            assert model.export(lane) == model.export(other)
            assert serial(model, lane, tokens, SAMPLED) == serial(model, other, tokens, SAMPLED)
            model.close(lane)
            model.close(other)


def test_streams_in_one_launch_draw_what_they_draw_alone(model: MlxModel[Any]) -> None:
    assert model.limits.shares_rounds
    generator = random.Random(4)
    lanes = [absorb(model, ids(prompt, prompt), 200) for prompt in PROMPTS]
    for trial in range(12):
        chosen = generator.sample(lanes, generator.randint(2, len(lanes)))
        asked: list[tuple[int, Window, Sampling]] = []
        for lane in chosen:
            size = generator.randint(1, 64 // len(chosen)) if len(chosen) > 3 else generator.randint(1, 16)
            tokens = ids(generator.randrange(999), min(size, 16))
            window = random_tree(trial, 8) if generator.random() < 0.3 else chain(tokens[0], tokens[1:])
            asked.append((lane, window, generator.choice((GREEDY, SAMPLED))))
        while sum(len(window) for _, window, _ in asked) > model.limits.batch_rows:
            asked.pop()
        assert rows(model, asked) == [rows(model, [one])[0] for one in asked]
    for lane in lanes:
        model.close(lane)


def test_a_window_that_slides_past_whole_blocks_still_draws_like_steps(model: MlxModel[Any]) -> None:
    lane, other = absorb(model, ids(1, 3), 256), absorb(model, ids(1, 3), 256)
    for turn in range(15):
        tokens = ids(turn, 16)
        wide = rows(model, [(lane, chain(tokens[0], tokens[1:]), GREEDY)], [tuple(range(16))])[0]
        assert wide == serial(model, other, tokens, GREEDY)
    assert model.export(lane) == model.export(other)
    model.close(lane)
    model.close(other)


def test_a_prompt_in_any_slices_leaves_the_state_of_one_row_steps(model: MlxModel[Any]) -> None:
    prompt = ids(3, 150)
    lane, other = absorb(model, prompt, 200), absorb(model, prompt[:1], 200)
    serial(model, other, prompt[1:], GREEDY)
    assert model.limits.prefill_slice == 64
    assert model.export(lane) == model.export(other)
    model.close(lane)
    model.close(other)


def test_forced_rows_are_fed_and_only_the_last_is_drawn(model: MlxModel[Any]) -> None:
    lane = absorb(model, ids(5, 30), 200)
    tokens = ids(6, 6)
    free = rows(model, [(lane, chain(tokens[0], tokens[1:]), SAMPLED)])[0]
    forced = rows(model, [(lane, chain(tokens[0], drafts=tokens[4:], forced=tokens[1:4]), SAMPLED)])[0]
    assert [row.draw for row in forced[:3]] == [-1, -1, -1]
    assert forced[3:] == free[3:]
    model.close(lane)
