"""What streams share: probes that come rarer while they miss, counters, figures, and forgetting all of it."""

import pytest

from tensorfold.domain.recall.figures import ClassFigures, OfferFigures
from tensorfold.domain.recall.policy import Ledger, OfferPolicy, OfferSettings
from tensorfold.domain.recall.rates import LandingRates


def ledger(settings: OfferSettings | None = None) -> Ledger:
    return OfferPolicy(settings).ledger


def until_due(book: Ledger) -> int:
    """Opportunities passed over until a probe is due."""
    count = 0
    while not book.probe_due():
        book.passed_over()
        count += 1
    return count


def test_the_documented_figures_are_the_defaults() -> None:
    settings = OfferSettings()
    assert (settings.base_drafts, settings.widest_drafts, settings.rest, settings.graft_every) == (7, 127, 4, 8)
    assert (settings.first_wait, settings.longest_wait, settings.own_rate, settings.own_drafts) == (8, 512, 0.15, 0.0)
    assert (settings.cursors, settings.resync_rounds, settings.eager) == (8, 16, False)


def test_the_first_probe_is_due_at_the_eighth_opportunity() -> None:
    assert until_due(ledger()) == 8


def test_probes_that_miss_come_rarer() -> None:
    book, spacing = ledger(), []
    for _ in range(9):
        spacing.append(until_due(book))
        book.probe_began()
        book.probe_ended(worthwhile=False)
    assert spacing == [8, 16, 32, 64, 128, 256, 512, 512, 512]
    assert book.figures().probes == 9


def test_a_probe_that_lands_brings_the_next_one_soon() -> None:
    book = ledger()
    for _ in range(3):
        book.probe_ended(worthwhile=False)
    assert book.wait == 64
    book.probe_ended(worthwhile=True)
    assert book.wait == 8
    assert until_due(book) == 8


def test_a_probe_is_made_by_one_stream_only() -> None:
    book = ledger()
    until_due(book)
    book.probe_began()
    assert not book.probe_due()


def test_a_probe_that_was_not_verified_is_tried_at_the_next_opportunity() -> None:
    book = ledger()
    until_due(book)
    book.probe_began()
    book.probe_unseen()
    assert book.probe_due()
    assert (book.wait, book.figures().probes) == (8, 0)


def test_a_probe_that_comes_back_forgets_no_opportunity() -> None:
    book = ledger(OfferSettings(first_wait=2))
    until_due(book)
    book.probe_began()
    for _ in range(3):
        book.passed_over()
    book.probe_unseen()
    book.probe_ended(worthwhile=False)
    assert book.wait == 4
    assert until_due(book) == 1


def test_figures_count_offers_by_class() -> None:
    book = ledger()
    book.verified(0, 7, 7, False)
    book.verified(2, 15, 4, True)
    book.verified(2, 7, 0, True)
    book.verified(3, 5, 0, False)
    figures = book.figures()
    assert (figures.offers, figures.probes, figures.missed_offers) == (4, 0, 1)
    assert (figures.offered_tokens, figures.landed_tokens) == (34, 11)
    counts = [(c.match, c.offers, c.offered_tokens, c.landed_tokens) for c in figures.classes]
    assert counts == [("16-31", 1, 7, 7), ("32-63", 0, 0, 0), ("64+", 2, 22, 4), ("resumed", 1, 5, 0)]


def test_figures_say_what_a_base_window_is_expected_to_land() -> None:
    book, rates = ledger(OfferSettings(base_drafts=5)), LandingRates(6)
    assert [c.expected for c in book.figures().classes] == [sum(rates.chances(kind, 5)) for kind in range(4)]
    book.verified(1, 7, 2, True)
    rates.observe(1, 2, True)
    assert [c.expected for c in book.figures().classes] == [sum(rates.chances(kind, 5)) for kind in range(4)]


def test_a_class_that_keeps_missing_is_expected_to_land_nothing() -> None:
    book = ledger()
    for _ in range(6):
        book.verified(0, 7, 0, True)
    assert [c.expected == 0.0 for c in book.figures().classes] == [True, False, False, False]


def test_figures_are_values_that_stay_as_they_were_taken() -> None:
    policy = OfferPolicy()
    before = policy.figures()
    policy.ledger.verified(0, 7, 3, True)
    assert before.offers == 0 and before.classes[0] == ClassFigures("16-31", 0, 0, 0, before.classes[0].expected)
    assert policy.figures().landed_tokens == 3
    with pytest.raises(AttributeError):
        before.offers = 1  # type: ignore[misc]


def test_a_reset_forgets_rates_probes_and_counts() -> None:
    policy = OfferPolicy()
    fresh = policy.figures()
    for _ in range(7):
        policy.ledger.verified(0, 7, 0, True)
    policy.ledger.probe_ended(worthwhile=False)
    until_due(policy.ledger)
    policy.reset()
    assert policy.figures() == fresh
    assert isinstance(fresh, OfferFigures)
    assert (policy.ledger.wait, policy.ledger.probe_due()) == (8, False)


def test_what_a_running_round_writes_after_a_reset_counts_nowhere() -> None:
    policy = OfferPolicy()
    old = policy.ledger
    policy.reset()
    old.verified(0, 7, 7, False)
    old.passed_over()
    assert policy.figures().offers == 0
    assert until_due(policy.ledger) == 8
