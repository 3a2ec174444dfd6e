"""The oracle itself: trees read their own paths, state is what the state spec lists, heads chain as they are told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensorfold.domain.families.plans import Tap
from tensorfold.domain.families.state import state_spec
from tensorfold.domain.windows import tree
from tests.reference.oracles import tokens
from tests.reference.reference_heads import ReferenceDrafter, mtp_logits
from tests.reference.reference_model import Fed, ReferenceModel
from tests.synthetic.plan_checkpoints import PLANS, dflash_plan, write_checkpoint, write_drafter
from tests.synthetic.tiny_configs import FAMILIES, tiny, tiny_drafter

WINDOW = tree(7, (8, 9, 10, 11, 12, 13), (0, 0, 1, 1, 2, 5))


def model_of(family: str, folder: Path) -> ReferenceModel:
    """A tiny model of a family."""
    return ReferenceModel.load(write_checkpoint(folder, tiny(family), 3), PLANS[family](tiny(family)))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("prompt", (0, 10), ids=lambda length: f"behind_{length}")
@pytest.mark.slow
def test_a_tree_row_has_the_logits_of_its_own_path(family: str, prompt: int, tmp_path: Path) -> None:
    model, before = model_of(family, tmp_path), tokens()[:prompt]
    rows = model.tree_logits(before, WINDOW)
    for leaf in (row for row in range(len(WINDOW)) if row not in WINDOW.parents):
        path = WINDOW.path_to(leaf)
        alone = model.logits([*before, *(WINDOW.tokens[row] for row in path)])
        assert np.array_equal(alone[len(before) :], rows[list(path)]), leaf


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.slow
def test_buffers_are_those_of_the_state_spec(family: str, tmp_path: Path) -> None:
    model, length = model_of(family, tmp_path), 14
    fed = Fed()
    for token in tokens()[:length]:
        model.feed(fed, token)
    states = fed.lane.states(length - 1)
    wanted = {entry.path: entry for entry in state_spec(model.plan) if not entry.path.startswith("mtp.")}
    assert set(states) == set(wanted)
    for path, entry in wanted.items():
        rows = (length // entry.per,) if entry.per else ()
        assert np.shape(states[path]) == (*rows, *entry.shape), path


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.slow
def test_an_earlier_token_reaches_every_later_row(family: str, tmp_path: Path) -> None:
    model, fed = model_of(family, tmp_path), tokens()[:6]
    other = [fed[0] + 1, *fed[1:]]
    assert (np.abs(model.logits(fed) - model.logits(other)).max(axis=1) > 1e-6).all()


@pytest.mark.parametrize("family", [family for family in FAMILIES if PLANS[family](tiny(family)).mtp is not None])
@pytest.mark.slow
def test_a_chained_draft_reads_what_the_head_gave_and_changes_nothing_before_it(family: str, tmp_path: Path) -> None:
    model, fed = model_of(family, tmp_path), tokens()[:9]
    plain, chained = mtp_logits(model, fed), mtp_logits(model, fed, [20, 21])
    assert np.array_equal(plain, chained[: len(plain)]) and len(chained) == len(plain) + 2
    absorbed = mtp_logits(model, [*fed, 20])
    # The same token, but read beside the model's own row instead of the head's.
    assert np.abs(absorbed[-1] - chained[-2]).max() > 1e-3


def test_taps_are_rows_after_so_many_finished_layers(tmp_path: Path) -> None:
    model, fed = model_of("glm5_next", tmp_path), Fed()
    logits = model.feed(fed, 5)
    embedded = model.tap(fed, 0, Tap(0, "residual"))
    assert np.array_equal(embedded, model.embed(5, scaled=True))
    streams = model.tap(fed, 0, Tap(8, "streams"))
    assert np.allclose(streams.reshape(4, -1).mean(axis=0), model.tap(fed, 0, Tap(8, "stream_mean")))
    assert np.array_equal(model.head(model.tap(fed, 0, Tap(8, "readout"))), logits)


def drafter_of(folder: Path) -> ReferenceDrafter:
    """The tiny drafter of the tiny Qwen."""
    target = model_of("qwen3_5", folder / "target")
    return ReferenceDrafter.load(
        write_drafter(folder / "drafter", tiny_drafter(), 3), dflash_plan(tiny_drafter()), target
    )


def test_a_block_reads_its_context_as_far_as_the_window_reaches(tmp_path: Path) -> None:
    drafter = drafter_of(tmp_path)
    rows = np.stack([drafter.target.embed(token, scaled=False) for token in range(20, 28)])
    context = drafter.context_of_taps(np.random.default_rng(5).standard_normal((20, 3 * 64)))
    plain = drafter.hidden(context, rows, 20)
    for age, seen in ((12, False), (11, True)):
        changed = context.copy()
        changed[20 - age] += 1.0
        moved = np.abs(drafter.hidden(changed, rows, 20) - plain).max(axis=1)
        assert (moved[0] > 1e-6) == seen, age
    changed = context.copy()
    changed[20 - 5] += 1.0
    moved = np.abs(drafter.hidden(changed, rows, 20) - plain).max(axis=1)
    assert (moved > 1e-9).all()


@pytest.mark.slow
def test_a_drafter_of_a_model_with_streams_reads_their_mean(tmp_path: Path) -> None:
    target, fed = model_of("glm5_next", tmp_path / "target"), tokens()[:4]
    plan = dflash_plan(tiny_drafter(), target.plan)
    drafter = ReferenceDrafter.load(write_drafter(tmp_path / "drafter", tiny_drafter(), 3), plan, target)
    rows = Fed()
    for token in fed:
        target.feed(rows, token)
    # Layers 1, 3 and 6 are read once they are finished.
    taps = np.array([[rows.streams[row][layer].mean(axis=0) for layer in (2, 4, 7)] for row in range(len(fed))])
    assert np.allclose(drafter.context(fed), drafter.context_of_taps(taps.reshape(len(fed), -1)))
    assert drafter.dflash(fed).logits.shape == (7, 288)


def test_a_longer_block_is_no_prefix_of_a_shorter_one_since_rows_see_all_masks(tmp_path: Path) -> None:
    drafter, fed = drafter_of(tmp_path), tokens()[:6]
    short, long = drafter.dflash(fed, 5), drafter.dflash(fed)
    assert short.logits.shape == (4, 288) and long.logits.shape == (7, 288)
    assert np.abs(short.logits - long.logits[:4]).max() > 1e-6


def test_the_selector_chooses_among_the_best_candidates_of_each_position(tmp_path: Path) -> None:
    drafter, fed = drafter_of(tmp_path), tokens()[:6]
    block = drafter.dflash(fed)
    chain = drafter.chain(fed[-1], block)
    assert len(chain) == 7
    for row, token in enumerate(chain):
        assert token in np.argsort(-block.logits[row])[: drafter.plan.candidates]
