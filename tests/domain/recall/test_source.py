"""Copies from the record: when they are offered, how wide, what they learn, and that they never change a reply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.drafting.arbitration import arbitrate, merge
from tensorfold.domain.drafting.sources import (
    OWN_CONTEXT,
    DraftSource,
    DraftSourceFactory,
    Proposal,
    Widths,
    sound,
)
from tensorfold.domain.recall.policy import OfferPolicy, OfferSettings
from tensorfold.domain.recall.rates import LandingRates
from tensorfold.domain.recall.source import RECALL, RecallSourceFactory
from tensorfold.domain.verification import accept
from tensorfold.domain.windows import chain, tree
from tests.fakes.record_places import ListPlaces

TEXT = list(range(1000, 1800))
WRONG = 5
"""An id of no text."""
SHORT, MIDDLE, LONG, AFTER_EDIT = range(4)


class World:
    """A record, the policy over it, and one stream that is driven round by round."""

    def __init__(
        self,
        *pieces: Sequence[int],
        prompt: Sequence[int] = TEXT[:20],
        rules: OfferSettings | None = None,
        widths: Widths | None = None,
    ) -> None:
        self.places = ListPlaces(pieces)
        self.policy = OfferPolicy(rules)
        self.factory = RecallSourceFactory(self.places, self.policy)
        self.widths = widths or Widths(128)
        self.tokens = list(prompt)
        self.source = self.factory.open(prompt, self.widths)

    @property
    def rates(self) -> LandingRates:
        return self.policy.ledger.rates

    def offer(self, limit: int = 127) -> Proposal | None:
        return self.source.propose(self.tokens, limit)

    def expect(self, limit: int = 127) -> Proposal:
        offer = self.offer(limit)
        assert offer is not None
        return offer

    def end(self, fresh: Sequence[int], source: str | None = RECALL, drafted: int = 0, kept: int = 0) -> None:
        """The round ends with `fresh` ids committed."""
        self.tokens += fresh
        self.source.observe(source, drafted, kept, self.tokens)

    def round(self, reply: Sequence[int], limit: int = 127, granted: int = 127) -> Proposal | None:
        """A round in which the target says the next ids of `reply`, which begins the stream too; what was offered."""
        offer = self.offer(limit)
        at = len(self.tokens)
        if offer is None:
            self.end(reply[at : at + 1], None)
            return None
        drafts = offer.first(granted)
        window = (
            chain(self.tokens[-1], drafts.tokens)
            if drafts.parents is None
            else tree(self.tokens[-1], drafts.tokens, drafts.parents)
        )
        landed = accept(window, _draws(window.tokens, window.parents, reply[at:]), 999, frozenset()).tokens
        self.end(landed, RECALL if len(drafts) else None, len(drafts), len(landed) - 1)
        return offer

    def widths_of(self, reply: Sequence[int], rounds: int, limit: int = 127) -> list[int]:
        """Drafts offered in each of some rounds."""
        return [len(self.round(reply, limit) or ()) for _ in range(rounds)]

    def own_round(self, kept: int) -> None:
        """A round in which the stream's own head landed `kept` drafts, far from every text."""
        self.end([WRONG] * (kept + 1), "head", 8, kept)

    def miss(self, match: int) -> Proposal | None:
        """A round whose copy, behind a match of `match` ids of TEXT, is wrong from its first id."""
        return self.short_copy(match, 0)

    def hit(self, match: int) -> Proposal | None:
        """The same, but right for five ids."""
        return self.short_copy(match, 5)

    def short_copy(self, match: int, right: int) -> Proposal | None:
        self.tokens += [WRONG, *TEXT[100 : 100 + match]]
        offer = self.offer()
        if offer is None:
            self.end([WRONG], None)
        else:
            self.end([*TEXT[100 + match : 100 + match + right], WRONG], RECALL, len(offer), right)
        return offer


def _draws(tokens: Sequence[int], parents: Sequence[int], reply: Sequence[int]) -> list[int]:
    """What a target that says `reply` draws in each row; rows off its path draw nothing that can stand."""
    depth = [0]
    right = [True]
    for row in range(1, len(tokens)):
        parent = parents[row]
        depth.append(depth[parent] + 1)
        right.append(right[parent] and len(reply) > depth[parent] and tokens[row] == reply[depth[parent]])
    return [reply[d] if ok and d < len(reply) else -1 for d, ok in zip(depth, right, strict=True)]


def patient(**changes: object) -> OfferSettings:
    """Settings without rests, for tests of other things."""
    return replace(OfferSettings(rest=0), **changes)  # type: ignore[arg-type]


# -- what is offered -------------------------------------------------------------------------------------------------


def test_nothing_is_offered_before_sixteen_ids_match() -> None:
    assert World(TEXT, prompt=TEXT[:15]).offer() is None
    assert World(TEXT, prompt=TEXT[:16]).expect().tokens == tuple(TEXT[16:23])


def test_a_copy_holds_what_followed_the_match_with_its_classes_chances() -> None:
    offer = World(TEXT, prompt=TEXT[30:50]).expect()
    assert offer == Proposal(RECALL, tuple(TEXT[50:57]), LandingRates(6).chances(SHORT, 7))
    assert RecallSourceFactory(ListPlaces(), OfferPolicy()).open(()).name == RECALL == "recall"


