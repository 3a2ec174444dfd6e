"""Where a copy goes on after an edit: skipped, inserted and replaced ids, and how close few of them must stand."""

import pytest

from tensorfold.domain.recall.resync import BEFORE, BEHIND, EVIDENCE, NOWHERE, Resumed, around, resumed
from tests.fakes.record_places import ListPlaces

TEXT = list(range(1000, 2000))
BROKE = 300
"""The id of TEXT that did not follow."""
LATER = 1 << 20
"""Where the second piece begins."""


def goes_on(*fresh: int, before: tuple[int, ...] = tuple(TEXT[:BROKE]), text: list[int] = TEXT) -> Resumed | None:
    """Where a copy of `text` goes on that broke at BROKE, when `before` was read and `fresh` ids came since."""
    broken = around(ListPlaces([text]), BROKE, len(before))
    found = resumed(broken, [*before, *fresh])
    return found and Resumed(found.length, broken.start + found.behind)


def test_ids_left_out_are_skipped() -> None:
    assert goes_on(*TEXT[305:308]) == Resumed(3, 308)


def test_ids_put_in_are_passed() -> None:
    assert goes_on(1, 2, 3, 4, *TEXT[300:303]) == Resumed(3, 303)


def test_ids_exchanged_are_passed() -> None:
    assert goes_on(1, 2, *TEXT[302:305]) == Resumed(3, 305)


def test_nothing_that_matches_is_nowhere() -> None:
    assert goes_on(1, 2) is None
    assert goes_on(before=()) is None


@pytest.mark.parametrize(
    ("ids", "offsets"), [(6, (-128, 512)), (4, (-16, 64)), (3, (-4, 16)), (2, (-4, 16)), (1, (-2, 8))]
)
def test_the_fewer_ids_match_the_closer_they_must_stand(ids: int, offsets: tuple[int, int]) -> None:
    for offset, expected in ((offsets[0], ids), (offsets[1], ids)):
        start = BROKE + offset
        assert goes_on(1, *TEXT[start : start + ids]) == Resumed(expected, start + ids)
    for offset in (offsets[0] - 1, offsets[1] + 1):
        start = BROKE + offset
        found = goes_on(1, *TEXT[start : start + ids])
        assert found is None or found.length < ids


@pytest.mark.parametrize("ids", [1, 2])
def test_one_or_two_ids_must_have_come_since_the_break(ids: int) -> None:
    place = BROKE + 4
    known = TEXT[place : place + ids]
    assert goes_on(*known) == Resumed(ids, place + ids)
    assert goes_on(before=(*TEXT[:BROKE], *known)) is None
    assert goes_on(*known[1:], before=(*TEXT[:BROKE], *known[:1])) == (Resumed(1, place + ids) if ids == 2 else None)


def test_three_ids_may_have_begun_before_the_break() -> None:
    assert goes_on(9, before=(7, 8), text=[*TEXT[:304], 7, 8, 9, *TEXT[304:]]) == Resumed(3, 307)


@pytest.mark.parametrize(("ids", "other", "alone"), [(4, 360, False), (4, 370, True), (2, 315, False), (2, 317, True)])
def test_few_ids_that_stand_twice_near_the_break_prove_nothing(ids: int, other: int, alone: bool) -> None:
    text = list(TEXT)
    run = list(range(ids))
    text[303 : 303 + ids] = text[other : other + ids] = run
    found = goes_on(9999, *run, text=text)
    assert (found == Resumed(ids, 303 + ids)) == alone
    assert found is None or found.length in (ids, 3)


def test_a_single_id_must_stand_alone_further_around_than_it_may_stand() -> None:
    text = list(TEXT)
    text[304] = text[312] = 5
    assert goes_on(5, text=text) is None
    text[312] = 6
    assert goes_on(5, text=text) == Resumed(1, 305)
    text[BROKE - 16] = 5
    assert goes_on(5, text=text) is None


def test_the_nearest_of_several_places_is_taken() -> None:
    text = list(TEXT)
    text[302:305] = text[298:301] = text[310:313] = [7, 8, 9]
    assert goes_on(1, 7, 8, 9, text=text) == Resumed(3, 305)
    text[302] = 1
    assert goes_on(2, 7, 8, 9, text=text) == Resumed(3, 301)
    text[298] = 1
    assert goes_on(2, 7, 8, 9, text=text) == Resumed(3, 313)


def test_more_ids_further_away_are_better_evidence_than_few_close_by() -> None:
    text = list(TEXT)
    text[302:305] = TEXT[403:406]
    assert goes_on(1, *TEXT[400:406], text=text) == Resumed(6, 406)


def test_a_place_that_nothing_follows_is_of_no_use() -> None:
    assert goes_on(*TEXT[310:313], text=TEXT[:313]) is None
    assert goes_on(*TEXT[310:313], text=TEXT[:314]) == Resumed(3, 313)


def test_the_records_ids_are_read_as_far_as_any_evidence_reaches() -> None:
    broken = around(ListPlaces([TEXT]), BROKE, 5)
    assert (BEFORE, BEHIND) == (EVIDENCE[0].before, EVIDENCE[0].behind) == (128, 512)
    assert (broken.start, broken.at, broken.tokens) == (BROKE - BEFORE, BEFORE, 5)
    assert broken.ids.tolist() == TEXT[BROKE - BEFORE : BROKE + BEHIND + 7]
    assert broken.until(BEFORE + 3) == tuple(TEXT[BROKE : BROKE + 3])


@pytest.mark.parametrize(("broke", "start"), [(0, 0), (15, 15), (16, 0), (127, 111), (128, 0)])
def test_what_stands_before_the_record_is_not_read(broke: int, start: int) -> None:
    places, asked = ListPlaces([TEXT]), []
    following = places.following

    def watched(at: int, count: int) -> tuple[int, ...]:
        asked.append(at)
        return following(at, count)

    places.following = watched  # type: ignore[method-assign]
    broken = around(places, broke, 0)
    assert (broken.start, broken.ids[broken.at]) == (start, TEXT[broke])
    assert asked == [start]


@pytest.mark.parametrize(("into", "start"), [(0, 0), (15, 15), (16, 0), (40, 24), (128, 0), (200, 72)])
def test_an_earlier_text_is_not_taken_for_this_one(into: int, start: int) -> None:
    places = ListPlaces([TEXT[:10], TEXT])
    broken = around(places, LATER + into, 0)
    assert (broken.start, broken.ids[broken.at]) == (LATER + start, TEXT[into])


def test_a_place_that_vanished_is_no_error() -> None:
    places = ListPlaces([TEXT])
    places.drop(0)
    broken = around(places, BROKE, 3)
    assert broken is NOWHERE
    assert resumed(broken, TEXT[50:53]) is None


def test_what_goes_on_is_found_again_from_there() -> None:
    places = ListPlaces([TEXT])
    found = goes_on(1, *TEXT[302:305])
    assert found == Resumed(3, 305)
    assert places.following(found.behind, 2) == tuple(TEXT[305:307])
