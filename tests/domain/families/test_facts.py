"""Sizes that are told of a model: kinds of layers, parameters with and without heads and tables, bytes of state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tensorfold.domain.families import dflash2, gemma4, glm5_next, nemotron_h, qwen3_5, qwen4_exp
from tensorfold.domain.families.facts import State, drafter_parameters, drafter_state, experts, facts
from tensorfold.domain.families.listing import estimated_bytes
from tensorfold.domain.families.ngram_tables import multipliers, primes_from
from tensorfold.domain.families.state import lane_bytes, state_spec
from tensorfold.domain.families.storage import parse_quantization
from tests.domain.families.sheet_facts import FOUR_64, gemma_block


def test_heads_and_tables_are_told_apart() -> None:
    told = facts(qwen4_exp.plan(qwen4_exp.CONFIG))
    assert round(told.parameters / 1e9, 1) == 125.7 and round(told.table / 1e9, 1) == 51.2
    assert round(told.head / 1e9, 2) == 2.61
    # The published figure counts model and head.
    assert told.state.token + told.head_state.token == 30_784
    plain = facts(gemma4.plan(gemma4.CONFIG))
    assert (plain.table, plain.head, plain.head_state) == (0, 0, State(0, 0, 0, 0))


@pytest.mark.parametrize("module", [qwen3_5, nemotron_h, gemma4])
def test_told_state_is_what_a_lane_holds(module: object) -> None:
    plan = module.plan(module.CONFIG)  # type: ignore[attr-defined]
    told = facts(plan)
    for tokens in (0, 1, 1000, 5000):
        assert told.state.bytes_at(tokens) + told.head_state.bytes_at(tokens) == lane_bytes(state_spec(plan), tokens)


def test_routed_experts_are_counted_wherever_they_stand() -> None:
    counts = {m: experts(m.plan(m.CONFIG)) for m in (qwen3_5, qwen4_exp, nemotron_h, glm5_next, gemma4)}
    assert list(counts.values()) == [0, 512, 128, 288, 128]


def test_a_drafter_adds_windows_of_context_to_its_target() -> None:
    target = qwen3_5.plan(qwen3_5.CONFIG)
    drafter = dflash2.plan(dflash2.CONFIG, target)
    assert round(drafter_parameters(drafter) / 1e9, 3) == 1.924
    assert drafter_state(drafter, target) == State(0, 5 * 2 * 8 * 128 * 2, 2047, 0)


def test_primes_are_all_of_them() -> None:
    sieve = [n for n in range(2, 2000) if all(n % d for d in range(2, int(n**0.5) + 1))]
    assert primes_from(2, len(sieve)) == tuple(sieve)
    # Squares of primes and numbers that fool fewer witnesses.
    strong = (25_326_001, 3_215_031_751, 3_825_123_056_546_413_051, 41 * 41, 1_000_003 * 1_000_003)
    assert [n for n in strong if n in primes_from(n, 1)] == []
    assert primes_from(20_000_000, 3) == (20_000_003, 20_000_023, 20_000_033)


def test_no_product_of_a_multiplier_with_an_id_passes_63_bits() -> None:
    for vocabulary in (2, 288, 248_320, 1 << 22):
        made = multipliers(1234, 1, 8, vocabulary)
        assert all(m % 2 and m * (vocabulary - 1) < 1 << 63 for m in made) and len(set(made)) == 8


def test_estimates_are_the_published_bytes() -> None:
    def gigabytes(module: Any, block: dict[str, Any], without: str | tuple[str, ...] = "none") -> float:
        plan = module.plan(module.CONFIG)
        slots = {path: slot for path, slot in plan.tensors.slots.items() if not path.startswith(without)}
        quantization = parse_quantization({"quantization": block})
        return estimated_bytes(replace(plan, tensors=replace(plan.tensors, slots=slots)), quantization) / 1e9

    assert gigabytes(nemotron_h, FOUR_64, "mtp.") == pytest.approx(17.76, abs=0.03)
    assert gigabytes(nemotron_h, FOUR_64) - gigabytes(nemotron_h, FOUR_64, "mtp.") == pytest.approx(0.75, abs=0.01)
    assert gigabytes(glm5_next, FOUR_64, "mtp.") == pytest.approx(176.2, abs=0.3)
    assert gigabytes(gemma4, gemma_block()) == pytest.approx(14.2, abs=0.01)
    # Layers and head are 14.4 GB; the embedding, of which one row is read, comes on top.
    assert gigabytes(qwen3_5, FOUR_64, ("mtp.", "embedding")) == pytest.approx(14.4, abs=0.05)
