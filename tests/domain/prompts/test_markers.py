"""Markers told from renders: templates with and without special ids, with text before the first message."""

from __future__ import annotations

import numpy as np

from tensorfold.domain.prompts.markers import MOST_ASSISTANT, NO_MARKERS, Markers, markers_of

OPEN, SYSTEM, USER, MODEL, END, BEGIN = 100, 101, 102, 103, 104, 105
SPECIAL = frozenset({OPEN, END, BEGIN})


def test_one_opener_for_all_roles_is_told_apart_by_the_role_behind_it() -> None:
    pieces = {"user": [[OPEN, 7, 1, END], [OPEN, 7, 2, END]], "assistant": [[OPEN, 8, 1, END], [OPEN, 8, 2, END]]}
    assert markers_of(pieces, [[OPEN, 6, 1], [OPEN, 6, 2]], SPECIAL) == Markers(frozenset({OPEN}), (OPEN, 8))


def test_an_opener_for_each_role_needs_no_role_behind_it() -> None:
    roles = SPECIAL | {SYSTEM, USER, MODEL}
    pieces = {"user": [[USER, 1], [USER, 2]], "assistant": [[MODEL, 9, 1], [MODEL, 9, 2]]}
    found = markers_of(pieces, [[BEGIN, SYSTEM, 1], [BEGIN, SYSTEM, 2]], roles)
    assert found == Markers(frozenset({USER, MODEL, SYSTEM}), (MODEL,))


def test_a_template_without_special_ids_has_no_markers() -> None:
    pieces = {"user": [[1, 2], [1, 3]], "assistant": [[4, 2], [4, 3]]}
    assert markers_of(pieces, [[1, 1], [1, 2]], SPECIAL) == NO_MARKERS
    assert markers_of({}, [], SPECIAL) == NO_MARKERS


def test_an_assistant_that_looks_like_a_user_has_no_marker_of_its_own() -> None:
    pieces = {"user": [[OPEN, 1], [OPEN, 2]], "assistant": [[OPEN, 3], [OPEN, 4]]}
    assert markers_of(pieces, [], SPECIAL) == Markers(frozenset({OPEN}), ())


def test_an_assistant_told_apart_too_late_has_no_marker() -> None:
    same = [OPEN, *range(MOST_ASSISTANT)]
    pieces = {"user": [[*same, 7, 1], [*same, 7, 2]], "assistant": [[*same, 8, 1], [*same, 8, 2]]}
    assert markers_of(pieces, [], SPECIAL).assistant == ()


def test_a_role_seen_once_tells_nothing() -> None:
    assert markers_of({"user": [[OPEN, 1]], "assistant": [[OPEN, 2]]}, [], SPECIAL) == NO_MARKERS


def test_resume_points_are_assistant_starts_and_the_second_opener() -> None:
    markers = Markers(frozenset({OPEN}), (OPEN, 8))
    ids = np.array([OPEN, 8, 1, OPEN, 7, 2, OPEN, 8, OPEN])
    assert markers.resume_points(ids) == [3, 6]
    assert markers.second_message(ids) == 3
    assert markers.resume_points(np.array([OPEN])) == []
    assert NO_MARKERS.resume_points(ids) == []
