"""The copy index against a plain search over every earlier place."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.drafting.copy_index import CopyIndex, Match, continuation

UNBOUNDED = 10**6
texts = st.integers(1, 4).flatmap(lambda ids: st.lists(st.integers(0, ids - 1), max_size=90))
cuts = st.lists(st.integers(1, 12), min_size=1, max_size=20)


def shared_suffix(tokens: Sequence[int], distance: int) -> int:
    length = 0
    while length < len(tokens) - distance and tokens[-1 - length] == tokens[-1 - length - distance]:
        length += 1
    return length


def places(tokens: Sequence[int], enter: int, reach: int = UNBOUNDED) -> list[Match]:
    """Every earlier place that counts, most recent first."""
    lengths = ((shared_suffix(tokens, d), d) for d in range(2, len(tokens)))
    return [Match(min(length, reach), d) for length, d in lengths if length >= enter]


def best_first(matches: Sequence[Match]) -> list[Match]:
    return sorted(matches, key=lambda m: (-m.length, m.distance))


def reads(tokens: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """Growing prefixes of `tokens`, with `sizes` ids added in turn."""
    stops: list[int] = []
    at = 0
    while at < len(tokens):
        at = min(at + sizes[len(stops) % len(sizes)], len(tokens))
        stops.append(at)
    return [list(tokens[:stop]) for stop in stops]


@settings(derandomize=True, deadline=None, max_examples=100)
@given(tokens=texts, sizes=cuts, enter=st.integers(1, 8), cursors=st.integers(1, 16))
@pytest.mark.slow
def test_the_best_place_is_the_one_a_plain_search_gives(
    tokens: list[int], sizes: list[int], enter: int, cursors: int
) -> None:
    index = CopyIndex(enter=enter, cursors=cursors, walk=UNBOUNDED, reach=UNBOUNDED)
    for prefix in reads(tokens, sizes):
        index.read(prefix)
        ranking = best_first(places(prefix, enter))
        assert index.best() == (ranking[0] if ranking else None)
        assert list(index.matches()) == ranking[: len(index.matches())]
        assert len(index.matches()) <= cursors


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    tokens=texts,
    sizes=cuts,
    enter=st.integers(1, 4),
    cursors=st.integers(1, 3),
    walk=st.integers(1, 4),
    extra=st.integers(0, 9),
)
@pytest.mark.slow
def test_under_tight_bounds_it_still_follows_its_stated_rule(
    tokens: list[int], sizes: list[int], enter: int, cursors: int, walk: int, extra: int
) -> None:
    index = CopyIndex(enter=enter, cursors=cursors, walk=walk, reach=enter + extra)
    live: list[Match] = []
    for prefix in reads(tokens, sizes):
        added = len(prefix) - len(index)
        index.read(prefix)
        live = [Match(k + added, d) for k, d in live if shared_suffix(prefix, d) >= added]
        if not live:
            live = best_first(places(prefix, enter, enter + extra)[:walk])[:cursors]
        assert list(index.matches()) == live


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    phrases=st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=40), min_size=2, max_size=4),
    order=st.lists(st.integers(0, 3), min_size=4, max_size=12),
)
@pytest.mark.slow
def test_repeated_phrases_are_found_with_the_default_bounds(phrases: list[list[int]], order: list[int]) -> None:
    tokens = [token for which in order for token in phrases[which % len(phrases)]]
    index = CopyIndex()
    for prefix in reads(tokens, [30, 1, 5, 1]):
        index.read(prefix)
        ranking = best_first(places(prefix, 8))
        assert index.best() == (ranking[0] if ranking else None)


def test_a_long_match_is_measured_to_its_last_id() -> None:
    for length in range(8, 60):
        repeated = list(range(100, 100 + length))
        index = CopyIndex()
        index.read([1, *repeated, 2, 3, *repeated])
        assert index.best() == Match(length, length + 2)


def test_matches_are_measured_up_to_the_reach_and_grow_past_it() -> None:
    tokens = [*range(50), *range(50)]
    index = CopyIndex(reach=20)
    index.read(tokens[:-2])
    assert index.best() == Match(20, 50)
    index.read(tokens)
    assert index.best() == Match(22, 50)


def test_a_place_with_one_id_behind_it_does_not_count() -> None:
    index = CopyIndex(enter=3)
    index.read([7, 7, 7, 7])
    assert index.best() is None
    index.read([7, 7, 7, 7, 7])
    assert index.best() == Match(3, 2)


def test_the_most_recent_of_equally_long_places_wins() -> None:
    index = CopyIndex(enter=2)
    index.read([1, 2, 9, 1, 2, 8, 1, 2])
    assert index.best() == Match(2, 3)


def test_a_longer_place_beats_a_more_recent_one() -> None:
    index = CopyIndex(enter=2)
    index.read([5, 1, 2, 9, 1, 2, 8, 5, 1, 2])
    assert index.best() == Match(3, 7)


def test_runs_with_the_same_hash_are_told_apart() -> None:
    colliding = 0x2545F491
    index = CopyIndex(enter=2)
    index.read([1, 0, 9, 9, 0, colliding])
    assert index.best() is None
    index.read([1, 0, 9, 9, 0, colliding, 4, 1, 0])
    assert index.best() == Match(2, 7)


def test_one_id_repeated_keeps_a_bounded_number_of_places() -> None:
    tokens = [4] * 8000
    index = CopyIndex()
    index.read(tokens)
    for _ in range(50):
        tokens.append(4)
        index.read(tokens)
    assert len(index) == 8050
    assert len(index.matches()) == 16
    assert index.best() == Match(1024 + 50, 2)


@pytest.mark.parametrize(("between", "found"), [(63, True), (64, False)])
def test_a_search_looks_at_the_sixty_four_newest_places(between: int, found: bool) -> None:
    run, longer = list(range(8)), [20, 21]
    tokens = [*longer, *run]
    for which in range(between):
        tokens += [100 + which, *run]
    index = CopyIndex()
    index.read([*tokens, *longer, *run])
    best = index.best()
    assert best is not None
    assert best.length == (10 if found else 8)


def test_reading_the_same_ids_again_changes_nothing() -> None:
    tokens = [*range(10), *range(10)]
    index = CopyIndex()
    index.read(tokens)
    before = index.matches()
    index.read(tokens)
    assert index.matches() == before != ()


def test_a_shorter_context_is_refused() -> None:
    index = CopyIndex()
    index.read([1, 2, 3])
    with pytest.raises(ValueError, match="read 3 ids was given 2"):
        index.read([1, 2])


@pytest.mark.parametrize("bounds", [{"enter": 0}, {"cursors": 0}, {"walk": 0}, {"enter": 9, "reach": 8}])
def test_bounds_below_one_are_refused(bounds: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="a copy index cannot have"):
        CopyIndex(**bounds)


def test_the_least_bounds_are_taken() -> None:
    index = CopyIndex(enter=1, cursors=1, walk=1, reach=1)
    index.read([3, 4, 3])
    assert index.best() == Match(1, 2)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(tokens=st.lists(st.integers(0, 9), min_size=2, max_size=30), data=st.data(), count=st.integers(0, 80))
@pytest.mark.slow
def test_a_continuation_goes_on_in_what_it_has_copied(tokens: list[int], data: st.DataObject, count: int) -> None:
    distance = data.draw(st.integers(1, len(tokens)))
    grown = list(tokens)
    for _ in range(count):
        grown.append(grown[-distance])
    assert continuation(tokens, distance, count) == tuple(grown[len(tokens) :])
