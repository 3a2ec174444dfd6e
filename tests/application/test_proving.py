"""The proof passes on a sound engine, fails on a faulty one and names the place, and fails when it proved nothing."""

from __future__ import annotations

import pytest

from tensorfold.application.planting import PlantedDrafts, Shape, Tally
from tensorfold.application.ports.target_model import Lane, LaneImage, TargetModel
from tensorfold.application.proof import LEAST_HEADED, LEAST_KEPT, LEAST_REFUSED, LEAST_RESUMED, Report, Row
from tensorfold.application.proving import Prover
from tensorfold.application.settings import EngineSettings
from tensorfold.application.snapshots import SnapshotShelf
from tensorfold.domain.drafting.copies import CopySourceFactory
from tests.application.house import law, serving
from tests.fakes.faulty_model import Fault, FaultyModel
from tests.fakes.hash_faults import DriftingModel, StreamsDriftingModel
from tests.fakes.hash_head import AnyHead, HashDrafter, HashHead
from tests.fakes.hash_model import HashModel
from tests.fakes.stores import FakeSnapshotStore
from tests.fakes.tokenizer import FakeTokenizer

LAW = law(51, vocabulary=512)
TOKENIZER = FakeTokenizer(512)
FORCED = EngineSettings(parallel=4, force_windows=True)


def prove(model: TargetModel, settings: EngineSettings = FORCED, said: list[str] | None = None) -> Report:
    with serving(model, settings=settings, sources=(CopySourceFactory(),)) as scheduler:
        say = (lambda line: None) if said is None else said.append
        return Prover(scheduler, TOKENIZER, say).run()


@pytest.mark.slow
def test_a_sound_engine_is_proved_in_every_mode() -> None:
    said: list[str] = []
    report = prove(HashModel(LAW, prefill_slice=64), said=said)
    assert report.passed and report.reasons == ()
    assert report.compared >= 600 and report.differences == 0
    modes = [row.mode for row in report.rows]
    assert modes == [
        "chains, greedy",
        "trees, greedy",
        "chains, sampled",
        "trees, sampled",
        "crowd, shared rounds",
        "cancel and rejoin",
        "prompts resumed",
    ]
    for row in report.rows[:-2]:
        assert row.kept >= LEAST_KEPT and row.refused >= LEAST_REFUSED and row.tally.stops_inside
        assert row.tally.missing(15) == ()
        assert row.drafts["oracle"][0] > 0
    assert any("serial reference, greedy" in line for line in said)


class _ForksDrift(HashModel):
    """What goes on from a fork is not what the fork was made of."""

    def resume(self, lane: Lane, capacity: int) -> Lane:
        made = super().resume(lane, capacity)
        self._lanes[made].state ^= 1
        return made


@pytest.mark.slow
def test_prompts_that_resume_from_forks_are_proved_and_leave_none_behind() -> None:
    sound = HashModel(LAW, prefill_slice=64, resume="prompt_end")
    report = prove(sound)
    assert report.passed and report.differences == 0
    resumed = next(row for row in report.rows if row.mode == "prompts resumed")
    assert resumed.resumed is not None and resumed.resumed >= LEAST_RESUMED
    assert sound.lanes() == () and not sound.misuses
    faulty = prove(_ForksDrift(LAW, prefill_slice=64, resume="prompt_end"))
    assert [row.mode for row in faulty.rows if row.first is not None] == ["prompts resumed"]


@pytest.mark.parametrize("trees", [False, True])
@pytest.mark.slow
def test_a_fault_in_wide_rows_is_found_and_its_position_named(trees: bool) -> None:
    report = prove(DriftingModel(3, LAW, prefill_slice=64, chains=not trees, trees=trees))
    assert not report.passed and report.differences > 0
    first = next(row.first for row in report.rows if row.first is not None)
    assert first.position >= 1
    assert any(f"first difference at position {first.position}" in reason for reason in report.reasons)
    assert any(("trees" if trees else "chains") in reason for reason in report.reasons)


