"""Pools of a model on a card: how many of what, and the bytes of all of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensorfold.domain.families import dflash2, llama, nemotron_h, qwen3_5
from tensorfold.domain.families.published import DFLASH2
from tensorfold.domain.families.state import state_spec
from tensorfold.domain.families.storage import Affine, Dense
from tensorfold.domain.memory.cuda_footprint import cuda_footprint, largest_layer, packed, slot_bytes
from tensorfold.domain.memory.cuda_holding import PAGE, STATES, PoolSizes, Room, pages_for, pool_sizes, room
from tests.domain.families.configs import llama_config
from tests.domain.memory.cuda_models import bound_of, nemotron, qwen


def test_pools_have_room_for_every_stream_and_for_nobodys_lane() -> None:
    pools = room(3, 1000, kept=5)
    assert pools == Room(4, 3 * 3 + 1, 3 + 2 * 64, 4 * STATES + 5, 64, 64, 3)
    assert (pools.kept, pools.positions) == (5, 3 * PAGE)
    assert pools.ring_rows == 4 * pools.ring + 3 * 5


def test_many_streams_have_narrower_windows_and_launches_as_wide_as_they_are_many() -> None:
    assert (room(8, 100).width, room(9, 100).width) == (64, 16)
    assert (room(64, 100).rows, room(80, 100).rows) == (64, 80)


@pytest.mark.parametrize(("tokens", "pages"), [(1, 1), (448, 1), (449, 2), (960, 2), (961, 3)])
def test_a_lane_has_pages_for_its_tokens_and_one_window_behind_them(tokens: int, pages: int) -> None:
    assert pages_for(tokens, 64) == pages


def test_sizes_follow_from_the_state_spec() -> None:
    plan = qwen3_5.plan(qwen3_5.CONFIG)
    sizes = pool_sizes(state_spec(plan), plan.activation)
    # 16 layers of 4 key heads of 256, keys and values in bf16, and the head's own layer.
    assert sizes.page == PAGE * 2 * 2 * 4 * 256 * 17
    assert sizes.place == 48 * 48 * 128 * 128 * 4
    assert sizes.ring_row == 48 * 10_240 * 2
    assert sizes.step_row == sizes.ring_row + 48 * 48 * 8 * 4
    without = pool_sizes([e for e in state_spec(plan) if not e.path.startswith("mtp.")], plan.activation)
    assert sizes.page - without.page == PAGE * 2 * 2 * 4 * 256


def test_a_drafter_holds_its_window_for_each_lane_and_no_page() -> None:
    plan = qwen3_5.plan(qwen3_5.CONFIG)
    drafter = dflash2.plan(DFLASH2, plan)
    with_one, alone = (pool_sizes(state_spec(plan, d), plan.activation) for d in (drafter, None))
    assert with_one.page == alone.page
    assert with_one.head - alone.head == 20_480 * (drafter.window - 1 + PAGE)


def test_layers_that_read_a_window_of_keys_have_pages_for_all_of_them() -> None:
    windowed, whole = (llama.plan(llama_config(model_type="mistral", sliding_window=window)) for window in (128, None))
    assert {entry.window for entry in state_spec(windowed)} == {128}
    sizes = pool_sizes(state_spec(windowed), windowed.activation)
    assert sizes == pool_sizes(state_spec(whole), whole.activation) and sizes.page > 0 == sizes.place


def test_what_is_not_pages_is_counted_for_lanes_and_for_kept_prompt_ends() -> None:
    sizes, pools = PoolSizes(page=1000, place=100, ring_row=10, step_row=1, head=3), room(1, 100, kept=2)
    rings = (2 * 131 + 6) * 10 + 2 * 131
    assert sizes.fixed(pools) == 1000 + 8 * 100 + rings + 4 * 3
    assert sizes.fixed(room(1, 100, kept=3)) + 1000 == sizes.fixed(pools) + sizes.kept()


def test_packed_matrices_have_whole_tiles_of_outputs_and_two_bytes_of_scale_and_of_bias_a_group() -> None:
    plan = qwen3_5.plan(qwen3_5.CONFIG)
    found = bound_of(plan)
    gate = found["layers.0.mlp.gate"]
    assert gate.slot.shape == (17_408, 5_120)
    assert packed(gate) == 17_408 * 5_120 // 2 + 17_408 * 80 * 4
    assert slot_bytes(found["layers.0.mlp.pre_norm"]) == 4 * 5_120
    # The output rows of a step: what a token reads of all projections.
    read = sum(slot_bytes(f) for path, f in found.items() if path != "embedding" and not path.startswith("mtp."))
    assert read == pytest.approx(14.41e9, rel=0.01)


def test_outputs_are_filled_up_and_narrow_codes_are_held_in_four_bits() -> None:
    plan = llama.plan(llama_config())
    one = bound_of(plan)["layers.0.attention.k"]
    outputs, inputs = one.slot.shape
    tiles, groups = -(-outputs // 16), -(-inputs // 64)
    bias = 4 * outputs if one.module.bias else 0
    for bits, held in ((2, 4), (4, 4), (5, 5), (8, 8)):
        of = replace(one, storage=Affine(bits, 64, "BF16"))
        assert packed(of) == tiles * groups * (16 * 64 * held // 8 + 64) + bias
    assert packed(replace(one, storage=Dense("BF16"))) == tiles * groups * 2048 + bias


def test_weights_of_the_published_models_are_those_of_their_sheets() -> None:
    # The drafter's selector has two tables of 256 numbers a token in bf16; keys' and values' matrices are there twice.
    tables, twice = 2 * 2 * 248_320 * 256, 5 * 2 * 1_024 * 5_120 * 4.5 / 8
    assert qwen()[1].weights == pytest.approx((26.90e9 + 1.79e9) * 4.5 / 8 + tables + twice, rel=0.01)
    assert nemotron()[1].weights == pytest.approx(18.5e9, rel=0.02)


def test_a_head_counts_where_it_is_loaded() -> None:
    plan = nemotron_h.plan(nemotron_h.CONFIG)
    bound = bound_of(plan)
    with_head, without = (cuda_footprint(plan, bound, head=head) for head in (True, False))
    own = sum(slot_bytes(f) for path, f in bound.items() if path.startswith("mtp."))
    assert with_head.weights - without.weights == own > 0
    assert with_head.pools is not None and without.pools is not None
    assert with_head.pools.page > without.pools.page


def test_a_drafter_counts_at_its_bits_and_never_below_four() -> None:
    plan = qwen3_5.plan(qwen3_5.CONFIG)
    drafter, bound = dflash2.plan(DFLASH2, plan), bound_of(plan)
    alone = cuda_footprint(plan, bound, head=False).weights
    two, four, eight, whole = (
        cuda_footprint(plan, bound, head=False, drafter=drafter, drafter_bits=bits).weights - alone
        for bits in (2, 4, 8, 0)
    )
    assert two == four < eight < whole == pytest.approx(2 * 1.97e9, rel=0.01)
    tables = 2 * 248_320 * 256
    assert four - 2 * tables == pytest.approx((whole - 2 * tables) * 4.5 / 16, rel=0.01)


def test_three_of_the_largest_layers_are_staged() -> None:
    plan, footprint = qwen()
    bound = bound_of(plan)
    assert footprint.staging == 3 * largest_layer({k: v for k, v in bound.items() if not k.startswith("mtp.")})
    assert largest_layer(bound) == slot_bytes(bound["embedding"])
    assert largest_layer({}) == 0
