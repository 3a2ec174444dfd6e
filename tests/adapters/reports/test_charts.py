"""Charts: well-formed whatever comes in, every figure readable, marks where the values are."""

from __future__ import annotations

import itertools
import math
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.adapters.reports.charts import HEIGHT, WIDTH, draw
from tensorfold.adapters.reports.scale import apart, labels, short, ticks
from tensorfold.adapters.reports.writer import SvgReportWriter, chart_of
from tensorfold.application.ports.checkpoints import RefusedError

LINES = {
    "unit": "tokens per second",
    "across": "streams",
    "serial": {"1": 9.1, "2": 17.5, "4": 30.2},
    "drafts": {"1": 12.1, "2": 22.5, "4": 60.4},
    "machine": "two cores",
}
BARS = {"verified": {"copy": 120, "recall": 300}, "kept": {"copy": 80, "recall": 280}}
SVG = "{http://www.w3.org/2000/svg}"


def drawn(figures: dict[str, Any], title: str = "Title") -> ElementTree.Element:
    return ElementTree.fromstring(draw(chart_of(title, figures)))


def words(root: ElementTree.Element) -> list[str]:
    return [node.text or "" for node in root.iter(f"{SVG}text")]


def test_series_over_numbers_are_lines_whose_points_rise_with_their_values() -> None:
    root = drawn(LINES)
    lines = [
        [tuple(map(float, pair.split(","))) for pair in node.attrib["points"].split()]
        for node in root.iter(f"{SVG}polyline")
    ]
    assert [len(line) for line in lines] == [3, 3]
    for line in lines:
        assert all(left[0] < right[0] and left[1] > right[1] for left, right in itertools.pairwise(line))
    assert lines[1][2][1] < lines[0][2][1]
    # Heights are in proportion, as the scale begins at 0.
    bottom = next(float(node.attrib["y1"]) for node in root.iter(f"{SVG}line") if node.attrib["stroke"] == "#666666")
    assert (bottom - lines[1][2][1]) / (bottom - lines[0][2][1]) == pytest.approx(2.0, abs=0.01)


def test_other_series_are_bars_as_tall_as_their_values() -> None:
    root = drawn(BARS)
    assert not list(root.iter(f"{SVG}polyline"))
    tall = [float(node.attrib["height"]) for node in root.iter(f"{SVG}rect") if float(node.attrib["width"]) > 20]
    bars = [height for height in tall if height != HEIGHT + 4]
    assert [height / bars[0] for height in bars] == pytest.approx([1, 300 / 120, 80 / 120, 280 / 120], abs=0.01)


def test_one_number_of_streams_alone_is_drawn_as_bars() -> None:
    root = drawn({"serial": {"1": 2.0}, "drafts": {"1": 3.0}})
    assert not list(root.iter(f"{SVG}polyline")) and {"2", "3", "serial", "drafts", "1"} <= set(words(root))


def test_every_name_value_and_note_can_be_read() -> None:
    root = drawn(LINES, "Speed")
    shown = words(root)
    assert {"Speed", "tokens per second", "streams", "machine: two cores"} <= set(shown)
    assert {"serial", "drafts", "1", "2", "4"} <= set(shown)
    assert {"9.1", "17.5", "30.2", "12.1", "22.5", "60.4"} <= set(shown)
    description = root.findtext(f"{SVG}desc") or ""
    assert "drafts, 4: 60.4 tokens per second" in description and "machine: two cores" in description
    assert root.findtext(f"{SVG}title") == "Speed"


def test_the_picture_grows_with_its_notes() -> None:
    notes = {f"note {n}": "x" for n in range(5)}
    assert int(drawn(LINES | notes).attrib["height"]) == int(drawn(LINES).attrib["height"]) + 5 * 17


def test_hostile_text_stays_text() -> None:
    evil = "</text><script>alert(1)</script>&\"'<![CDATA["
    root = drawn({evil: {"1": 1.0, "2": 2.0}, "note": evil, "unit": evil, "x\x00y\ud800\uffff": "z\x1b[31m"}, evil)
    assert {node.tag.removeprefix(SVG) for node in root.iter()} <= {
        "svg", "title", "desc", "rect", "text", "line", "polyline", "circle", "polygon",
    }  # fmt: skip
    assert evil in words(root)
    assert all(key not in ("href", "onload") for node in root.iter() for key in node.attrib)