@pytest.mark.parametrize(
    ("length", "kind"), [(16, SHORT), (31, SHORT), (32, MIDDLE), (63, MIDDLE), (64, LONG), (200, LONG)]
)
def test_chances_are_those_of_the_matchs_class(length: int, kind: int) -> None:
    offer = World(TEXT, prompt=[WRONG, *TEXT[:length]]).expect()
    assert offer.chances == LandingRates(6).chances(kind, 7)


@pytest.mark.parametrize("limit", [1, 2, 6, 7, 8])
def test_a_copy_keeps_to_the_limit(limit: int) -> None:
    assert World(TEXT).expect(limit).tokens == tuple(TEXT[20 : 20 + min(limit, 7)])


@pytest.mark.parametrize("limit", [0, -1])
def test_no_room_means_no_offer(limit: int) -> None:
    world = World(TEXT)
    assert world.offer(limit) is None
    assert world.places.finds == 0


@pytest.mark.parametrize("prompt", [[], [1], TEXT[:3]])
def test_short_streams_are_no_error(prompt: list[int]) -> None:
    world = World(TEXT, prompt=prompt)
    assert world.offer() is None
    world.end([WRONG], None)
    assert world.offer(1) is None


def test_a_copy_ends_where_the_text_ends() -> None:
    assert World(TEXT[:23]).expect().tokens == tuple(TEXT[20:23])
    assert World(TEXT[:21]).expect().tokens == (TEXT[20],)
    assert World(TEXT[:20]).offer() is None


def test_the_longest_match_is_copied_and_names_the_class() -> None:
    older, newer = [*TEXT[:40], 1, 1, 1], [WRONG, *TEXT[19:40], 1, 1, 1]
    offer = World(older, newer, prompt=TEXT[:40]).expect()
    assert (offer.tokens, offer.chances) == ((1, 1, 1), LandingRates(6).chances(MIDDLE, 3))
    newer[-3:] = 2, 2, 2
    assert World(older, newer, prompt=TEXT[:40]).expect().tokens == (1, 1, 1)


def test_of_equal_matches_the_newest_is_copied() -> None:
    assert World([*TEXT[:20], 1, 1], [*TEXT[:20], 2, 2]).expect().tokens == (2, 2)


# -- against the stream's own drafts ---------------------------------------------------------------------------------


def test_a_copy_must_be_expected_to_land_more_than_own_drafts_do() -> None:
    expected = sum(LandingRates(6).chances(SHORT, 7))
    assert World(TEXT, rules=OfferSettings(own_drafts=expected)).offer() is None
    assert World(TEXT, rules=OfferSettings(own_drafts=expected - 1e-9)).offer() is not None


def test_own_copies_win_ties_when_both_propose() -> None:
    offer = World(TEXT).expect()
    own = Proposal(OWN_CONTEXT, (1,) * 7, offer.chances)
    assert arbitrate([offer, own]) is own
    assert arbitrate([own, offer]) is own


def test_own_drafts_are_those_landed_lately() -> None:
    world = World(TEXT, rules=OfferSettings(own_drafts=2.0))
    world.own_round(6)
    assert world.source.own_drafts == pytest.approx(2.0 + 0.15 * 4.0)
    world.end([WRONG], None)
    assert world.source.own_drafts == pytest.approx(0.85 * 2.6)
    assert RecallSourceFactory(ListPlaces(), OfferPolicy()).open(()).own_drafts == 0.0


@pytest.mark.parametrize("verified", [RECALL, "head+recall", "recall+copy"])
def test_rounds_in_which_the_record_drafted_say_nothing_of_own_drafts(verified: str) -> None:
    world = World(TEXT, rules=OfferSettings(own_drafts=2.0))
    offer = world.expect()
    world.end(TEXT[20:28], verified, len(offer), 7)
    assert world.source.own_drafts == 2.0


def test_own_drafts_that_are_no_longer_made_do_not_hold_copies_off() -> None:
    world = World(TEXT, rules=OfferSettings(own_drafts=6.0))
    rounds = 0
    while world.offer() is None:
        world.end(TEXT[len(world.tokens) : len(world.tokens) + 1], None)
        rounds += 1
    assert 2 <= rounds <= 7


# -- windows ---------------------------------------------------------------------------------------------------------


def test_windows_double_while_copies_land_whole() -> None:
    assert World(TEXT, prompt=[WRONG] * 64 + TEXT[:16]).widths_of([WRONG] * 64 + TEXT, 7) == [
        7, 15, 31, 63, 127, 127, 127,
    ]  # fmt: skip


def test_a_repeated_request_jumps_to_the_widest_window_once_the_first_has_landed() -> None:
    assert World(TEXT).widths_of(TEXT, 3) == [7, 127, 127]


@pytest.mark.parametrize(("matched", "second"), [(63, 15), (64, 127)])
def test_a_match_counts_as_a_repeated_request_when_it_reaches_far_into_the_prompt(matched: int, second: int) -> None:
    prompt = [WRONG, *TEXT[100 - matched : 100]]
    assert World(TEXT, prompt=prompt).widths_of([*prompt, *TEXT[100:]], 2) == [7, second]


