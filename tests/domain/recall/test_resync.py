"""Where a copy goes on after an edit: skipped, inserted and replaced ids, and nothing outside the range."""

import pytest

from tensorfold.domain.recall.places import Place
from tensorfold.domain.recall.resync import resumed
from tests.fakes.record_places import ListPlaces

TEXT = list(range(1000, 1100))
BROKE = 50
"""The id of TEXT that did not follow."""


def goes_on_at(stream: list[int], text: list[int] = TEXT, broke: int = BROKE) -> int | None:
    place = resumed(ListPlaces([text]), broke, stream)
    assert place is None or place.length == 3
    return place.at if place is not None else None


def test_ids_left_out_are_skipped() -> None:
    assert goes_on_at(TEXT[:50] + TEXT[55:58]) == 58


def test_ids_put_in_are_passed() -> None:
    assert goes_on_at([*TEXT[:50], 1, 2, 3, 4, *TEXT[50:53]]) == 53


def test_ids_exchanged_are_passed() -> None:
    assert goes_on_at([*TEXT[:50], 1, 2, *TEXT[52:55]]) == 55


def test_two_ids_are_not_enough() -> None:
    assert goes_on_at([*TEXT[:50], 1, 2, *TEXT[52:54]]) is None
    assert goes_on_at(TEXT[52:54]) is None
    assert goes_on_at([]) is None


@pytest.mark.parametrize(("offset", "found"), [(-5, False), (-4, True), (0, True), (16, True), (17, False)])
def test_the_last_ids_must_stand_close_to_the_break(offset: int, found: bool) -> None:
    start = BROKE + offset
    assert goes_on_at([1, *TEXT[start : start + 3]]) == (start + 3 if found else None)


def test_the_nearest_of_several_places_is_taken() -> None:
    text = TEXT[:100]
    text[52:55] = text[48:51] = text[60:63] = [7, 8, 9]
    assert goes_on_at([7, 8, 9], text) == 55
    text[52] = 1
    assert goes_on_at([7, 8, 9], text) == 51
    text[48] = 1
    assert goes_on_at([7, 8, 9], text) == 63


def test_a_place_that_nothing_follows_is_of_no_use() -> None:
    assert goes_on_at(TEXT[60:63], TEXT[:63]) is None
    assert goes_on_at(TEXT[60:63], TEXT[:64]) == 63


@pytest.mark.parametrize(("broke", "found"), [(0, False), (3, False), (4, True), (5, True)])
def test_nothing_is_looked_for_before_the_record_begins(broke: int, found: bool) -> None:
    places, asked = ListPlaces([TEXT]), []
    following = places.following

    def watched(at: int, count: int) -> tuple[int, ...]:
        asked.append(at)
        return following(at, count)

    places.following = watched  # type: ignore[method-assign]
    assert resumed(places, broke, TEXT[10:13]) == (Place(3, 13) if found else None)
    assert asked == ([broke - 4] if found else [])


def test_a_place_that_vanished_is_no_error() -> None:
    places = ListPlaces([TEXT])
    places.drop(0)
    assert resumed(places, BROKE, TEXT[50:53]) is None


def test_what_goes_on_is_found_again_from_there() -> None:
    places = ListPlaces([TEXT])
    place = resumed(places, BROKE, [1, *TEXT[52:55]])
    assert place == Place(3, 55)
    assert places.following(55, 2) == tuple(TEXT[55:57])
