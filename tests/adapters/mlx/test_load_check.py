"""The load check narrows what does not hold, says so, and never stops a load; what it found is kept and reused."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.adapters.mlx import loader
from tensorfold.adapters.mlx.backend import MlxBackend
from tensorfold.adapters.mlx.model import MlxModel
from tensorfold.adapters.mlx.row_check import Allowed, RowCheck, company, long_lengths
from tensorfold.adapters.mlx.row_probes import tree_forms
from tensorfold.application.loading import describe
from tensorfold.application.ports.backend import ModelCheckpoint
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.target_model import ModelCosts
from tensorfold.domain.families import llama
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.windows import chain
from tests.adapters.mlx import planted_faults
from tests.adapters.mlx.models import SLIDING, SMALL, absorb, load, rows, serial


@pytest.mark.slow
def test_sound_rows_are_allowed_everything_that_was_wanted(model: MlxModel[Any]) -> None:
    limits = model.limits
    assert (limits.chain_width, limits.tree_width, limits.shares_rounds) == (16, 16, True)
    assert (limits.prefill_slice, limits.draft_context, limits.notes) == (64, 0, ())
    assert [rows for rows, _ in model.costs.rows_ms] == [1, 2, 4, 8, 16, 32, 64]


@pytest.mark.parametrize("width", (1, 2, 5, 15))
@pytest.mark.slow
def test_windows_are_as_wide_as_their_rows_are_exact(width: int, tmp_path: Path) -> None:
    with planted_faults.drift_when_wide(width):
        model = load(tmp_path, SMALL)
        assert model.limits.chain_width == width
        # Trees are looked at up to the chain's cap or their own fault, whichever comes first.
        assert model.limits.tree_width <= max(width, 1)
        assert any("window" in note or "Windows" in note for note in model.limits.notes)
        lane, other = absorb(model, [1, 2, 3], 64), absorb(model, [1, 2, 3], 64)
        tokens = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19][:width]
        assert rows(model, [(lane, chain(tokens[0], tokens[1:]), Sampling())])[0] == serial(
            model, other, tokens, Sampling()
        )
        assert (model.limits.shares_rounds, model.limits.draft_context) == (True, 0)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_weights_whose_logits_are_not_numbers_are_refused(tmp_path: Path) -> None:
    folder = SMALL.write(tmp_path / "checkpoint")
    (weights,) = folder.glob("*.safetensors")
    data = bytearray(weights.read_bytes())
    data[-64:] = b"\xff" * 64
    weights.write_bytes(data)
    facts = FolderReader().facts(folder)
    told = describe(facts, "mlx", None)
    with pytest.raises(RefusedError, match="not finite numbers"):
        MlxBackend(tmp_path / "cache").load(
            ModelCheckpoint(told.plan, told.bound, facts),
            name="n",
            context=64,
            max_streams=2,
            on_progress=lambda line: None,
        )
    assert not list((tmp_path / "cache").rglob("*.json"))


@pytest.mark.slow
def test_trees_are_narrowed_apart_from_chains(tmp_path: Path) -> None:
    with planted_faults.drift_when_branched(8):
        limits = load(tmp_path / "a", SMALL).limits
    assert (limits.chain_width, limits.tree_width) == (16, 8)
    assert any("branches" in note for note in limits.notes)
    with planted_faults.drift_when_branched():
        limits = load(tmp_path / "b", SMALL).limits
    assert (limits.chain_width, limits.tree_width) == (16, 1)


@pytest.mark.slow
def test_streams_that_disturb_each_other_do_not_share(tmp_path: Path) -> None:
    for streams in (1, 3, 7):
        with planted_faults.drift_when_shared(streams):
            limits = load(tmp_path / str(streams), SMALL).limits
        assert (limits.shares_rounds, limits.chain_width) == (False, 16)
        assert any("share" in note for note in limits.notes)


def test_drafts_stop_before_the_context_where_windows_drift(tmp_path: Path) -> None:
    with planted_faults.drift_when_far(200):
        limits = load(tmp_path, SMALL).limits
    assert limits.chain_width == 16
    assert 48 < limits.draft_context <= 200
    assert any(f"{limits.draft_context:,}" in note for note in limits.notes)


def test_prompts_whose_slices_drift_are_read_in_whole_chunks(tmp_path: Path) -> None:
    with planted_faults.slices_drift():
        model = load(tmp_path, SMALL)
    assert model.limits.prefill_slice == 0
    assert any("whole chunks" in note for note in model.limits.notes)
    lane = absorb(model, list(range(90)), 128)
    assert lane in model.lanes()
    model.close(lane)


@pytest.mark.slow
def test_a_fault_planted_after_the_check_changes_the_rows_of_windows(tmp_path: Path) -> None:
    with planted_faults.drift_after_load():
        model = load(tmp_path, SMALL)
    assert model.limits.chain_width == 16
    lane, other = absorb(model, [1, 2, 3], 64), absorb(model, [1, 2, 3], 64)
    wide = rows(model, [(lane, chain(4, [5, 6, 7]), Sampling())])[0]
    assert [row.digest for row in wide] != [row.digest for row in serial(model, other, [4, 5, 6, 7], Sampling())]


@contextlib.contextmanager
def counted_checks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """How many load checks really ran."""
    ran: list[str] = []
    run = RowCheck.run

    def counted(check: RowCheck[Any]) -> Allowed:
        ran.append("check")
        return run(check)

    with monkeypatch.context() as patch:
        patch.setattr(RowCheck, "run", counted)
        yield ran


@pytest.mark.slow
def test_a_finding_is_used_again_for_the_same_engine_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with counted_checks(monkeypatch) as ran:
        first = load(tmp_path, SMALL)
        again = load(tmp_path, SMALL)
        assert (ran, first.limits) == (["check"], again.limits)
        load(tmp_path, SLIDING)
        assert len(ran) == 2
        load(tmp_path, SMALL, streams=2)
        assert len(ran) == 3
        load(tmp_path, SMALL, context=100)
        assert len(ran) == 4
        monkeypatch.setattr(loader, "sources_digest", lambda: "other sources")
        load(tmp_path, SMALL)
        assert len(ran) == 5


@pytest.mark.slow
def test_times_are_measured_at_every_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = ModelCosts(((1, 900.0), (16, 9000.0)), 500.0, ())
    with monkeypatch.context() as patch:
        patch.setattr(loader, "measure", lambda *_: busy)
        assert load(tmp_path, SMALL).costs == busy
    (file,) = (tmp_path / "cache" / "checks").iterdir()
    assert "ms" not in file.read_text()
    with counted_checks(monkeypatch) as ran:
        costs = load(tmp_path, SMALL).costs
    assert not ran and costs.rows_ms[0][1] < 900 and [rows for rows, _ in costs.rows_ms][:2] == [1, 2]


@pytest.mark.slow
def test_a_corrupt_finding_is_ignored_and_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = load(tmp_path, SMALL).limits
    (file,) = (tmp_path / "cache" / "checks").iterdir()
    whole = file.read_text()
    stored = json.loads(whole)
    stored["allowed"]["chain"] = 99
    stored["key"]["weights"] = "of another checkpoint"
    with counted_checks(monkeypatch) as ran:
        for text in ("", "{", whole[:-20], json.dumps({"key": 1}), json.dumps(stored), "[" * 100_000):
            file.write_text(text)
            assert load(tmp_path, SMALL).limits == limits
            assert file.read_text() != text
        assert len(ran) == 6


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    assert load(tmp_path, SMALL).limits.chain_width == 16


def test_a_short_context_is_checked_as_far_as_it_reaches(tmp_path: Path) -> None:
    limits = load(tmp_path, SMALL, context=24).limits
    assert (limits.context, limits.chain_width, limits.notes) == (24, 6, ())
    assert load(tmp_path, SMALL, context=2, streams=1).limits.chain_width == 1
    least = load(tmp_path, SMALL, context=8).limits
    assert (least.chain_width, least.tree_width, least.notes) == (2, 1, ())


def test_probes_reach_past_every_boundary_of_the_family() -> None:
    plan = llama.plan(SLIDING.config() | {"sliding_window": 500})
    lengths = long_lengths(plan, 8192, 16)
    assert lengths == sorted(lengths) and lengths[-1] == 8192 - 17
    for edge in (256, 500, 500 + 64, 1024, 4096):
        assert any(length < edge < length + 16 for length in lengths), edge


def test_shared_launches_are_probed_up_to_a_full_one() -> None:
    pairs = company(16, 64, 8)
    assert all(2 <= streams <= 8 and streams * each <= 64 for streams, each in pairs)
    assert max(streams * each for streams, each in pairs) == 64
    assert {(2, 1), (8, 1), (2, 16)} <= set(pairs)
    assert company(1, 64, 2) == [(2, 1)]


def test_tree_forms_branch_before_and_behind_and_run_deep() -> None:
    bushy, mixed = tree_forms(tuple(range(16)))
    assert max(bushy.depths()) == 4
    assert max(mixed.depths()) >= 6
    children = [[row for row, parent in enumerate(mixed.parents) if parent == node] for node in range(16)]
    spine = [node for node in range(16) if len(children[node]) >= 2]
    heights = {
        row: max((len(mixed.path_to(r)) for r in range(16) if row in mixed.path_to(r)), default=0) for row in range(16)
    }
    firsts = [max(children[node], key=lambda row: heights[row]) == children[node][0] for node in spine]
    assert True in firsts and False in firsts
