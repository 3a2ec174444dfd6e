"""Pages that lanes and kept ends share are counted once."""

from __future__ import annotations

from tensorfold.domain.prompts.shared_pages import PageBook, distinct


def test_whole_pages_alone_have_numbers_and_no_two_the_same() -> None:
    book = PageBook(4)
    one, other = book.behind((), 11), book.behind((), 9)
    assert len(one) == len(other) == 2 and distinct([one, other]) == 4
    assert book.behind((), 3) == ()


def test_a_lane_that_goes_on_keeps_its_pages_and_a_shorter_one_has_the_first_of_them() -> None:
    book = PageBook(4)
    first = book.behind((), 8)
    longer = book.behind(first, 17)
    assert longer[:2] == first and len(longer) == 4
    assert book.behind(longer, 10) == first
    assert distinct([first, longer]) == 4


def test_pages_that_others_hold_are_left_out() -> None:
    book = PageBook(1)
    whole = book.behind((), 5)
    assert distinct([whole], [whole[:3]]) == 2
    assert distinct([whole], [whole]) == distinct([]) == 0
