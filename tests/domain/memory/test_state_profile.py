"""A lane's bytes: what stays, what grows by doubling up to its capacity, what a window bounds."""

from __future__ import annotations

from tensorfold.domain.families import dflash2, gemma4, nemotron_h, published, qwen3_5
from tensorfold.domain.families.state import StateEntry, lane_bytes, state_spec
from tensorfold.domain.memory.state_profile import Holding, state_profile

HOLDING = Holding("bfloat16", 256, 64, 192)


def entry(
    path: str = "layers.0.attention.keys", *, per: int = 1, window: int = 0, dtype: str = "bfloat16"
) -> StateEntry:
    return StateEntry(path, "keys", dtype, (8,), per=per, window=window)


def test_a_lane_begins_with_its_first_rows_and_doubles_up_to_its_capacity() -> None:
    profile = state_profile([entry()], "bfloat16", HOLDING)
    slots = {tokens: profile.held(tokens, 1000) // 16 for tokens in (1, 256, 257, 512, 513, 1000)}
    assert slots == {1: 256, 256: 256, 257: 512, 512: 512, 513: 1024, 1000: 1024}
    assert profile.held(1, 70) == 16 * 128
    assert profile.token_bytes == 16


def test_rows_of_the_plans_own_dtype_are_held_in_the_backends_and_others_stay() -> None:
    wide = Holding("float32", 256, 64, 192)
    both = [entry(), entry(dtype="float32")]
    assert state_profile(both, "bfloat16", HOLDING).held(256, 256) == 256 * (16 + 32)
    assert state_profile(both, "bfloat16", wide).held(256, 256) == 256 * (32 + 32)


def test_a_window_bounds_its_buffer_with_the_rows_of_a_pass_beside_it() -> None:
    profile = state_profile([entry(window=1000)], "bfloat16", HOLDING)
    assert profile.held(640, 1 << 20) == 640 * 16
    assert profile.held(5000, 1 << 20) == profile.held(1 << 20, 1 << 20) == (1000 + 192) * 16
    assert profile.token_bytes == 0


def test_a_ring_is_whole_from_the_start() -> None:
    ring = Holding("bfloat16", 256, 64, 192, rings=True)
    profile = state_profile([entry(window=1000)], "bfloat16", ring)
    assert profile.held(1, 1) == profile.held(1 << 20, 1 << 20) == (1000 + 192) * 16


def test_a_row_for_several_tokens_counts_once_for_them() -> None:
    profile = state_profile([entry(per=4)], "bfloat16", HOLDING)
    assert profile.held(2048, 2048) == 512 * 16
    assert profile.token_bytes == 4


def test_what_has_a_fixed_size_counts_twice_while_a_pass_runs() -> None:
    fixed = StateEntry("layers.0.delta.recurrent", "recurrent", "float32", (4, 4), rows="history")
    assert state_profile([fixed], "bfloat16", HOLDING).held(1, 1) == 2 * 64


def test_a_heads_own_state_counts_twice_since_it_drafts_in_a_copy() -> None:
    profile = state_profile([entry("mtp.layers.0.attention.keys")], "bfloat16", HOLDING)
    assert profile.held(256, 256) == 2 * 256 * 16


def test_no_published_models_lane_takes_less_than_its_plans_bytes_and_none_shrinks_as_it_grows() -> None:
    qwen = qwen3_5.plan(qwen3_5.CONFIG)
    for plan, drafter in (
        (qwen, dflash2.plan(published.DFLASH2, qwen)),
        (nemotron_h.plan(nemotron_h.CONFIG), None),
        (gemma4.plan(gemma4.CONFIG), None),
    ):
        entries = state_spec(plan, drafter)
        profile = state_profile(entries, plan.activation, Holding(plan.activation, 256, 256, 576))
        last = 0
        for tokens in (1, 200, 256, 257, 3000, 5000, 16_384, 100_000):
            held = profile.held(tokens, 131_072)
            assert held >= lane_bytes(entries, tokens) and held >= last
            assert profile.held(tokens, tokens) <= held
            last = held
