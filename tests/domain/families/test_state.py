"""What a lane holds: every op's buffers, their bytes, and how they grow."""

from __future__ import annotations

import pytest

from tensorfold.domain.families import dflash2, gemma4, glm5_next, llama, nemotron_h, qwen3_5, qwen4_exp
from tensorfold.domain.families.plans import DecoderPlan
from tensorfold.domain.families.state import StateEntry, lane_bytes, state_spec
from tests.domain.families.configs import llama_config

MIB = 1 << 20


def own(plan: DecoderPlan) -> tuple[StateEntry, ...]:
    """The entries of a model without its head of drafts."""
    return tuple(e for e in state_spec(plan) if not e.path.startswith("mtp."))


def of_kind(entries: tuple[StateEntry, ...], *kinds: str) -> tuple[StateEntry, ...]:
    return tuple(e for e in entries if e.kind in kinds)


def token_bytes(entries: tuple[StateEntry, ...]) -> int:
    return sum(e.token_bytes for e in entries)


def fixed_bytes(entries: tuple[StateEntry, ...]) -> int:
    return sum(e.fixed_bytes for e in entries)


def test_a_fixed_buffer_stays_and_rows_grow_to_their_window() -> None:
    fixed = StateEntry("a", "recurrent", "float32", (2, 3))
    every = StateEntry("b", "keys", "bfloat16", (2, 4), per=1)
    windowed = StateEntry("c", "keys", "float16", (2, 4), per=1, window=10)
    pooled = StateEntry("d", "pooled_keys", "bfloat16", (5,), per=4)
    assert [e.bytes_at(0) for e in (fixed, every, windowed, pooled)] == [24, 0, 0, 0]
    assert [e.bytes_at(11) for e in (fixed, every, windowed, pooled)] == [24, 176, 160, 20]
    assert [(e.fixed_bytes, e.token_bytes) for e in (fixed, every, windowed, pooled)] == [
        (24, 0),
        (0, 16),
        (0, 16),
        (0, 3),
    ]
    assert lane_bytes((fixed, every, windowed, pooled), 11) == 380


def test_a_llama_holds_keys_and_values_of_every_layer() -> None:
    types = ["sliding_attention", "full_attention", "full_attention"]
    spec = state_spec(llama.plan(llama_config(layer_types=types, sliding_window=8)))
    assert [e.path for e in spec] == [f"layers.{n}.attention.{kind}" for n in range(3) for kind in ("keys", "values")]
    assert {e.shape for e in spec} == {(2, 16)}
    assert [e.window for e in spec] == [8, 8, 0, 0, 0, 0]
    assert {(e.dtype, e.rows, e.split) for e in spec} == {("float32", "trim", 0)}
    assert lane_bytes(spec, 100) == 2 * 8 * 128 + 4 * 100 * 128


def test_the_27b_holds_65536_bytes_a_token_and_its_delta_states() -> None:
    entries = own(qwen3_5.plan(qwen3_5.CONFIG))
    assert token_bytes(entries) == 65_536
    recurrent, conv = of_kind(entries, "recurrent"), of_kind(entries, "conv")
    assert len(recurrent) == len(conv) == 48
    assert {e.fixed_bytes for e in recurrent} == {3 * MIB}
    assert {e.dtype for e in recurrent} == {"float32"}
    assert {e.fixed_bytes for e in conv} == {60 << 10}
    assert {e.rows for e in (*recurrent, *conv)} == {"history"}


def test_flash_next_holds_30784_bytes_a_token_and_108_mib_of_delta_states() -> None:
    plan = qwen4_exp.plan(qwen4_exp.CONFIG)
    assert token_bytes(state_spec(plan)) == 30_784
    assert token_bytes(own(plan)) == 12 * 2368
    assert fixed_bytes(of_kind(own(plan), "recurrent")) == 108 * MIB
    extra = {e.path: e.shape for e in own(plan) if ".ngram." in e.path}
    assert extra == {"layers.1.ngram.tokens": (2,), "layers.1.ngram.conv": (9, 10240)}
    per_layer = {e.kind: e.token_bytes for e in own(plan) if e.path.startswith("layers.3.")}
    assert per_layer == {"keys": 1024, "values": 1024, "index_keys": 256, "pooled_keys": 64}