@pytest.mark.parametrize(("reply", "second"), [(0, 127), (1, 15)])
def test_a_repeated_request_has_repeated_its_whole_reply(reply: int, second: int) -> None:
    world = World(TEXT, prompt=TEXT[:100])
    stream = [*TEXT[:100], *[WRONG] * reply, *TEXT[200:]]
    for _ in range(17 * reply):
        world.end(stream[len(world.tokens) : len(world.tokens) + 1], None)
    text = stream if reply else TEXT
    assert world.widths_of(text, 2) == [7, second]


def test_a_repeated_request_is_told_by_its_longest_match() -> None:
    prompt = TEXT[:64]
    assert World(TEXT, TEXT[10:], prompt=prompt).widths_of(TEXT, 2) == [7, 127]


def test_a_repeated_request_whose_first_window_was_cut_widens_as_usual() -> None:
    world = World(TEXT)
    world.round(TEXT, granted=6)
    assert len(world.expect()) == 13


def test_windows_do_not_outgrow_the_limit() -> None:
    assert World(TEXT).widths_of(TEXT, 3, limit=20) == [7, 20, 20]


@pytest.mark.parametrize(
    ("widths", "expected"),
    [(Widths(2), [1, 1, 1]), (Widths(12), [7, 11, 11]), (Widths(1), [0, 0]), (Widths(16, 64), [7, 15])],
)
def test_windows_do_not_outgrow_what_the_model_verifies(widths: Widths, expected: list[int]) -> None:
    assert World(TEXT, widths=widths).widths_of(TEXT, len(expected)) == expected


def test_a_partial_landing_brings_the_window_back_to_the_base() -> None:
    older, newer = [*TEXT[:35], *range(100, 200)], [*TEXT[:35], *range(200, 300)]
    world = World(older, newer, prompt=[WRONG] * 64 + TEXT[:20])
    reply = [WRONG] * 64 + older
    assert world.widths_of(reply, 2) == [7, 15]
    assert world.tokens == reply[: 64 + 36]
    assert world.expect().tokens == tuple(range(101, 108))


def test_a_window_cut_short_is_no_reason_for_a_wider_one() -> None:
    prompt = [WRONG] * 64 + TEXT[:16]
    world = World(TEXT, prompt=prompt)
    text = [WRONG] * 64 + TEXT
    world.round(text, granted=3)
    assert len(world.expect()) == 7
    world.round(text)
    world.round(text, granted=4)
    assert len(world.expect()) == 15


def test_a_new_copy_begins_with_the_base_window() -> None:
    other = list(range(100))
    world = World(TEXT, other)
    world.widths_of(TEXT, 2)
    world.end(other[:20], None)
    assert world.expect().tokens == tuple(other[20:27])


# -- learning --------------------------------------------------------------------------------------------------------


def test_landings_and_misses_are_learned_by_class() -> None:
    world = World(TEXT, prompt=[WRONG, *TEXT[:40]])
    offer = world.expect()
    world.end([TEXT[40], TEXT[41], WRONG], RECALL, len(offer), 2)
    expected = LandingRates(6)
    expected.observe(MIDDLE, 2, True)
    assert [world.rates.chances(kind, 20) for kind in range(4)] == [expected.chances(kind, 20) for kind in range(4)]
    (figure,) = [c for c in world.policy.figures().classes if c.offers]
    assert (figure.match, figure.offered_tokens, figure.landed_tokens) == ("32-63", 7, 2)


def test_only_what_the_target_decided_is_learned() -> None:
    world = World(TEXT)
    offer = world.expect()
    world.end(TEXT[20:22], RECALL, len(offer), 2)
    expected = LandingRates(6)
    expected.observe(SHORT, 2, False)
    assert world.rates.chances(SHORT, 20) == expected.chances(SHORT, 20)
    assert world.policy.figures().missed_offers == 0
    assert world.expect().tokens == tuple(TEXT[22:29])


def test_a_round_cut_before_the_first_draft_says_nothing() -> None:
    world = World(TEXT)
    offer = world.expect()
    world.end([], RECALL, len(offer), 0)
    assert world.rates.chances(SHORT, 20) == LandingRates(6).chances(SHORT, 20)
    assert (world.policy.figures().missed_offers, world.source.resting_rounds) == (0, 0)
    assert len(world.expect()) == 7


def test_rows_that_were_not_granted_say_nothing() -> None:
    world = World(TEXT)
    world.expect()
    world.end([*TEXT[20:23], WRONG], RECALL, 3, 3)
    expected = LandingRates(6)
    expected.observe(SHORT, 3, False)
    assert world.rates.chances(SHORT, 20) == expected.chances(SHORT, 20)
    figures = world.policy.figures()
    assert (figures.offers, figures.offered_tokens, figures.landed_tokens) == (1, 3, 3)


