"""Seeded checkpoints of every family: read back by the product's own readers, alike in every form, sane in size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.domain.families.binding import bind
from tensorfold.domain.families.ops import HashedNgram
from tensorfold.domain.families.plan_weights import drafter_weights, plan_weights
from tensorfold.domain.families.storage import Affine, Layout, parse_quantization
from tests.reference.slot_reader import SlotReader
from tests.synthetic.plan_checkpoints import (
    LAYOUTS,
    PLANS,
    PUBLICATIONS,
    dflash_plan,
    true_config,
    write_checkpoint,
    write_drafter,
)
from tests.synthetic.safetensors_file import as_stored, as_values
from tests.synthetic.slot_values import SlotValues, constants
from tests.synthetic.stored_slots import LARGE, Pending, Quantized, stored_slots
from tests.synthetic.tiny_configs import FAMILIES, tiny, tiny_drafter

FORMS = tuple(PUBLICATIONS)


@pytest.mark.parametrize(("family", "form"), FORMS, ids=lambda v: str(v))
@pytest.mark.slow
def test_a_checkpoint_is_taken_by_the_readers_of_the_product(family: str, form: str, tmp_path: Path) -> None:
    config = tiny(family)
    quantization = None if form == "hf" else LAYOUTS[family]
    facts = FolderReader().facts(write_checkpoint(tmp_path, config, 3, form, quantization))
    table = PLANS[family](config).tensors
    stated = parse_quantization(facts.config)
    reader = SlotReader.of(tmp_path, table)
    # Written apart from each other, both find the same bytes, those of side files included.
    assert facts.tensors == reader.headers
    assert set(bind(table, facts.tensors, stated)) == set(table.slots)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.slow
def test_every_form_holds_the_same_weights(family: str, tmp_path: Path) -> None:
    config = tiny(family)
    plan = PLANS[family](config)
    drawn = SlotValues.of(plan, 5)
    for form in (form for name, form in FORMS if name == family):
        reader = SlotReader.of(write_checkpoint(tmp_path / form, config, 5, form), plan.tensors)
        for path, weight in plan_weights(plan).items():
            difference = np.abs(reader[path] - drawn.values(path, weight)).max()
            assert difference <= 1e-6 * max(1.0, np.abs(reader[path]).max()), (form, path)


def test_a_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    files = [write_checkpoint(tmp_path / str(at), tiny("gemma4"), seed) for at, seed in enumerate((1, 1, 2))]
    first, same, other = ((path / "model-00001-of-00003.safetensors").read_bytes() for path in files)
    assert first == same != other


def test_mixed_widths_are_stated_module_by_module_and_stored_so(tmp_path: Path) -> None:
    layouts = Quantized(Layout(4, 64), {"*o_proj": Layout(8, 32), "*q_a_proj": None, "*experts*": Layout(5, 64)})
    plan = PLANS["glm5_next"](tiny("glm5_next"))
    reader = SlotReader.of(write_checkpoint(tmp_path, tiny("glm5_next"), 1, "mlx", layouts), plan.tensors)
    stored = {path: bound.storage for path, bound in reader.bound.items()}
    kinds = {path: (s.bits, s.group) if isinstance(s, Affine) else None for path, s in stored.items()}
    assert kinds["layers.0.delta.out"] == kinds["layers.3.attention.out"] == (8, 32)
    assert kinds["layers.3.attention.q_down"] is None and kinds["layers.3.mlp.experts.up"] == (5, 64)
    assert kinds["embedding"] == (4, 64) and kinds["layers.3.mlp.router"] is None


def test_codes_stand_for_what_was_drawn_to_within_a_step(tmp_path: Path) -> None:
    plan = PLANS["qwen3_5"](tiny("qwen3_5"))
    folder = write_checkpoint(tmp_path, tiny("qwen3_5"), 1, "mlx", Quantized(Layout(8, 64)))
    reader, drawn = SlotReader.of(folder, plan.tensors), SlotValues.of(plan, 1)
    for path in ("layers.0.delta.qkv", "layers.3.attention.out", "embedding"):
        wanted = drawn.values(path, plan.tensors.slots[path].weight)
        assert 0 < np.abs(reader[path] - wanted).max() <= (wanted.max() - wanted.min()) / 255


def test_gemmas_router_is_stored_in_eight_bits_whatever_the_default(tmp_path: Path) -> None:
    plan = PLANS["gemma4"](tiny("gemma4"))
    folder = write_checkpoint(tmp_path, tiny("gemma4"), 1, "mlx", Quantized(Layout(4, 32)))
    storage = SlotReader.of(folder, plan.tensors).bound["layers.0.feed.routed.router"].storage
    assert isinstance(storage, Affine) and (storage.bits, storage.group) == (8, 32)


def test_the_integers_of_a_hashed_table_are_those_of_its_plan(tmp_path: Path) -> None:
    plan = PLANS["qwen4_exp"](tiny("qwen4_exp"))
    reader = SlotReader.of(write_checkpoint(tmp_path, tiny("qwen4_exp"), 1, "hf"), plan.tensors)
    op = next(op for op in SlotValues.of(plan, 1).owners.values() if isinstance(op, HashedNgram))
    assert reader["layers.1.ngram.table_sizes"].tolist() == list(op.table_sizes)
    assert reader["layers.1.ngram.multipliers"].tolist() == list(op.multipliers)
    assert constants(op)["offsets"].tolist() == [sum(op.table_sizes[:at]) for at in range(len(op.table_sizes))]


def test_a_drafters_checkpoint_has_every_weight_of_its_plan(tmp_path: Path) -> None:
    drafter = dflash_plan(tiny_drafter())
    reader = SlotReader.of(write_drafter(tmp_path, tiny_drafter(), 1), drafter.tensors)
    assert set(reader.bound) == set(drafter_weights(drafter))
    base = reader["layers.0.attention.mix.base"]
    assert np.abs(base[:, 0] - 1).max() <= 0.2 and np.abs(base[:, 1]).max() <= 0.2


def pending_of(family: str, layers: int | None = None) -> Iterator[Pending]:
    """The tensors of a true geometry in its published layout, none of them made."""
    plan = PLANS[family](true_config(family, layers))
    return stored_slots(plan.tensors, SlotValues.of(plan, 1), PUBLICATIONS[family, "mlx"], "BF16", LAYOUTS[family])


def test_a_true_geometry_is_listed_without_being_made_and_has_the_published_size() -> None:
    total = sum(
        one.nbytes for one in pending_of("qwen3_5") if not one.name.startswith("mtp.") and "mtp." not in one.name
    )
    assert 15.0e9 < total < 15.3e9


@pytest.mark.parametrize("family", FAMILIES)
def test_a_true_geometry_can_be_cut_to_its_first_layers(family: str) -> None:
    assert len(PLANS[family](true_config(family, 4)).layers) == 4


def test_large_codes_are_drawn_at_once_and_have_the_spread_of_small_ones() -> None:
    words, scales, biases = (
        one.make().values
        for one in pending_of("qwen3_5", 4)
        if one.name.startswith("language_model.model.layers.0.mlp.up_proj")
    )
    assert words.size * 8 > LARGE
    step = (scales.astype(np.uint32) << 16).view(np.float32)
    low = (biases.astype(np.uint32) << 16).view(np.float32)
    codes = (words[:64, :, None] >> (4 * np.arange(8, dtype=np.uint32)) & 15).reshape(64, -1)
    values = codes * np.repeat(step[:64], 64, axis=1) + np.repeat(low[:64], 64, axis=1)
    assert 0.9 < values.std() * np.sqrt(5120) < 1.2 and abs(values.mean()) < 1e-3


def test_bfloat16_is_rounded_to_nearest_with_ties_to_even() -> None:
    # A bfloat16 has 8 significant bits, so values between 1 and 2 are 2^-7 apart.
    near = np.array([1 + 1.4 / 128, 1 + 1.5 / 128, 1 + 2.5 / 128, -(1 + 2.6 / 128), 3.3895e38, 0.0])
    read = as_values(as_stored(near, "BF16"))
    assert read[:4].tolist() == [1 + 1 / 128, 1 + 2 / 128, 1 + 2 / 128, -(1 + 3 / 128)]
    assert np.isfinite(read[4]) and read[5] == 0.0
    assert as_values(as_stored(np.array(8.0), "BF16")) == 8.0