def test_a_head_of_drafts_keeps_its_caches_and_the_row_it_will_read() -> None:
    def mtp(plan: DecoderPlan) -> dict[str, tuple[int, ...]]:
        return {e.path: e.shape for e in state_spec(plan) if e.path.startswith("mtp.")}

    assert mtp(qwen3_5.plan(qwen3_5.CONFIG)) == {
        "mtp.layers.0.attention.keys": (4, 256),
        "mtp.layers.0.attention.values": (4, 256),
        "mtp.hidden": (5120,),
    }
    assert mtp(qwen4_exp.plan(qwen4_exp.CONFIG))["mtp.hidden"] == (4, 2560)
    assert mtp(glm5_next.plan(glm5_next.CONFIG)).keys() == {
        *(f"mtp.layers.0.attention.{k}" for k in ("latent", "index_keys", "index_gates", "pooled_keys")),
        "mtp.hidden",
    }


def test_nemotron_holds_6144_bytes_a_token_and_23_scan_states() -> None:
    entries = own(nemotron_h.plan(nemotron_h.CONFIG))
    assert token_bytes(entries) == 6_144
    assert fixed_bytes(of_kind(entries, "recurrent")) == 23 * 64 * 64 * 128 * 4 == 48_234_496
    assert fixed_bytes(of_kind(entries, "conv")) == 23 * 3 * 6144 * 2 == 847_872


def test_gemma_holds_full_rows_for_ever_and_sliding_rows_to_1024() -> None:
    entries = own(gemma4.plan(gemma4.CONFIG))
    full = tuple(e for e in entries if not e.window)
    sliding = tuple(e for e in entries if e.window)
    assert (token_bytes(full), token_bytes(sliding)) == (20_480, 204_800)
    assert {e.window for e in sliding} == {1024}
    assert lane_bytes(sliding, 1_000_000) == lane_bytes(sliding, 1024) == 209_715_200
    assert fixed_bytes(entries) == 0


def test_glm_holds_latents_index_keys_gates_and_pools() -> None:
    plan = glm5_next.plan(glm5_next.CONFIG)
    # 512 latent, 128 index key, 128 gate and a quarter of a 128-wide pool, two bytes each.
    assert token_bytes(own(plan)) == 11 * 2 * (512 + 128 + 128 + 32) == 17_600
    assert token_bytes(state_spec(plan)) == 19_200
    recurrent, conv = of_kind(own(plan), "recurrent"), of_kind(own(plan), "conv")
    assert len(recurrent) == 34
    assert {e.fixed_bytes for e in recurrent} == {4_194_304}
    assert {e.shape for e in conv} == {(3, 24576)}
    assert round((fixed_bytes(recurrent) / 1e6), 1) == 142.6
    assert round((fixed_bytes(conv) / 1e6), 1) == 5.0


def test_pooled_keys_count_whole_blocks_only() -> None:
    entries = own(glm5_next.plan(glm5_next.CONFIG))
    pools = of_kind(entries, "pooled_keys")
    assert [lane_bytes(pools, n) // (11 * 256) for n in (0, 3, 4, 2051, 2052)] == [0, 0, 1, 512, 513]


def test_a_drafter_keeps_the_context_its_blocks_can_still_read() -> None:
    plan = qwen3_5.plan(qwen3_5.CONFIG)
    with_drafter = state_spec(plan, dflash2.plan(dflash2.CONFIG))
    added = with_drafter[len(state_spec(plan)) :]
    assert [e.path for e in added] == [
        f"drafter.layers.{n}.attention.{kind}" for n in range(5) for kind in ("keys", "values")
    ]
    assert {(e.shape, e.window, e.dtype) for e in added} == {((8, 128), 2047, "bfloat16")}


@pytest.mark.parametrize("module", [qwen3_5, qwen4_exp, nemotron_h, gemma4, glm5_next])
def test_paths_are_unique_and_only_what_two_ranks_can_halve_is_split(module: object) -> None:
    plan = module.plan(module.CONFIG)  # type: ignore[attr-defined]
    entries = state_spec(plan)
    assert len({e.path for e in entries}) == len(entries)
    for entry in entries:
        assert entry.path.endswith(f".{entry.kind}")
        assert entry.split is None or entry.shape[entry.split] % 2 == 0
        assert (entry.split is None) == (
            entry.kind in ("latent", "index_keys", "index_gates", "pooled_keys", "tokens", "hidden")
            or ".ngram." in entry.path
        )