@pytest.mark.parametrize(("verified", "drafted"), [(None, 0), ("head", 3), (OWN_CONTEXT, 7), (RECALL, 0)])
def test_an_offer_that_was_not_verified_was_not_made(verified: str | None, drafted: int) -> None:
    world = World(TEXT, rules=OfferSettings(first_wait=2))
    world.expect()
    world.end([WRONG], verified, drafted, 0)
    assert world.source.resting_rounds == 0
    assert world.policy.figures().offers == 0
    assert world.rates.chances(SHORT, 20) == LandingRates(6).chances(SHORT, 20)
    assert not world.policy.ledger.probe_due()
    world.tokens += TEXT[:20]
    world.expect()
    world.end([WRONG], verified, drafted, 0)
    assert world.policy.ledger.probe_due()


def test_an_offer_that_is_asked_for_again_was_not_made() -> None:
    world = World(TEXT, rules=OfferSettings(first_wait=2))
    assert world.offer() == world.offer()
    assert world.offer(0) is None
    assert world.policy.ledger.probe_due()
    world.end([WRONG], RECALL, 7, 0)
    assert world.policy.figures().offers == 0


def test_streams_share_what_landed_and_nothing_else() -> None:
    world = World(TEXT)
    world.expect()
    world.end([WRONG], RECALL, 7, 0)
    other = world.factory.open(TEXT[:20])
    offer = other.propose(TEXT[:20], 127)
    assert (world.source.resting_rounds, other.resting_rounds) == (4, 0)
    assert offer is not None and offer.chances[0] == pytest.approx(8 * 0.7 / 9)


# -- rest ------------------------------------------------------------------------------------------------------------


def test_after_a_copy_that_landed_nothing_the_record_is_left_alone_for_four_rounds() -> None:
    world = World(TEXT)
    world.expect()
    world.end([WRONG], RECALL, 7, 0)
    finds = world.places.finds
    for left in (4, 3, 2, 1):
        assert world.source.resting_rounds == left
        world.tokens += TEXT[:20]
        assert world.offer() is None
        world.end([WRONG], "head", 3, 0)
    assert world.places.finds == finds
    world.tokens += TEXT[:20]
    assert world.expect().tokens == tuple(TEXT[20:27])


def test_a_copy_of_one_id_rests_too() -> None:
    world = World(TEXT)
    assert len(world.expect(1)) == 1
    world.end([WRONG], RECALL, 1, 0)
    assert (world.source.resting_rounds, world.source.own_drafts) == (4, 0.0)


def test_one_landed_id_is_no_reason_for_a_rest() -> None:
    world = World(TEXT)
    world.expect()
    world.end([TEXT[20], WRONG], RECALL, 7, 1)
    assert world.source.resting_rounds == 0


def test_a_merged_window_rests_when_none_of_the_records_ids_landed() -> None:
    world = World(TEXT, rules=OfferSettings(own_drafts=0.0))
    world.expect()
    world.end([1, 2, 3], "head+recall", 10, 2)
    assert world.source.resting_rounds == 4
    assert world.policy.figures().missed_offers == 1


def test_of_a_merged_window_the_records_own_part_is_counted() -> None:
    world = World(TEXT)
    world.expect()
    world.end([TEXT[20], TEXT[21], WRONG, WRONG], "head+recall", 12, 3)
    figures = world.policy.figures()
    assert (figures.offers, figures.offered_tokens, figures.landed_tokens) == (1, 7, 2)


# -- a record that is of no use --------------------------------------------------------------------------------------


def test_a_record_whose_copies_keep_missing_is_asked_by_ever_rarer_probes() -> None:
    world = World(TEXT[:130], rules=patient(own_drafts=3.0, own_rate=0.0))
    verified = []
    for opportunity in range(1200):
        if world.miss(20) is not None:
            verified.append(opportunity)
    probes = world.policy.figures().probes
    spacing = [b - a for a, b in pairwise(verified)][-probes:]
    assert spacing == [8, 16, 32, 64, 128, 256, 512]
    assert len(verified) <= 2 + probes


def test_even_a_stream_without_own_drafts_stops_copying_a_useless_record() -> None:
    world = World(TEXT[:130], rules=patient())
    offers = [world.miss(20) is not None for _ in range(300)]
    assert offers[:6] == [True] * 6
    assert sum(offers[6:]) == world.policy.figures().probes == 5


def test_a_probe_carries_a_true_copys_chances() -> None:
    world = World(TEXT[:130], rules=patient())
    while True:
        offer = world.miss(20)
        if offer is None:
            break
    for _ in range(7):
        offer = world.miss(20)
    assert offer is not None
    assert offer.chances == LandingRates(6).chances(SHORT, 7)
    assert not offer.graft


def test_a_record_that_became_useful_is_used_again() -> None:
    world = World(TEXT[:130], rules=patient())
    for _ in range(300):
        world.miss(20)
    assert world.policy.ledger.wait == 256
    offered = [world.hit(20) is not None for _ in range(240)]
    first = offered.index(True)
    assert 200 < first < 256
    assert all(offered[first:])
    assert world.policy.ledger.wait == 8
    assert sum(world.rates.chances(SHORT, 7)) > 2.0


