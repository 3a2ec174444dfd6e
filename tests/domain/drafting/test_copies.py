"""Copies from the own context: when they are offered, how windows widen, when they fall silent."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.drafting.copies import CopySettings, CopySource, CopySourceFactory
from tensorfold.domain.drafting.landing import LandingCurve
from tensorfold.domain.drafting.sources import OWN_CONTEXT, DraftSource, DraftSourceFactory, Proposal, sound
from tensorfold.domain.verification import accept
from tensorfold.domain.windows import chain

TEXT = list(range(1000, 1400))


STRICT = CopySettings(enter_match=8, base_drafts=7, misses=4, silence=16)


def open_source(settings: CopySettings = STRICT) -> CopySource:
    return CopySourceFactory(settings).open(())


def repeat(count: int, width: int = 500) -> list[int]:
    """Drafts offered in each round of a reply that repeats TEXT, every window landing whole with one draw behind it."""
    source, tokens, widths = open_source(), TEXT + TEXT[:8], []
    for _ in range(count):
        offer = source.propose(tokens, width)
        assert offer is not None
        widths.append(len(offer))
        at = len(tokens) - len(TEXT)
        tokens = TEXT + TEXT[: at + len(offer) + 1]
        source.observe(OWN_CONTEXT, len(offer), len(offer), tokens)
    return widths


def miss(source: CopySource, tokens: list[int]) -> list[int]:
    """A round in which the offered copy lands nothing; the new tokens end in the same 8 ids as before."""
    offer = source.propose(tokens, 7)
    assert offer is not None
    grown = [*tokens, 2000 + len(tokens)]
    source.observe(OWN_CONTEXT, len(offer), 0, grown)
    return [*grown, *tokens[-8:]]


def test_nothing_is_offered_before_enough_ids_match() -> None:
    source = open_source()
    assert source.propose(TEXT + TEXT[:7], 7) is None
    assert source.propose(TEXT + TEXT[:8], 7) is not None


def test_two_matching_ids_are_enough_for_a_cautious_copy_of_sixteen_rows() -> None:
    source = CopySourceFactory().open(())
    assert source.propose(TEXT + TEXT[:1], 127) is None
    offer = source.propose(TEXT + TEXT[:2], 127)
    assert offer is not None and len(offer) == 15
    assert offer.expected < 0.6


def test_eight_cautious_copies_in_a_row_that_land_nothing_bring_four_silent_rounds() -> None:
    source, tokens = CopySourceFactory().open(()), TEXT + TEXT[:8]
    for _ in range(8):
        assert source.silent_rounds == 0
        tokens = miss(source, tokens)
    assert source.silent_rounds == 4


def test_a_copy_holds_what_followed_the_match() -> None:
    offer = open_source().propose(TEXT + TEXT[:10], 7)
    assert offer is not None
    assert offer.source == OWN_CONTEXT == CopySourceFactory().open(()).name
    assert offer.tokens == tuple(TEXT[10:17])
    assert offer.parents is None
    assert offer.chances == LandingCurve().chances(10, 7)


@pytest.mark.parametrize("limit", [1, 3, 6])
def test_a_copy_keeps_to_the_limit(limit: int) -> None:
    offer = open_source().propose(TEXT + TEXT[:10], limit)
    assert offer is not None
    assert offer.tokens == tuple(TEXT[10 : 10 + limit])


def test_no_room_means_no_offer() -> None:
    assert open_source().propose(TEXT + TEXT[:10], 0) is None


def test_windows_double_while_copies_land_whole() -> None:
    assert repeat(6) == [7, 15, 31, 63, 127, 127]


def test_a_copy_that_goes_on_landing_is_given_the_chances_of_its_depth() -> None:
    source, tokens = open_source(), TEXT + TEXT[:8]
    source.propose(tokens, 127)
    tokens = TEXT + TEXT[:16]
    source.observe(OWN_CONTEXT, 7, 7, tokens)
    learned = LandingCurve()
    learned.observe(8, 7, False)
    offer = source.propose(tokens, 127)
    assert offer is not None and offer.chances == learned.chances(16, 15, behind=7)
    tokens = [*tokens, TEXT[16], 5, *TEXT[40:48]]
    source.observe(OWN_CONTEXT, 15, 1, tokens)
    learned.observe(16, 1, True, behind=7)
    offer = source.propose(tokens, 127)
    assert offer is not None and offer.chances == learned.chances(8, 7)


def test_windows_do_not_outgrow_the_limit() -> None:
    assert repeat(5, width=20) == [7, 15, 20, 20, 20]


def test_a_partial_landing_brings_the_window_back_to_the_base() -> None:
    source, tokens = open_source(), TEXT + TEXT[:8]
    assert len(source.propose(tokens, 127) or ()) == 7
    tokens = TEXT + TEXT[:16]
    source.observe(OWN_CONTEXT, 7, 7, tokens)
    assert len(source.propose(tokens, 127) or ()) == 15
    tokens = [*tokens, TEXT[16], 5]
    source.observe(OWN_CONTEXT, 15, 1, tokens)
    tokens += TEXT[18:26]
    assert len(source.propose(tokens, 127) or ()) == 7


def test_a_window_cut_short_by_allocation_does_not_widen_the_next() -> None:
    source, tokens = open_source(), TEXT + TEXT[:8]
    source.propose(tokens, 127)
    tokens = TEXT + TEXT[:12]
    source.observe(OWN_CONTEXT, 3, 3, tokens)
    assert len(source.propose(tokens, 127) or ()) == 7


def test_a_cut_window_of_a_widened_copy_keeps_the_width() -> None:
    source, tokens = open_source(), TEXT + TEXT[:8]
    source.propose(tokens, 127)
    tokens = TEXT + TEXT[:16]
    source.observe(OWN_CONTEXT, 7, 7, tokens)
    source.propose(tokens, 127)
    tokens = TEXT + TEXT[:20]
    source.observe(OWN_CONTEXT, 3, 3, tokens)
    assert len(source.propose(tokens, 127) or ()) == 15


def test_a_widened_window_belongs_to_the_place_it_copies() -> None:
    source = open_source()
    other = list(range(10, 60))
    tokens = other + TEXT + TEXT[:8]
    source.propose(tokens, 127)
    tokens = other + TEXT + TEXT[:15] + other[:1]
    source.observe(OWN_CONTEXT, 7, 7, tokens)
    tokens += other[1:8]
    offer = source.propose(tokens, 127)
    assert offer is not None
    assert offer.tokens == tuple(other[8:15])


def test_four_copies_in_a_row_that_land_nothing_bring_sixteen_silent_rounds() -> None:
    source, tokens = open_source(), TEXT + TEXT[:8]
    for _ in range(4):
        assert source.silent_rounds == 0
        tokens = miss(source, tokens)
    for left in range(16, 0, -1):
        assert source.silent_rounds == left
        assert source.propose(tokens, 7) is None
        tokens = [*tokens, 3]
        source.observe(None, 0, 0, tokens)
    assert source.silent_rounds == 0
    assert source.propose([*tokens, *TEXT[20:28]], 7) is not None


def test_rounds_without_a_match_do_not_silence_later_copies() -> None:
    source = open_source()
    for count in range(20):
        assert source.propose(TEXT[:count], 7) is None
        source.observe(None, 0, 0, TEXT[: count + 1])
    assert source.silent_rounds == 0
    assert source.propose(TEXT + TEXT[:8], 7) is not None


def test_windows_of_one_draft_count_as_misses_too() -> None:
    source, tokens = open_source(), TEXT + TEXT[:8]
    for _ in range(4):
        assert source.propose(tokens, 7) is not None
        tokens = [*tokens, 2000 + len(tokens)]
        source.observe(OWN_CONTEXT, 1, 0, tokens)
        tokens += TEXT[:8]
    assert source.silent_rounds == 16


def test_after_a_silence_misses_are_counted_anew() -> None:
    source, tokens = open_source(CopySettings(misses=3, silence=1)), TEXT + TEXT[:8]
    silences = []
    for _ in range(2):
        for _ in range(3):
            silences.append(source.silent_rounds)
            tokens = miss(source, tokens)
        silences.append(source.silent_rounds)
        source.observe(None, 0, 0, tokens)
    assert silences == [0, 0, 0, 1] * 2


def test_a_landing_between_misses_starts_the_count_anew() -> None:
    source, tokens = open_source(), TEXT + TEXT[:8]
    for _ in range(3):
        tokens = miss(source, tokens)
    offer = source.propose(tokens, 7)
    assert offer is not None
    tokens = [*tokens, offer.tokens[0], 4]
    source.observe(OWN_CONTEXT, 7, 1, tokens)
    tokens += TEXT[:8]
    for _ in range(3):
        tokens = miss(source, tokens)
    assert source.silent_rounds == 0
    assert source.propose(tokens, 7) is not None


def test_an_offer_that_was_withdrawn_teaches_nothing() -> None:
    curve = LandingCurve()
    source, tokens = CopySource(curve), TEXT + TEXT[:8]
    source.propose(tokens, 7)
    assert source.propose(tokens, 0) is None
    source.observe(OWN_CONTEXT, 7, 0, [*tokens, 5])
    assert curve.chances(8, 7) == LandingCurve().chances(8, 7)


@pytest.mark.parametrize(("verified", "drafted"), [("head", 3), (None, 0), (OWN_CONTEXT, 0)])
def test_an_offer_that_was_not_verified_is_no_miss(verified: str | None, drafted: int) -> None:
    source, tokens = open_source(), TEXT + TEXT[:8]
    for _ in range(6):
        assert source.propose(tokens, 7) is not None
        tokens = [*tokens, 2000 + len(tokens)]
        source.observe(verified, drafted, 0, tokens)
        tokens += TEXT[:8]
    assert source.silent_rounds == 0


def test_the_curve_learns_from_offers_that_were_not_verified() -> None:
    curve = LandingCurve()
    source, tokens = CopySource(curve), TEXT + TEXT[:8]
    source.propose(tokens, 7)
    source.observe("head", 2, 1, [*tokens, TEXT[8], 5])
    expected = LandingCurve()
    expected.observe(8, 1, True)
    assert curve.chances(8, 7) == expected.chances(8, 7) != LandingCurve().chances(8, 7)


def test_the_curve_counts_only_what_the_reply_decided() -> None:
    curve = LandingCurve()
    source, tokens = CopySource(curve), TEXT + TEXT[:8]
    source.propose(tokens, 7)
    source.observe(OWN_CONTEXT, 7, 2, TEXT + TEXT[:10])
    expected = LandingCurve()
    expected.observe(8, 2, False)
    assert curve.chances(8, 7) == expected.chances(8, 7)


def test_a_merged_window_counts_the_copys_own_part() -> None:
    source, tokens = open_source(), TEXT + TEXT[:8]
    for _ in range(4):
        assert source.propose(tokens, 7) is not None
        tokens = [*tokens, 2000 + len(tokens), 6]
        source.observe("copy+head", 9, 1, tokens)
        tokens += TEXT[:8]
    assert source.silent_rounds == 16


def test_streams_of_one_factory_share_what_landed_and_nothing_else() -> None:
    factory = CopySourceFactory(STRICT)
    first, second, tokens = factory.open(()), factory.open(()), TEXT + TEXT[:8]
    for _ in range(4):
        tokens = miss(first, tokens)
    assert first.silent_rounds == 16
    offer = second.propose(TEXT + TEXT[:8], 7)
    assert offer is not None
    assert offer.chances[0] < LandingCurve().chances(8, 1)[0]


def test_settings_change_the_rules() -> None:
    source = open_source(CopySettings(enter_match=4, base_drafts=2, widest_drafts=4, misses=1, silence=2))
    tokens = TEXT + TEXT[:4]
    assert len(source.propose(tokens, 127) or ()) == 2
    tokens = TEXT + TEXT[:7]
    source.observe(OWN_CONTEXT, 2, 2, tokens)
    assert len(source.propose(tokens, 127) or ()) == 4
    source.observe(OWN_CONTEXT, 4, 0, [*tokens, 5])
    assert source.silent_rounds == 2


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    prompt=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    reply=st.lists(st.integers(0, 3), min_size=1, max_size=120),
    limit=st.integers(1, 40),
    grant=st.integers(0, 40),
)
def test_whatever_is_copied_the_reply_stays_and_offers_are_sound(
    prompt: list[int], reply: list[int], limit: int, grant: int
) -> None:
    factory: DraftSourceFactory = CopySourceFactory()
    source: DraftSource = factory.open(prompt)
    emitted: list[int] = []
    kept_drafts = _decode(source, prompt, reply, emitted, limit, lambda offer: offer.first(grant))
    assert emitted == reply
    assert 0 <= kept_drafts <= len(reply)


def test_a_looping_reply_is_copied_at_full_width() -> None:
    reply = [1, 2, 3] * 100
    emitted: list[int] = []
    rounds = _count_rounds(lambda cut: _decode(open_source(), [9], reply, emitted, 127, cut))
    assert emitted == reply
    assert rounds < 30


def _decode(
    source: DraftSource,
    prompt: Sequence[int],
    reply: Sequence[int],
    emitted: list[int],
    limit: int,
    cut: Callable[[Proposal], Proposal],
) -> int:
    """Decode `reply` with a target that knows it; returns the drafts kept."""
    kept = 0
    while len(emitted) < len(reply):
        tokens = [*prompt, *emitted]
        room = len(reply) - len(emitted)
        offer = source.propose(tokens, min(limit, room))
        if offer is not None:
            assert sound(offer, 10, min(limit, room)) is offer
            offer = cut(offer)
        window = chain(tokens[-1], () if offer is None else offer.tokens)
        draws = [*reply[len(emitted) : len(emitted) + len(window)], *[-1] * len(window)]
        landed = accept(window, draws, room, frozenset()).tokens
        emitted += landed
        drafted = len(window) - 1
        source.observe(offer.source if offer and drafted else None, drafted, len(landed) - 1, [*prompt, *emitted])
        kept += len(landed) - 1
    return kept


def _count_rounds(run: Callable[[Callable[[Proposal], Proposal]], int]) -> int:
    rounds = 0

    def cut(offer: Proposal) -> Proposal:
        nonlocal rounds
        rounds += 1
        return offer

    run(cut)
    return rounds