NAMES = st.text(max_size=12)
VALUES = st.floats(0, 1e12) | st.integers(0, 10**9)


@settings(derandomize=True, deadline=None, max_examples=120)
@given(
    st.text(max_size=30),
    st.dictionaries(NAMES, VALUES | NAMES | st.dictionaries(NAMES, VALUES, max_size=5), max_size=6),
)
@pytest.mark.slow
def test_any_figures_make_a_well_formed_picture_with_every_mark_inside(title: str, figures: dict[str, Any]) -> None:
    root = drawn(figures, title)
    assert root.tag == f"{SVG}svg"
    for node in root.iter(f"{SVG}circle"):
        assert 0 <= float(node.attrib["cx"]) <= WIDTH and 0 <= float(node.attrib["cy"]) <= HEIGHT
    for node in root.iter(f"{SVG}rect"):
        assert float(node.attrib["height"]) >= 0 and float(node.attrib.get("y", 0)) >= 0


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, True, None, [1]])
def test_a_figure_that_cannot_be_drawn_is_an_error_of_whoever_asks(value: Any) -> None:
    with pytest.raises(ValueError, match="figure 'x' is no finite number from 0"):
        chart_of("t", {"x": value})
    with pytest.raises(ValueError, match="figure 'x'"):
        chart_of("t", {"x": {"1": value}})


@pytest.mark.parametrize(
    ("most", "marks"),
    [
        (0.0, (0, 1)),
        (1.0, (0, 0.2, 0.4, 0.6, 0.8, 1.0)),
        (60.4, (0, 20, 40, 60, 80)),
        (300.0, (0, 100, 200, 300)),
        (0.0011, (0, 0.00025, 0.0005, 0.00075, 0.001, 0.00125)),
    ],
)
def test_marks_are_round_and_reach_past_the_most(most: float, marks: tuple[float, ...]) -> None:
    assert ticks(most) == pytest.approx(marks)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.floats(1e-6, 1e12))
def test_marks_are_few_equally_far_apart_and_told_apart_by_their_labels(most: float) -> None:
    marks = ticks(most)
    assert 2 <= len(marks) <= 7 and marks[0] == 0 and marks[-1] >= most * (1 - 1e-8)
    assert len(set(labels(marks))) == len(marks)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (12345.6, "12,346"), (123.4, "123"), (12.345, "12.3"), (0.01234, "0.0123"), (1e-7, "1.0e-07")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert short(value) == text


def test_labels_that_would_touch_are_moved_apart_and_keep_their_order() -> None:
    assert apart([100.0, 50.0], 13) == [100.0, 50.0]
    assert apart([100.0, 100.0], 13) == [93.5, 106.5]
    assert apart([100.0, 104.0, 200.0], 10) == [97.0, 107.0, 200.0]
    assert apart([], 13) == []


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.lists(st.floats(0, 400), max_size=6))
@pytest.mark.slow
def test_moved_labels_never_touch(heights: list[float]) -> None:
    moved = sorted(apart(heights, 13))
    assert all(right - left >= 13 - 1e-9 for left, right in itertools.pairwise(moved))


def test_a_report_is_written_whole_in_a_folder_that_is_made(tmp_path: Path) -> None:
    path = tmp_path / "plots" / "speed.svg"
    SvgReportWriter().write(path, "One", LINES)
    SvgReportWriter().write(path, "Two", BARS)
    assert "Two" in path.read_text(encoding="utf-8")
    assert [one.name for one in path.parent.iterdir()] == ["speed.svg"]


def test_another_form_is_an_error_and_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'.png' is no form of report"):
        SvgReportWriter().write(tmp_path / "x.png", "t", {})
    (tmp_path / "file").write_text("")
    with pytest.raises(RefusedError, match=r"cannot be written \(error \d+\)\.$"):
        SvgReportWriter().write(tmp_path / "file" / "x.svg", "t", {})
    (tmp_path / "taken.svg").mkdir()
    with pytest.raises(RefusedError, match=r"taken\.svg' cannot be written"):
        SvgReportWriter().write(tmp_path / "taken.svg", "t", {})
    assert sorted(os.listdir(tmp_path)) == ["file", "taken.svg"]