@pytest.mark.parametrize(("own", "landed", "wait"), [(0.0, 1, 8), (3.0, 2, 16), (3.0, 3, 8), (0.0, 0, 16)])
def test_a_probe_must_land_what_own_drafts_land(own: float, landed: int, wait: int) -> None:
    world = World(TEXT, rules=patient(own_drafts=own, own_rate=0.0, first_wait=8, misses=0))
    for _ in range(7):
        assert world.miss(20) is None
    world.tokens += [WRONG, *TEXT[:20]]
    offer = world.expect()
    world.end([*TEXT[20 : 20 + landed], WRONG], RECALL, len(offer), landed)
    assert (world.policy.ledger.wait, world.policy.figures().probes) == (wait, 1)


def due(**changes: object) -> World:
    """A stream of a useless record at whose next opportunity a probe is due."""
    world = World(TEXT, rules=patient(misses=0, **changes))
    for _ in range(7):
        assert world.miss(20) is None
    world.tokens += [WRONG, *TEXT[:20]]
    return world


def test_a_probe_that_was_not_verified_is_made_again_at_the_next_opportunity() -> None:
    world = due()
    for _ in range(3):
        assert world.offer() is not None
        world.end([WRONG], None)
        world.tokens += [WRONG, *TEXT[:20]]
    assert (world.policy.ledger.wait, world.policy.figures().probes) == (8, 0)


def test_a_probe_of_which_nothing_was_decided_is_made_again() -> None:
    world = due()
    offer = world.expect()
    world.end([], RECALL, len(offer), 0)
    assert (world.policy.ledger.wait, world.policy.figures().probes) == (8, 0)
    assert world.offer() is not None


def test_a_probe_is_made_by_one_stream_of_a_round() -> None:
    world = due()
    other = world.factory.open(TEXT[:20])
    assert world.offer() is not None
    assert other.propose(TEXT[:20], 127) is None


def test_rows_that_are_never_granted_bring_a_probe_with_better_chances() -> None:
    world = World(TEXT, rules=patient(first_wait=3))
    world.miss(20)
    low = None
    for _ in range(3):
        world.tokens += [WRONG, *TEXT[:20]]
        low = world.expect()
        world.end([WRONG], None)
    world.tokens += [WRONG, *TEXT[:20]]
    offer = world.expect()
    assert low is not None and low.chances[0] < offer.chances[0] == 0.7
    world.end([WRONG], RECALL, 7, 0)
    assert world.policy.figures().probes == 1


def test_a_wanted_offer_that_hopes_for_no_more_is_no_probe() -> None:
    world = World(TEXT, rules=patient(first_wait=2))
    for _ in range(2):
        world.expect()
        world.end([WRONG], None)
        world.tokens += TEXT[:20]
    assert world.policy.ledger.probe_due()
    world.expect()
    world.end([WRONG], RECALL, 7, 0)
    assert world.policy.figures().probes == 0
    assert world.policy.ledger.probe_due()


def test_a_probe_where_own_drafts_land_much_keeps_the_chances_that_were_learned() -> None:
    world = World(TEXT, rules=patient(first_wait=1, own_drafts=50.0))
    for _ in range(30):
        world.rates.observe(SHORT, 7, False)
    offer = world.expect()
    assert offer.chances == world.rates.chances(SHORT, 7)
    assert offer.expected > sum(LandingRates(6).chances(SHORT, 7))


# -- after an edit ---------------------------------------------------------------------------------------------------


def broken(**changes: object) -> World:
    """A stream whose copy of TEXT broke at id 30 and has come back to it at id 34."""
    world = World(TEXT, prompt=[WRONG] * 64 + TEXT[:20], rules=replace(OfferSettings(), **changes))  # type: ignore[arg-type]
    world.round([WRONG] * 64 + TEXT)
    world.expect()
    world.end([*TEXT[28:30], 1], RECALL, 15, 2)
    assert world.offer() is None
    world.end(TEXT[31:34], "head", 3, 2)
    return world


RESUMED_DRAFTS = OfferSettings().resumed_drafts


def test_a_copy_is_resumed_after_an_edit_in_a_class_of_its_own() -> None:
    world = broken()
    offer = world.expect()
    assert offer == Proposal(
        RECALL, tuple(TEXT[34 : 34 + RESUMED_DRAFTS]), LandingRates(6).chances(AFTER_EDIT, RESUMED_DRAFTS)
    )
    world.end([*TEXT[34:36], WRONG], RECALL, 15, 2)
    assert [c.offers for c in world.policy.figures().classes] == [2, 0, 0, 1]


def test_a_resumed_copy_must_be_expected_to_land_more_than_own_drafts_do() -> None:
    expected = sum(LandingRates(6).chances(AFTER_EDIT, RESUMED_DRAFTS))
    world = broken()
    world.source._own = expected
    assert world.offer() is None
    world = broken()
    world.source._own = expected - 1e-9
    assert world.offer() is not None


def test_a_resumed_copy_widens_and_becomes_a_copy_like_others() -> None:
    world = broken()
    text = [*world.tokens, *TEXT[34:]]
    offers = [world.round(text) for _ in range(3)]
    assert [len(offer or ()) for offer in offers] == [31, 63, 127]
    assert [c.offers for c in world.policy.figures().classes] == [2, 1, 1, 1]


# -- several continuations -------------------------------------------------------------------------------------------

FORK = Widths(128, 16)


