"""The text that scrapers read, and the strict reader of the tests itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.entrypoints.http.exposition import Family, by_label, histogram, single, states, text_of
from tests.entrypoints.http.exposition import MalformedError, parse

NUMBERS = st.one_of(st.integers(0, 2**63), st.floats(0, 1e300, allow_subnormal=True))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]).filter(lambda c: c != "\r"), min_size=1)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(value=NUMBERS, label=TEXTS, help=TEXTS.filter(lambda text: "\r" not in text))
@pytest.mark.slow
def test_any_value_label_and_help_comes_back_as_it_was(value: float, label: str, help: str) -> None:
    read = parse(text_of([single("a_b", "gauge", help, value, {"model_name": label})]))
    assert read["a_b"].value(model_name=label) == float(value)
    assert read["a_b"].help.replace("\\n", "\n").replace("\\\\", "\\") == help or "\\" in help


def test_a_label_that_is_no_unicode_is_shown_as_well_as_it_can_be() -> None:
    assert parse(text_of([single("a", "gauge", "x", 1, {"b": "\udcff"})]))["a"].value(b="?") == 1


@settings(derandomize=True, deadline=None, max_examples=50)
@given(counts=st.lists(st.integers(0, 2**40), min_size=4, max_size=4), total=st.floats(0, 1e12))
def test_a_histogram_has_growing_buckets_its_count_and_its_sum(counts: list[int], total: float) -> None:
    made = histogram("t_seconds", "x", (0.005, 1.0, 2.5), tuple(counts), total, {"m": "n"})
    family = parse(text_of([made]))["t_seconds"]
    edges = [dict(labels)["le"] for labels in family.ending("_bucket")]
    assert edges == ["0.005", "1", "2.5", "+Inf"]
    assert family.ending("_count")[(("m", "n"),)] == sum(counts)
    assert family.ending("_sum")[(("m", "n"),)] == total


def test_a_state_is_one_and_all_others_are_zero() -> None:
    family = parse(text_of([states("s", "x", ("a", "b", "c"), "b")]))["s"]
    assert [family.value(state=state) for state in "abc"] == [0, 1, 0]


def test_a_family_without_samples_is_not_written() -> None:
    assert text_of([Family("a", "gauge", "x", ()), by_label("b_total", "counter", "x", "source", {})]) == b""


HEAD = "# HELP a_total x\n# TYPE a_total counter\n"
HISTOGRAM = "# HELP h x\n# TYPE h histogram\n"
WRONG: dict[str, str] = {
    "no end of line": HEAD + "a_total 1",
    "an empty line": HEAD + "a_total 1\n\n",
    "carriage returns": HEAD + "a_total 1\r\n",
    "no head": "a_total 1\n",
    "no type": "# HELP a_total x\na_total 1\n",
    "an unknown type": "# HELP a x\n# TYPE a untyped\na 1\n",
    "a head of another family": "# HELP b_total x\n# TYPE a_total counter\na_total 1\n",
    "no samples": HEAD,
    "a family twice": HEAD + "a_total 1\n" + HEAD + "a_total 2\n",
    "a series twice": HEAD + 'a_total{b="c"} 1\na_total{b="c"} 2\n',
    "a foreign sample": HEAD + "b_total 1\n",
    "a bad value": HEAD + "a_total one\n",
    "an infinite value": HEAD + "a_total Inf\n",
    "a negative counter": HEAD + "a_total -1\n",
    "two blanks": HEAD + "a_total  1\n",
    "a bad name": "# HELP a-b x\n# TYPE a-b gauge\na-b 1\n",
    "a counter without total": "# HELP a x\n# TYPE a counter\na 1\n",
    "a gauge with total": "# HELP a_total x\n# TYPE a_total gauge\na_total 1\n",
    "an unquoted label": HEAD + "a_total{b=c} 1\n",
    "an unescaped quote": HEAD + 'a_total{b="c"d"} 1\n',
    "an unknown escape": HEAD + 'a_total{b="\\t"} 1\n',
    "no labels in brackets": HEAD + "a_total{} 1\n",
    "a label twice": HEAD + 'a_total{b="c",b="d"} 1\n',
    "no comma": HEAD + 'a_total{b="c"d="e"} 1\n',
    "a bad label name": HEAD + 'a_total{b-c="d"} 1\n',
    "buckets that shrink": HISTOGRAM + 'h_bucket{le="1"} 2\nh_bucket{le="+Inf"} 1\nh_sum 1\nh_count 1\n',
    "buckets short of the count": HISTOGRAM + 'h_bucket{le="1"} 1\nh_bucket{le="+Inf"} 1\nh_sum 1\nh_count 2\n',
    "no last bucket": HISTOGRAM + 'h_bucket{le="1"} 1\nh_sum 1\nh_count 1\n',
    "edges that fall": HISTOGRAM
    + 'h_bucket{le="2"} 0\nh_bucket{le="1"} 1\nh_bucket{le="+Inf"} 1\nh_sum 1\nh_count 1\n',
    "no sum": HISTOGRAM + 'h_bucket{le="+Inf"} 1\nh_count 1\n',
    "no buckets": HISTOGRAM + "h_sum 1\nh_count 1\n",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_the_strict_reader_refuses(text: str) -> None:
    with pytest.raises(MalformedError):
        parse(text.encode())


RIGHT: list[Callable[[], Family]] = [
    lambda: single("a_total", "counter", "x", 1),
    lambda: histogram("h", "x", (1.0,), (0, 1), 2.0),
]


@pytest.mark.parametrize("made", RIGHT)
def test_the_strict_reader_takes(made: Callable[[], Family]) -> None:
    assert parse(text_of([made()]))
