"""Running replies get their share of time between two slices of a prompt."""

from __future__ import annotations

from tensorfold.domain.scheduling.credit import DecodeCredit


def test_a_slice_earns_rounds_until_its_share_is_spent() -> None:
    credit = DecodeCredit(0.25)
    assert not credit.owes_rounds()
    credit.slice_took(4.0)
    assert credit.owes_rounds()
    credit.round_took(0.6)
    assert credit.owes_rounds()
    credit.round_took(0.6)
    assert not credit.owes_rounds()


def test_what_a_round_overdrew_is_carried_over_and_what_was_left_is_not() -> None:
    credit = DecodeCredit(0.5)
    credit.slice_took(1.0)
    credit.round_took(1.5)
    credit.slice_took(1.0)
    assert not credit.owes_rounds()
    credit.slice_took(2.0)
    assert credit.owes_rounds()
    saver = DecodeCredit(0.5)
    saver.slice_took(10.0)
    saver.slice_took(1.0)
    saver.round_took(0.5)
    assert not saver.owes_rounds()


def test_a_share_of_zero_lets_a_prompt_fill_without_pausing() -> None:
    credit = DecodeCredit(0.0)
    credit.slice_took(100.0)
    assert not credit.owes_rounds()


def test_without_a_number_at_most_32_rounds_run_between_slices_and_each_slice_begins_anew() -> None:
    credit = DecodeCredit(1.0)
    for _ in range(2):
        credit.slice_took(1000.0)
        rounds = 0
        while credit.owes_rounds():
            credit.round_took(0.001)
            rounds += 1
        assert rounds == 32


def test_at_most_the_set_number_of_rounds_run_between_slices() -> None:
    credit = DecodeCredit(1.0, most=3)
    credit.slice_took(100.0)
    for _ in range(3):
        assert credit.owes_rounds()
        credit.round_took(0.001)
    assert not credit.owes_rounds()