def forked(widths: Widths, **changes: object) -> World:
    """Two texts that go on alike for three ids and differ then."""
    return World(
        [*TEXT[:23], *range(100, 140)],
        [*TEXT[:23], *range(200, 240)],
        prompt=[WRONG] * 64 + TEXT[:20],
        widths=widths,
        rules=patient(**changes),
    )


def test_places_that_disagree_are_offered_as_a_tree() -> None:
    offer = forked(FORK).expect()
    assert offer.parents is not None
    assert offer.tokens[:3] == tuple(TEXT[20:23]) and offer.parents[:3] == (0, 1, 2)
    assert {200, 100} <= set(offer.tokens[3:])
    assert len(offer) == 11
    first, second = offer.tokens.index(200), offer.tokens.index(100)
    assert offer.parents[first] == offer.parents[second] == 3
    share = 1 / 1.75
    chances = LandingRates(6).chances(SHORT, 7)
    assert offer.chances[first] == pytest.approx(share * chances[3])
    assert offer.chances[second] == pytest.approx((1 - share) * chances[3])


def test_a_tree_keeps_to_the_limit_and_the_trees_rows() -> None:
    assert len(forked(FORK).expect(9)) == 9
    assert len(forked(Widths(128, 9)).expect()) == 8


def test_without_trees_the_likeliest_branch_is_offered() -> None:
    offer = forked(Widths(128)).expect()
    assert offer.tokens == (*TEXT[20:23], 200, 201, 202, 203)
    assert offer.parents is None
    chances = LandingRates(6).chances(SHORT, 7)
    assert offer.chances[:3] == chances[:3]
    assert offer.chances[3] == pytest.approx(chances[3] / 1.75)


def test_a_branch_with_most_votes_stays_a_chain() -> None:
    offer = forked(FORK, recency=0.1).expect()
    assert offer.tokens == (*TEXT[20:23], 200, 201, 202, 203)
    assert offer.parents is None


def test_a_tree_expected_to_land_less_than_a_wide_chain_is_not_offered() -> None:
    older, newer = [*TEXT[:44], *range(100, 180)], [*TEXT[:44], *range(200, 280)]
    prompt = [WRONG] * 64 + TEXT[:20]
    narrow, wide = (World(older, newer, prompt=prompt, widths=Widths(128, tree)) for tree in (8, 64))
    for world in (narrow, wide):
        assert world.widths_of([WRONG] * 64 + older, 2) == [7, 15]
    offer = narrow.expect()
    assert (offer.tokens, offer.parents) == (tuple(range(200, 231)), None)
    assert wide.expect().parents is not None


def test_a_tree_without_a_fork_is_no_wider_than_a_chain() -> None:
    assert len(forked(Widths(5, 64), recency=0.1).expect()) == 4


def test_several_older_places_outvote_the_newest() -> None:
    old, new = [*TEXT[:20], 1, 1], [*TEXT[:20], 2, 2]
    assert World(old, new).expect().tokens == (2, 2)
    assert World(old, old, new).expect().tokens == (1, 1)


def test_longer_matches_weigh_more() -> None:
    # Weights 2 for 32 ids, then 0.75, 0.56, 0.42 and 0.32 for 16 to 31.
    long, short = [*TEXT[:32], 1, 1], [WRONG, *TEXT[8:32], 2, 2]
    assert World(long, short, short, short, prompt=TEXT[:32]).expect().tokens == (1, 1)
    assert World(long, *[short] * 4, prompt=TEXT[:32]).expect().tokens == (2, 2)
    even = [*TEXT[:31], 1, 1], [WRONG, *TEXT[8:31], 2, 2]
    assert World(even[0], even[1], even[1], even[1], prompt=TEXT[:31]).expect().tokens == (2, 2)


@pytest.mark.parametrize(("shorter", "copied"), [(40, 2), (39, 1)])
def test_far_shorter_matches_have_no_vote(shorter: int, copied: int) -> None:
    long, short = [*TEXT[:80], 1, 1], [WRONG, *TEXT[80 - shorter : 80], 2, 2]
    world = World(long, *[short] * 7, prompt=TEXT[:80], rules=OfferSettings(recency=1.0))
    assert world.expect().tokens == (copied, copied)


def test_a_place_that_vanished_has_no_vote() -> None:
    world = World([*TEXT[:20], 1, 1], [*TEXT[:20], 2, 2])
    find = world.places.find

    def find_and_lose(tokens: Sequence[int], most: int) -> list[object]:
        found = find(tokens, most)
        world.places.drop(1)
        return list(found)

    world.places.find = find_and_lose  # type: ignore[assignment]
    offer = world.expect()
    assert offer.tokens == (1, 1)
    assert offer.chances == LandingRates(6).chances(SHORT, 2)


def test_no_place_left_is_no_opportunity() -> None:
    world = World(TEXT, rules=OfferSettings(first_wait=1))
    world.places.following = lambda at, count: ()  # type: ignore[method-assign]
    assert world.offer() is None
    assert not world.policy.ledger.probe_due()