@pytest.mark.slow
def test_a_fault_in_shared_rows_is_found_in_the_crowd_alone() -> None:
    report = prove(StreamsDriftingModel(LAW, prefill_slice=64))
    assert [row.mode for row in report.rows if row.first is not None] == ["crowd, shared rounds", "cancel and rejoin"]
    assert not report.passed


@pytest.mark.slow
def test_bits_that_differ_are_found_even_where_the_token_is_the_same() -> None:
    report = prove(DriftingModel(2, LAW, prefill_slice=64))
    bits = [row.first for row in report.rows if row.first is not None and row.first.bits]
    assert bits and "row's bits differ" in bits[0].sentence()


@pytest.mark.slow
def test_a_proof_without_windows_proves_nothing_and_fails() -> None:
    report = prove(HashModel(LAW, prefill_slice=64, chain_width=1, tree_width=1, shares_rounds=False))
    assert not report.passed and report.differences == 0
    assert "nothing drafted was proved" in report.reasons[0]
    assert [row.mode for row in report.rows] == ["crowd, rounds in turn", "cancel and rejoin", "prompts resumed"]


@pytest.mark.slow
def test_a_model_without_trees_is_proved_with_chains() -> None:
    report = prove(HashModel(LAW, prefill_slice=64, tree_width=1))
    assert report.passed
    assert not any("tree" in row.mode for row in report.rows)


@pytest.mark.parametrize("head", [HashHead((0.9, 0.6, 0.3)), HashDrafter((0.0, 0.0))], ids=["chain", "lattice"])
@pytest.mark.slow
def test_a_models_own_head_is_proved_with_nothing_planted_beside_it(head: AnyHead) -> None:
    report = prove(HashModel(LAW, prefill_slice=64, head=head))
    assert report.passed
    headed = [row for row in report.rows if row.heads]
    assert [row.mode for row in headed] == ["draft head, greedy", "draft head, sampled"]
    assert all(row.headed >= LEAST_HEADED and "oracle" not in row.drafts and row.compared > 100 for row in headed)


@pytest.mark.slow
def test_a_head_that_never_drafts_makes_the_proof_fail() -> None:
    model = FaultyModel(HashModel(LAW, prefill_slice=64, head=HashHead()), [Fault("propose")])
    report = prove(model)
    assert not report.passed and report.differences == 0
    assert "draft head, greedy: 0 drafts of the head were verified, at least 100 are needed" in report.reasons


@pytest.mark.slow
def test_prompts_that_resume_are_proved_from_memory_and_from_disk() -> None:
    disk = FakeSnapshotStore()
    with serving(HashModel(LAW, prefill_slice=64), settings=FORCED, sources=(CopySourceFactory(),)) as scheduler:
        report = Prover(scheduler, TOKENIZER, shelf=lambda rule: SnapshotShelf(disk)).run()
    assert report.passed
    rows = [row for row in report.rows if row.resumed is not None]
    assert [row.mode for row in rows] == ["prompts resumed", "prompts from disk"]
    assert all(row.resumed and row.resumed >= LEAST_RESUMED and row.compared > 200 for row in rows)


@pytest.mark.slow
def test_a_prompt_resumed_from_another_state_is_found() -> None:
    class Forgetful(HashModel):
        def restore(self, image: LaneImage, capacity: int) -> Lane:
            lane = super().restore(image, capacity)
            self._lanes[lane].state ^= 1
            return lane

    report = prove(Forgetful(LAW, prefill_slice=64))
    assert [row.mode for row in report.rows if row.first is not None] == ["prompts resumed"]


@pytest.mark.slow
def test_a_model_that_resumes_nothing_makes_the_proof_fail() -> None:
    report = prove(FaultyModel(HashModel(LAW, prefill_slice=64), [Fault("export")]))
    assert report.reasons == ("prompts resumed: 0 prompt tokens were resumed, at least 100 are needed",)


@pytest.mark.slow
def test_every_kept_length_is_met_soon_though_replies_are_short() -> None:
    report = prove(HashModel(LAW, prefill_slice=64, chain_width=128, tree_width=16, context=40))
    assert report.passed and {row.widest for row in report.rows if row.counts_drafts} == {15}


