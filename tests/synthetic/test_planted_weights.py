"""Weights that are made as they are asked for: of the plan's shapes, of trained weights' spread, and alike nowhere."""

from __future__ import annotations

import numpy as np
import pytest

from tensorfold.application.stored_weights import Codes, Values, as_float32
from tests.synthetic import planted_weights
from tests.synthetic.plan_checkpoints import dflash_plan
from tests.synthetic.planted_weights import PlantedWeights
from tests.synthetic.tiny_configs import tiny_drafter
from tests.synthetic.true_models import true_model


@pytest.fixture(scope="module")
def nemotron() -> PlantedWeights:
    return PlantedWeights.of(true_model("nemotron", layers=8).plan)


def test_a_matrix_has_the_plans_shape_and_the_spread_of_trained_weights(nemotron: PlantedWeights) -> None:
    path = "layers.5.attention.k"
    matrix = nemotron.matrix(path)
    assert matrix.shape == nemotron.slots[path].shape == (256, 2688)
    values = as_float32(matrix.stored)
    assert values.shape == matrix.shape
    assert np.sqrt(2688) * values.std() == pytest.approx(1.0, abs=0.1)
    assert abs(values.mean()) < 0.01 * values.std()


@pytest.mark.slow
def test_no_two_rows_of_a_matrix_are_alike(nemotron: PlantedWeights) -> None:
    stored = nemotron.matrix("head").stored
    assert isinstance(stored, Codes)
    assert len(np.unique(stored.words[:, :4], axis=0)) == len(stored.words) == 131_072


def test_scales_and_biases_are_numbers_of_bf16(nemotron: PlantedWeights) -> None:
    stored = nemotron.matrix("layers.0.mamba.out").stored
    assert isinstance(stored, Codes)
    for part in (stored.scales, stored.biases):
        assert not (part.view(np.uint32) & 0xFFFF).any()


def test_every_expert_is_made_when_it_is_asked_for_and_like_no_other(nemotron: PlantedWeights) -> None:
    entries = nemotron.entries("layers.1.experts.experts.up")
    first, second = next(entries), next(entries)
    assert isinstance(first.stored, Codes)
    assert isinstance(second.stored, Codes)
    assert first.shape == (1856, 2688)
    assert not np.array_equal(first.stored.words, second.stored.words)


def test_a_router_is_plain_and_what_is_small_is_drawn_as_in_a_checkpoint(nemotron: PlantedWeights) -> None:
    router = nemotron.matrix("layers.1.experts.router").stored
    assert isinstance(router, Values)
    assert router.dtype == "BF16"
    assert nemotron.floats("layers.0.mamba.pre_norm").mean() == pytest.approx(1.0, abs=0.02)
    assert np.array_equal(nemotron.floats("layers.0.mamba.conv"), nemotron.floats("layers.0.mamba.conv"))


def test_a_large_slot_is_drawn_in_parts_as_it_is_drawn_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    drafter = PlantedWeights.of(dflash_plan(tiny_drafter()))
    path = "selector.successor"
    whole = drafter.floats(path)
    monkeypatch.setattr(planted_weights, "_AT_ONCE", 7 * whole.shape[1])
    assert len(whole) % 7
    assert np.array_equal(drafter.floats(path), whole)


def test_the_same_slot_is_the_same_every_time(nemotron: PlantedWeights) -> None:
    one, other = (nemotron.matrix("layers.0.mamba.out").stored for _ in range(2))
    assert isinstance(one, Codes)
    assert isinstance(other, Codes)
    assert np.array_equal(one.words, other.words)


def test_a_drafters_slots_are_there_too() -> None:
    weights = PlantedWeights.of(dflash_plan(tiny_drafter()))
    assert weights.has("context")
    assert weights.has_below("layers.0.")
    assert weights.matrix("layers.0.mlp.up").shape == (128, 64)


@pytest.mark.parametrize(("name", "gigabytes"), [("qwen", 15.3), ("nemotron", 18.5), ("llama", 4.5)])
def test_the_models_of_true_geometry_weigh_what_their_conversions_weigh(name: str, gigabytes: float) -> None:
    assert true_model(name).weights.nbytes / 1e9 == pytest.approx(gigabytes, rel=0.03)