def test_the_branch_that_was_right_is_counted() -> None:
    world = forked(FORK)
    offer = world.expect()
    world.end([*TEXT[20:23], *range(100, 105)], RECALL, len(offer), 7)
    figures = world.policy.figures()
    assert (figures.offered_tokens, figures.landed_tokens, figures.missed_offers) == (11, 7, 0)
    assert len(world.expect()) == 15


# -- grafts ----------------------------------------------------------------------------------------------------------


def graft_world(**changes: object) -> World:
    return World(TEXT, widths=FORK, rules=patient(own_drafts=50.0, own_rate=0.0, first_wait=10_000, **changes))


def test_where_trees_are_verified_a_copy_is_grafted_on_better_own_drafts() -> None:
    offer = graft_world().expect()
    assert offer.graft
    assert offer.tokens == tuple(TEXT[20:27])
    assert World(TEXT, rules=patient(own_drafts=50.0)).offer() is None
    assert not World(TEXT, widths=FORK).expect().graft


def test_a_graft_needs_a_tree_of_two_rows() -> None:
    world = World(TEXT, widths=Widths(128, 2), rules=patient(own_drafts=50.0))
    assert world.expect().graft
    assert World(TEXT, widths=Widths(128, 1), rules=patient(own_drafts=50.0)).offer() is None


def test_a_graft_may_be_expected_to_land_less_than_one_id() -> None:
    assert graft_world().expect(1).graft


def test_grafts_that_land_are_made_every_round() -> None:
    world = graft_world()
    for _ in range(5):
        at = len(world.tokens)
        offer = world.expect()
        assert offer.graft
        world.end([TEXT[at], WRONG], "head+recall", 9, 1)
        world.tokens = TEXT[: at + 20]


def test_a_graft_of_which_nothing_landed_is_followed_by_one_in_every_eighth_round() -> None:
    world = graft_world()
    grafted = []
    for _ in range(25):
        world.tokens += [WRONG, *TEXT[:20]]
        offer = world.offer()
        grafted.append(offer is not None and offer.graft)
        world.end([WRONG, WRONG], "head+recall" if offer else "head", 9, 1)
    assert [i for i, made in enumerate(grafted) if made] == [0, 8, 16, 24]


def test_a_graft_rests_like_any_copy_that_landed_nothing() -> None:
    world = graft_world(rest=4)
    world.expect()
    world.end([WRONG, WRONG], "head+recall", 9, 1)
    assert world.source.resting_rounds == 4


def test_a_graft_that_was_not_verified_is_tried_again_and_passed_over() -> None:
    world = World(TEXT, widths=FORK, rules=patient(own_drafts=50.0, own_rate=0.0, first_wait=2))
    for _ in range(2):
        assert world.expect().graft
        world.end([WRONG], "head", 3, 0)
        world.tokens += TEXT[:20]
    probe = world.expect()
    assert not probe.graft
    world.end([WRONG], RECALL, 7, 0)
    assert world.policy.figures().probes == 1


def test_a_graft_of_which_nothing_was_decided_changes_nothing() -> None:
    world = graft_world()
    world.expect()
    world.end([], "head+recall", 9, 0)
    assert world.expect().graft


def test_a_class_without_a_chance_is_not_grafted() -> None:
    assert graft_world(misses=0).offer() is None


def test_rounds_between_grafts_are_opportunities_passed_over() -> None:
    world = World(TEXT, widths=FORK, rules=patient(own_drafts=50.0, own_rate=0.0, first_wait=3))
    offers = []
    for _ in range(4):
        world.tokens += [WRONG, *TEXT[:20]]
        offer = world.offer()
        offers.append(None if offer is None else offer.graft)
        world.end([WRONG, WRONG], "head+recall" if offer else "head", 9, 1)
    assert offers == [True, None, None, False]


def test_a_graft_merges_with_own_drafts() -> None:
    offer = graft_world().expect()
    own = Proposal("head", (TEXT[20], 1), (0.9, 0.8))
    merged = merge([own, offer], 15)
    assert merged is not None and merged.source == "head+recall"
    assert {TEXT[20], TEXT[21], 1} <= set(merged.tokens)


# -- an emptied record -----------------------------------------------------------------------------------------------


def test_an_outcome_of_an_older_era_is_not_counted() -> None:
    world = World(TEXT)
    world.expect()
    world.places.era += 1
    world.end([WRONG], RECALL, 7, 0)
    assert world.policy.figures().offers == 0
    assert world.source.resting_rounds == 0
    assert world.rates.chances(SHORT, 7) == LandingRates(6).chances(SHORT, 7)


def test_an_outcome_of_a_record_emptied_meanwhile_is_not_counted() -> None:
    world = World(TEXT)
    world.expect()
    world.policy.reset()
    world.end([WRONG], RECALL, 7, 0)
    assert world.policy.figures().offers == 0


def test_nothing_is_offered_from_an_emptied_record() -> None:
    world = World(TEXT)
    world.round(TEXT)
    world.places.clear()
    assert world.offer() is None
    world.end([WRONG], None)
    world.places.add(TEXT)
    world.tokens += TEXT[:20]
    assert world.expect().tokens == tuple(TEXT[20:27])


