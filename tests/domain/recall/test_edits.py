"""Edits remembered: what is made again, when it is made unasked, what is forgotten."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.recall.edits import EDIT_IDS, MOST_EDITS, SURE, Edit, Edits, Step

TEXT = tuple(range(100, 130))
RENAMED = Edit((105, 106), (1, 2, 3))


def known(edit: Edit, times: int = 1, key: int | None = None) -> Edits:
    edits = Edits()
    for _ in range(times):
        edits.made(edit.removed[0] if key is None else key, edit)
    return edits


def drafts(edits: Edits, ids: tuple[int, ...] = TEXT, ahead: tuple[int, ...] = (), count: int = 100) -> list[int]:
    return [step.token for step in edits.applied(ids, ahead, 0, count)]


def test_no_edit_is_known_at_first() -> None:
    assert not Edits()
    assert known(RENAMED)
    assert drafts(Edits()) == list(TEXT)


def test_an_edit_begun_again_is_recognised_by_its_first_ids() -> None:
    edits = known(RENAMED)
    for begun in ((1,), (1, 2), (1, 2, 3)):
        assert edits.begun(TEXT[5:], begun) == RENAMED


def test_another_edit_is_not_taken_for_it() -> None:
    edits = known(RENAMED)
    for begun in ((), (2,), (1, 3), (1, 2, 3, 4)):
        assert edits.begun(TEXT[5:], begun) is None


def test_an_edit_is_known_only_where_the_record_is_as_it_was() -> None:
    edits = known(RENAMED)
    assert edits.begun((105, 107, 108), (1,)) is None
    assert edits.begun(TEXT[4:], (1,)) is None
    assert edits.begun((), (1,)) is None


def test_an_edit_that_nothing_follows_is_of_no_use() -> None:
    edits = known(RENAMED, SURE)
    assert edits.begun((105, 106), (1,)) is None
    assert edits.begun((105, 106, 107), (1,)) == RENAMED
    assert drafts(edits, TEXT[:7]) == list(TEXT[:7])
    assert drafts(edits, TEXT[:8]) == [*TEXT[:5], 1, 2, 3, 107]


def test_an_edit_made_twice_is_made_unasked() -> None:
    assert SURE == 2
    assert drafts(known(RENAMED)) == list(TEXT)
    assert drafts(known(RENAMED, 2)) == [*TEXT[:5], 1, 2, 3, *TEXT[7:]]


def test_it_is_known_where_an_edit_may_be_made_unasked() -> None:
    assert not Edits().sure_in(TEXT)
    assert not known(RENAMED).sure_in(TEXT)
    assert not known(Edit((), (1,)), 2, key=105).sure_in(TEXT)
    assert known(RENAMED, 2).sure_in(TEXT)
    assert not known(RENAMED, 2).sure_in(TEXT[6:])


def test_what_is_left_out_is_left_out_again() -> None:
    assert drafts(known(Edit((105, 106), ()), 2)) == [*TEXT[:5], *TEXT[7:]]


def test_what_is_put_in_is_made_again_only_once_begun() -> None:
    edits = known(Edit((), (1, 2)), 5, key=105)
    assert drafts(edits) == list(TEXT)
    assert edits.begun(TEXT[5:], (1,)) == Edit((), (1, 2))


def test_another_edit_at_the_same_id_takes_the_place_of_the_first() -> None:
    edits = known(RENAMED, 5)
    other = Edit((105,), (9,))
    edits.made(105, other)
    assert edits.begun(TEXT[5:], (1,)) is None
    assert edits.begun(TEXT[5:], (9,)) == other
    assert drafts(edits) == list(TEXT)


def test_an_edit_left_out_as_often_as_it_was_made_is_forgotten() -> None:
    edits = known(RENAMED, 2)
    edits.passed(TEXT)
    assert drafts(edits) == list(TEXT)
    edits.passed(TEXT)
    assert edits
    edits.passed(TEXT[:5])
    assert edits
    edits.passed(TEXT)
    assert not edits
    edits.passed(TEXT)


def test_long_edits_are_not_remembered() -> None:
    assert known(Edit(TEXT[:EDIT_IDS], TEXT[:EDIT_IDS]))
    assert not known(Edit(tuple(range(EDIT_IDS + 1)), ()))
    assert not known(Edit((1,), tuple(range(EDIT_IDS + 1))))


def test_the_edit_made_longest_ago_is_forgotten_first() -> None:
    edits = Edits()
    for key in range(MOST_EDITS):
        edits.made(key, Edit((key,), (7,)))
    edits.made(0, Edit((0,), (7,)))
    edits.made(MOST_EDITS, Edit((MOST_EDITS,), (7,)))
    assert edits.begun((0, 500), (7,)) is not None
    assert edits.begun((1, 500), (7,)) is None
    assert edits.begun((2, 500), (7,)) is not None


def test_every_draft_tells_where_the_copy_stands_behind_it() -> None:
    assert known(RENAMED, 2).applied(TEXT[3:9], (8, 9), 40, 100) == [
        Step(8, 0, (9,), 0),
        Step(9, 0, (), 0),
        Step(103, 1, (), 1),
        Step(104, 2, (), 2),
        Step(1, 4, (2, 3), 0),
        Step(2, 4, (3,), 0),
        Step(3, 4, (), 0),
        Step(107, 5, (), 1),
        Step(108, 6, (), 2),
    ]


def test_what_was_the_records_before_counts_on() -> None:
    assert Edits().applied(TEXT[:2], (), 40, 100) == [Step(100, 1, (), 41), Step(101, 2, (), 42)]


def test_no_more_drafts_are_made_than_asked_for() -> None:
    edits = known(RENAMED, 2)
    for count in range(12):
        assert drafts(edits, ahead=(8, 9), count=count) == [8, 9, *TEXT[:5], 1, 2, 3, *TEXT[7:]][:count]


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    ids=st.lists(st.integers(0, 3), max_size=30),
    made=st.lists(
        st.tuples(st.lists(st.integers(0, 3), max_size=3), st.lists(st.integers(4, 6), max_size=3)), max_size=6
    ),
    ahead=st.lists(st.integers(7, 8), max_size=3),
    count=st.integers(0, 20),
)
@pytest.mark.slow
def test_a_copy_taken_up_behind_any_draft_goes_on_the_same(
    ids: list[int], made: list[tuple[list[int], list[int]]], ahead: list[int], count: int
) -> None:
    edits = Edits()
    for removed, inserted in made:
        edits.made(removed[0] if removed else 0, Edit(tuple(removed), tuple(inserted)))
    steps = edits.applied(ids, tuple(ahead), 0, 1000)
    assert edits.applied(ids, tuple(ahead), 0, count) == steps[:count]
    for at, step in enumerate(steps):
        rest = edits.applied(ids[step.behind :], step.ahead, step.length, 1000)
        assert [s.token for s in rest] == [s.token for s in steps[at + 1 :]]
