"""Places followed through a stream: no search while one lives, exact sets, eras, and copies resumed after edits."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.recall.cursors import Cursors
from tensorfold.domain.recall.places import Place
from tests.fakes.record_places import ListPlaces

TEXT = list(range(1000, 1100))
LATER = 1 << 20
"""Where the second piece begins."""


def cursors(*pieces: Sequence[int], most: int = 8, resync_rounds: int = 16) -> tuple[Cursors, ListPlaces]:
    places = ListPlaces(pieces)
    return Cursors(places, most, resync_rounds), places


def test_sixteen_ids_begin_a_copy_and_fifteen_do_not() -> None:
    followed, _ = cursors(TEXT)
    assert not followed.follow(TEXT[:15])
    assert not followed.live
    assert followed.follow(TEXT[:16])
    assert list(followed.live) == [Place(16, 16)]
    assert not followed.resumed


def test_a_stream_shorter_than_a_key_finds_nothing() -> None:
    followed, _ = cursors(TEXT)
    for tokens in ([], TEXT[:1], TEXT[:3]):
        assert not followed.follow(tokens)


def test_there_is_no_search_while_a_place_is_followed() -> None:
    followed, places = cursors(TEXT)
    assert followed.follow(TEXT[:20])
    for end in (20, 21, 29, 60):
        assert not followed.follow(TEXT[:end])
        assert list(followed.live) == [Place(end, end)]
    assert places.finds == 1


def test_places_that_part_from_the_stream_are_left() -> None:
    other = [*TEXT[:30], 1, 2, 3]
    followed, _ = cursors(TEXT, other)
    followed.follow(TEXT[:20])
    assert list(followed.live) == [Place(20, LATER + 20), Place(20, 20)]
    followed.follow(TEXT[:31])
    assert list(followed.live) == [Place(31, 31)]


def test_no_more_places_are_followed_than_allowed() -> None:
    followed, _ = cursors(TEXT, TEXT, TEXT, most=2)
    followed.follow(TEXT[:20])
    assert [place.at // LATER for place in followed.live] == [2, 1]


def test_a_copy_that_ends_is_searched_for_anew() -> None:
    followed, _ = cursors(TEXT[:40], TEXT[20:])
    followed.follow(TEXT[:30])
    assert list(followed.live) == [Place(30, 30)]
    assert followed.follow(TEXT[:40])
    assert list(followed.live) == [Place(20, LATER + 20)]
    assert followed.follow([*TEXT[:40], *TEXT[:18]])
    assert list(followed.live) == [Place(18, 18)]


def test_a_new_era_leaves_every_place() -> None:
    followed, places = cursors(TEXT)
    followed.follow(TEXT[:20])
    places.clear()
    assert followed.era == 0
    assert not followed.follow(TEXT[:20])
    assert (followed.era, list(followed.live)) == (1, [])
    places.add(TEXT)
    assert followed.follow(TEXT[:22])
    assert list(followed.live) == [Place(22, 22)]


def test_a_new_era_resumes_no_copy() -> None:
    followed, places = cursors(TEXT)
    followed.follow(TEXT[:20])
    followed.follow([*TEXT[:25], 1])
    places.era += 1
    assert not followed.follow([*TEXT[:25], 1, *TEXT[26:29]])


def test_an_evicted_place_is_left_without_an_error() -> None:
    followed, places = cursors(TEXT)
    followed.follow(TEXT[:20])
    places.drop(0)
    assert not followed.follow(TEXT[:24])
    assert not followed.live
    assert not followed.follow(TEXT[:27])


def test_a_stream_that_grew_shorter_is_read_anew() -> None:
    followed, _ = cursors(TEXT)
    followed.follow(TEXT[:30])
    assert followed.follow(TEXT[:20])
    assert list(followed.live) == [Place(20, 20)]


# -- after an edit ---------------------------------------------------------------------------------------------------


def edited(*fresh: int, landed: int = 5) -> tuple[Cursors, list[int]]:
    """Cursors whose copy of TEXT landed some ids and broke with the `fresh` ones."""
    followed, _ = cursors(TEXT)
    followed.follow(TEXT[:20])
    tokens = [*TEXT[: 20 + landed], *fresh]
    followed.follow(tokens)
    return followed, tokens


@pytest.mark.parametrize("ids", [1, 2, 3])
def test_a_broken_copy_is_resumed_when_ids_match_close_by(ids: int) -> None:
    followed, tokens = edited(1)
    assert not followed.live
    assert followed.follow([*tokens, *TEXT[26 : 26 + ids]])
    assert (list(followed.live), followed.resumed) == ([Place(ids, 26 + ids)], True)


def test_a_broken_copy_is_not_resumed_by_ids_that_could_stand_elsewhere() -> None:
    text = [*TEXT[:32], TEXT[26], TEXT[27], *TEXT[32:]]
    followed, _ = cursors(text)
    followed.follow(text[:20])
    tokens = [*text[:25], 1]
    followed.follow(tokens)
    assert not followed.follow([*tokens, TEXT[26]])
    assert not followed.follow([*tokens, *TEXT[26:28]])
    assert followed.follow([*tokens, *TEXT[26:29]])
    assert list(followed.live) == [Place(3, 29)]


def test_a_copy_that_breaks_and_goes_on_within_one_round_is_resumed_at_once() -> None:
    followed, _ = edited(1, *TEXT[25:28])
    assert (list(followed.live), followed.resumed) == ([Place(3, 28)], True)


def test_a_copy_that_landed_nothing_is_not_resumed() -> None:
    followed, tokens = edited(1, landed=0)
    assert not followed.follow([*tokens, *TEXT[21:24]])


def test_one_landed_id_in_the_round_of_the_break_is_enough() -> None:
    followed, tokens = edited(1, landed=1)
    assert followed.follow([*tokens, *TEXT[22:25]])


def test_a_copy_that_landed_before_is_resumed_though_its_last_window_landed_nothing() -> None:
    followed, _ = cursors(TEXT)
    followed.follow(TEXT[:20])
    followed.follow(TEXT[:30])
    followed.follow([*TEXT[:30], 1])
    assert followed.follow([*TEXT[:30], 1, *TEXT[31:34]])
    assert list(followed.live) == [Place(3, 34)]


def test_a_new_copy_that_lands_nothing_does_not_inherit_what_an_earlier_one_landed() -> None:
    followed, _ = cursors(TEXT, list(range(50)))
    followed.follow(TEXT[:20])
    followed.follow(TEXT[:30])
    tokens = [*TEXT[:30], *range(16)]
    followed.follow(tokens)
    assert list(followed.live) == [Place(16, LATER + 16)]
    tokens += [99]
    followed.follow(tokens)
    assert not followed.follow([*tokens, 17, 18, 19])


def test_a_text_that_ends_is_no_edit() -> None:
    followed, _ = cursors(TEXT[:30])
    followed.follow(TEXT[:20])
    followed.follow(TEXT[:30])
    assert not followed.live
    assert not followed.follow([*TEXT[:30], *TEXT[26:29]])


def test_the_copy_that_got_furthest_is_the_one_resumed() -> None:
    followed, _ = cursors(TEXT, [*TEXT[:22], *range(60)])
    followed.follow(TEXT[:20])
    tokens = [*TEXT[:25], 500]
    followed.follow(tokens)
    assert not followed.follow([*tokens, 4, 5, 6])
    assert followed.follow([*tokens, 4, 5, 6, *TEXT[26:29]])
    assert list(followed.live) == [Place(3, 29)]


@pytest.mark.parametrize(("rounds", "found"), [(4, False), (5, True), (6, True)])
def test_a_broken_copy_is_looked_for_in_a_few_rounds_only(rounds: int, found: bool) -> None:
    followed, _ = cursors(TEXT, resync_rounds=rounds)
    followed.follow(TEXT[:20])
    tokens = TEXT[:25]
    for token in (1, 2, 3, 4):
        tokens = [*tokens, token]
        followed.follow(tokens)
    assert followed.follow([*tokens, *TEXT[25:28]]) == found


def test_no_copy_is_resumed_where_that_is_switched_off() -> None:
    followed, _ = cursors(TEXT, resync_rounds=0)
    followed.follow(TEXT[:20])
    followed.follow([*TEXT[:25], 1])
    assert not followed.follow([*TEXT[:25], 1, *TEXT[26:29]])


def test_a_search_that_finds_comes_before_a_copy_resumed() -> None:
    edit = [1, *range(50, 70)]
    followed, _ = cursors(TEXT, [*edit, *TEXT[30:50]])
    followed.follow(TEXT[:20])
    assert followed.follow([*TEXT[:25], *edit[:18]])
    assert (list(followed.live), followed.resumed) == ([Place(18, LATER + 18)], False)


def test_a_found_copy_ends_the_search_for_the_broken_one() -> None:
    other = list(range(40))
    followed, _ = cursors(TEXT, other)
    followed.follow(TEXT[:20])
    tokens = [*TEXT[:25], *other[:16]]
    followed.follow(tokens)
    assert list(followed.live) == [Place(16, LATER + 16)]
    tokens += [99]
    followed.follow(tokens)
    assert not followed.follow([*tokens, *TEXT[26:29]])


def test_a_resumed_copy_counts_as_resumed_until_sixteen_fresh_ids_matched() -> None:
    followed, tokens = edited(1, *TEXT[26:29])
    assert followed.resumed
    followed.follow([*tokens, *TEXT[29:44]])
    assert (followed.live[0], followed.resumed) == (Place(18, 44), True)
    assert not followed.follow([*tokens, *TEXT[29:45]])
    assert (list(followed.live), followed.resumed) == ([Place(19, 45)], False)


def test_a_copy_no_longer_resumed_is_joined_by_the_other_places_that_match() -> None:
    followed, places = cursors(TEXT)
    followed.follow(TEXT[:20])
    tokens = [*TEXT[:25], 1, *TEXT[26:29]]
    followed.follow(tokens)
    places.add([*tokens, *TEXT[29:70]])
    assert not followed.follow([*tokens, *TEXT[29:40]])
    assert list(followed.live) == [Place(14, 40)]
    assert not followed.follow([*tokens, *TEXT[29:50]])
    assert list(followed.live) == [Place(50, LATER + 50), Place(24, 50)]


def test_a_copy_no_longer_resumed_goes_on_where_a_search_finds_nothing() -> None:
    followed, tokens = edited(1, *TEXT[26:29])
    followed._places.find = lambda tokens, most: []  # type: ignore[method-assign]
    assert not followed.follow([*tokens, *TEXT[29:50]])
    assert (list(followed.live), followed.resumed) == ([Place(24, 50)], False)


def test_a_copy_resumed_wrongly_is_looked_for_on() -> None:
    text = [*TEXT[:27], 7, 8, 9, *TEXT[30:]]
    followed, _ = cursors(text)
    followed.follow(text[:20])
    tokens = [*text[:25], 7, 8, 9]
    followed.follow(tokens)
    assert list(followed.live) == [Place(3, 30)]
    tokens += [1, *TEXT[33:36]]
    assert followed.follow(tokens)
    assert list(followed.live) == [Place(3, 36)]


def test_a_copy_found_after_a_resumed_one_is_not_resumed() -> None:
    followed, tokens = edited(1, *TEXT[26:29])
    assert followed.resumed
    assert followed.follow([*tokens, *TEXT[40:60]])
    assert (list(followed.live), followed.resumed) == ([Place(20, 60)], False)


def test_a_resumed_copy_that_breaks_again_is_resumed_from_there() -> None:
    followed, tokens = edited(1, *TEXT[26:29])
    tokens += [*TEXT[29:45], 2]
    followed.follow(tokens)
    assert followed.follow([*tokens, *TEXT[50:53]])
    assert (list(followed.live), followed.resumed) == ([Place(3, 53)], True)


# -- edits made again ------------------------------------------------------------------------------------------------

NAMED = [n for line in range(12) for n in (*range(1000 + 20 * line, 1009 + 20 * line), 7, 8)]
"""Lines of nine ids, each followed by a name of two."""


def renaming(lines: int, name: Sequence[int] = (1, 2, 3)) -> tuple[Cursors, ListPlaces, list[int]]:
    """A stream that copied NAMED and changed the name in that many lines from the third on, id by id."""
    followed, places = cursors(NAMED)
    tokens: list[int] = []
    for line in range(2 + lines):
        for token in (
            *NAMED[11 * line : 11 * line + 9],
            *(NAMED[11 * line + 9 : 11 * line + 11] if line < 2 else name),
        ):
            read(followed, tokens, token)
    return followed, places, tokens


def read(followed: Cursors, tokens: list[int], *fresh: int) -> bool:
    """Append `fresh` to `tokens`, id by id; what the last call of `follow` said."""
    began = False
    for token in fresh:
        tokens.append(token)
        began = followed.follow(tokens)
    return began


def foretold(followed: Cursors, count: int) -> list[int]:
    return list(followed.following(followed.live[0], count))


def test_an_edit_that_begins_as_an_earlier_one_is_finished_like_it() -> None:
    followed, _, tokens = renaming(1)
    read(followed, tokens, *NAMED[33:42])
    assert foretold(followed, 3) == NAMED[42:45]
    assert read(followed, tokens, 1)
    assert followed.resumed
    assert foretold(followed, 4) == [2, 3, *NAMED[44:46]]


def test_an_edit_made_twice_is_made_before_it_begins() -> None:
    followed, _, tokens = renaming(2)
    tokens += NAMED[44:50]
    followed.follow(tokens)
    assert foretold(followed, 9) == [*NAMED[50:53], 1, 2, 3, *NAMED[55:58]]


def test_a_window_with_an_edit_in_it_is_followed_to_any_of_its_ids() -> None:
    for cut in range(1, 12):
        followed, _, tokens = renaming(2)
        tokens += NAMED[44:50]
        followed.follow(tokens)
        window = foretold(followed, 12)
        assert followed.follow([*tokens, *window[:cut]]) is False
        assert foretold(followed, 12 - cut) == window[cut:]


def test_a_copy_across_an_edit_counts_as_resumed_and_by_the_ids_behind_the_edit() -> None:
    followed, _, tokens = renaming(2)
    tokens += [*NAMED[44:53], 1, 2, 3, *NAMED[55:60]]
    followed.follow(tokens)
    assert followed.resumed
    assert followed.live[0].length == 5


def test_an_edit_finished_otherwise_ends_the_copy_and_is_looked_for_again() -> None:
    followed, _, tokens = renaming(1)
    read(followed, tokens, *NAMED[33:42], 1)
    tokens += [2, 99]
    assert not followed.follow(tokens)
    assert not followed.live
    assert followed.follow([*tokens, *NAMED[44:47]])
    assert followed.live[0].at == 47


def test_an_edit_that_the_stream_leaves_out_is_no_longer_foretold() -> None:
    followed, _, tokens = renaming(2)
    read(followed, tokens, *NAMED[44:66])
    assert foretold(followed, 11) == NAMED[66:77]


def test_a_copy_in_the_middle_of_an_edit_foretells_the_rest_of_it_only_for_the_first_place() -> None:
    followed, _, tokens = renaming(1)
    read(followed, tokens, *NAMED[33:42], 1)
    assert foretold(followed, 2) == [2, 3]
    assert list(followed.following(Place(20, 3), 2)) == NAMED[3:5]


def test_a_copy_that_goes_back_is_no_edit() -> None:
    followed, tokens = edited(1, *TEXT[22:25])
    assert list(followed.live) == [Place(3, 25)]
    for _ in range(2):
        read(followed, tokens, *TEXT[25:28], 1, *TEXT[25:28])
    assert foretold(followed, 4) == TEXT[28:32]


def test_a_new_era_forgets_the_edits() -> None:
    followed, places, tokens = renaming(3)
    places.era += 1
    assert followed.follow([*tokens, *NAMED[:20]])
    assert foretold(followed, 5) == NAMED[20:25]


def test_a_text_that_ends_inside_an_edit_is_left() -> None:
    followed, _ = cursors(NAMED[:44])
    _, _, tokens = renaming(1)
    followed.follow(tokens[:22])
    followed.follow(tokens[:32])
    followed.follow([*tokens[:32], 2])
    assert not followed.follow([*tokens[:32], 2, 5, 6, 4])


def _joined(parts: list[list[int]]) -> list[int]:
    return [token for part in parts for token in part]


pieces_strategy = st.lists(st.lists(st.integers(0, 1), min_size=17, max_size=50), min_size=1, max_size=4)


@settings(derandomize=True, deadline=None, max_examples=80)
@given(pieces=pieces_strategy, steps=st.lists(st.integers(1, 9), min_size=1, max_size=12), data=st.data())
@pytest.mark.slow
def test_followed_places_are_the_longest_that_a_search_would_find(
    pieces: list[list[int]], steps: list[int], data: st.DataObject
) -> None:
    places = ListPlaces(pieces)
    followed = Cursors(places, 1000, 0)
    stream = data.draw(st.lists(st.sampled_from(pieces), min_size=1, max_size=4).map(_joined))
    end = 0
    for step in steps:
        end = min(end + step, len(stream))
        followed.follow(stream[:end])
        found = places.find(stream[:end], 1000)
        assert list(followed.live) == found[: len(followed.live)]
        assert bool(followed.live) == bool(found)
        if followed.live:
            rest = [place.length for place in found[len(followed.live) :]]
            assert max(rest, default=0) <= followed.live[-1].length