def test_a_search_that_fails_costs_that_round_only() -> None:
    world = World(TEXT)
    find = world.places.find

    def fail(tokens: Sequence[int], most: int) -> list[object]:
        raise RuntimeError

    world.places.find = fail  # type: ignore[assignment]
    with pytest.raises(RuntimeError):
        world.offer()
    world.end([TEXT[20]], None)
    world.places.find = find  # type: ignore[method-assign]
    assert world.expect().tokens == tuple(TEXT[21:28])


# -- for proofs ------------------------------------------------------------------------------------------------------


def test_an_eager_record_offers_whatever_is_found() -> None:
    world = World(TEXT, rules=OfferSettings(eager=True, own_drafts=50.0))
    for _ in range(20):
        offer = world.miss(20)
        assert offer is not None
        assert offer.chances == LandingRates(6).chances(SHORT, 7)
    assert world.policy.figures().missed_offers == 20


def test_settings_of_the_factory_come_before_the_policys() -> None:
    policy = OfferPolicy(OfferSettings(own_drafts=50.0))
    places = ListPlaces([TEXT])
    assert RecallSourceFactory(places, policy).open(TEXT[:20]).propose(TEXT[:20], 9) is None
    eager = RecallSourceFactory(places, policy, OfferSettings(eager=True)).open(TEXT[:20])
    assert eager.propose(TEXT[:20], 9) is not None


# -- the reply -------------------------------------------------------------------------------------------------------

texts = st.lists(st.lists(st.integers(0, 2), min_size=17, max_size=60), min_size=1, max_size=3)


class Reply:
    """One stream of several over the same record: `emitted` grows towards `wanted`, which the target alone decides."""

    def __init__(self, factory: DraftSourceFactory, prompt: list[int], wanted: list[int], widths: Widths) -> None:
        self.source: DraftSource = factory.open(prompt, widths)
        self.prompt = prompt
        self.wanted = wanted
        self.widths = widths
        self.emitted: list[int] = []
        self.kept = 0

    @property
    def ended(self) -> bool:
        return len(self.emitted) == len(self.wanted)

    def propose(self, limit: int) -> Proposal | None:
        offer = self.source.propose([*self.prompt, *self.emitted], limit)
        if offer is not None:
            width = self.widths.chain if offer.parents is None else self.widths.tree
            assert sound(offer, 3, min(limit, width - 1)) is offer
        return offer

    def verify(self, drafts: Proposal | None) -> None:
        tokens, parents = ((), None) if drafts is None else (drafts.tokens, drafts.parents)
        pending = [*self.prompt, *self.emitted][-1]
        window = chain(pending, tokens) if parents is None else tree(pending, tokens, parents)
        ahead = self.wanted[len(self.emitted) :]
        landed = accept(window, _draws(window.tokens, window.parents, ahead), len(ahead), frozenset()).tokens
        self.emitted += landed
        self.kept += len(landed) - 1
        tokens_now = [*self.prompt, *self.emitted]
        self.source.observe(RECALL if tokens else None, len(tokens), len(landed) - 1, tokens_now)


@settings(derandomize=True, deadline=None, max_examples=80)
@given(
    pieces=texts,
    widths=st.sampled_from([Widths(2), Widths(9), Widths(128), Widths(128, 2), Widths(16, 16), Widths(8, 64)]),
    rules=st.sampled_from(
        [OfferSettings(), OfferSettings(eager=True), OfferSettings(own_drafts=2.0, first_wait=2, misses=1, rest=1)]
    ),
    data=st.data(),
)
@pytest.mark.slow
def test_whatever_is_copied_replies_stay_and_offers_are_sound(
    pieces: list[list[int]], widths: Widths, rules: OfferSettings, data: st.DataObject
) -> None:
    places, policy = ListPlaces(pieces), OfferPolicy(rules)
    factory = RecallSourceFactory(places, policy)
    streams = []
    for _ in range(2):
        parts = data.draw(st.lists(st.sampled_from(pieces), min_size=1, max_size=3))
        cuts = data.draw(st.lists(st.integers(0, 59), min_size=3, max_size=3))
        wanted = [token for part, cut in zip(parts, cuts, strict=False) for token in part[:cut] + part[cut + 1 :]]
        streams.append(Reply(factory, parts[0][:16], wanted, widths))
    while running := [stream for stream in streams if not stream.ended]:
        served = running if data.draw(st.booleans()) else running[:1]
        offers = [stream.propose(data.draw(st.integers(0, 40))) for stream in served]
        match data.draw(st.integers(0, 9)):
            case 0:
                places.era += 1
            case 1:
                places.drop(data.draw(st.integers(0, len(pieces) - 1)))
            case 2:
                places.add(data.draw(st.sampled_from(pieces)))
            case 3:
                policy.reset()
        for stream, offer in zip(served, offers, strict=True):
            stream.verify(offer and offer.first(data.draw(st.sampled_from([0, 1, 3, 200]))))
    assert [stream.emitted for stream in streams] == [stream.wanted for stream in streams]
    figures = policy.figures()
    assert figures.landed_tokens <= min(sum(stream.kept for stream in streams), figures.offered_tokens)
    assert max(figures.probes, figures.missed_offers) <= figures.offers
    assert sum(c.offers for c in figures.classes) == figures.offers