@pytest.mark.slow
def test_narrow_windows_need_every_kept_length_up_to_their_own_width() -> None:
    report = prove(HashModel(LAW, prefill_slice=64, chain_width=4, tree_width=3))
    assert report.passed
    assert {row.widest for row in report.rows if row.counts_drafts} == {3, 2}


@pytest.mark.slow
def test_a_request_that_fails_makes_the_proof_fail() -> None:
    model = FaultyModel(HashModel(LAW, prefill_slice=64), [Fault("prefill", nth=20)])
    report = prove(model)
    assert not report.passed and any("a request failed" in reason for reason in report.reasons)


def test_a_serial_reference_that_cannot_be_made_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="failed inside the engine"):
        prove(FaultyModel(HashModel(LAW, prefill_slice=64), [Fault("launch")]))


def test_a_mode_that_saw_too_little_says_what_it_lacks() -> None:
    row = Row("chains", widest=2)
    row.tally.saw(2)
    assert row.lacks() == (
        f"0 drafts kept, at least {LEAST_KEPT} are needed",
        f"0 drafts refused, at least {LEAST_REFUSED} are needed",
        "no window kept exactly 0, 1 drafts",
        "no reply stopped inside a kept run",
    )


@pytest.mark.slow
def test_a_proof_without_drafts_says_which_minimum_was_missed() -> None:
    report = prove(HashModel(LAW, prefill_slice=64), EngineSettings(parallel=4, drafts=False))
    assert not report.passed
    assert any("0 drafts kept" in reason for reason in report.reasons)


def planted(shape: Shape, lengths: list[int], reply: tuple[int, ...] = tuple(range(20))) -> PlantedDrafts:
    return PlantedDrafts(2, reply, iter(lengths), shape, 64, Tally())


def test_planted_chains_are_right_as_long_as_asked_and_wrong_from_there() -> None:
    offer = planted("chain", [3]).propose([9, 9], 6)
    assert offer is not None and offer.tokens[:3] == (0, 1, 2) and offer.tokens[3] != 3 and len(offer.tokens) == 6


@pytest.mark.parametrize("right", range(16))
def test_planted_trees_hold_one_right_branch_of_the_asked_length_between_wrong_siblings(right: int) -> None:
    offer = planted("tree", [right]).propose([9, 9], 15)
    assert offer is not None and offer.parents is not None and len(offer.tokens) == 15
    row, depth = 0, 0
    while True:
        children = [i + 1 for i, p in enumerate(offer.parents) if p == row and offer.tokens[i] == depth]
        if not children:
            break
        row, depth = children[0], depth + 1
    assert depth == right
    assert all(parent <= row for row, parent in enumerate(offer.parents))


def test_planted_drafts_rest_when_asked_and_end_with_the_reply() -> None:
    source = PlantedDrafts(2, (1, 2, 3), iter([1] * 9), "chain", 64, Tally(), rest=2)
    assert source.propose([9, 9], 2) is not None
    assert source.propose([9, 9], 2) is None
    assert source.propose([9, 9, 1, 2, 3], 2) is None
    assert source.propose([9, 9], 0) is None


def test_a_tally_counts_stops_inside_kept_runs_only_for_its_own_windows() -> None:
    tally = Tally()
    source = PlantedDrafts(2, tuple(range(20)), iter([5] * 9), "chain", 64, tally)
    source.propose([9, 9], 8)
    source.observe("copy", 3, 1, [9, 9, 0, 1])
    assert tally.partial == {} and tally.stops_inside == 0
    source.observe("oracle", 8, 2, [9, 9, 0, 1, 2])
    assert tally.partial == {2: 1} and tally.stops_inside == 1


@pytest.mark.slow
def test_a_server_of_one_stream_is_proved_though_no_round_is_shared() -> None:
    report = prove(HashModel(LAW, prefill_slice=64), EngineSettings(parallel=1, force_windows=True))
    assert report.passed and report.reasons == ()
    assert "crowd, rounds in turn" in [row.mode for row in report.rows]
