"""Line and bar charts of series over named places, as SVG text.

Every value is written beside its mark, so that a chart can be read without its axis; all of them stand in the
description too, for readers who see no picture. The scale begins at 0, so that lengths can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tensorfold.adapters.reports.scale import apart, labels, short, ticks
from tensorfold.adapters.reports.svg import element, page, text

WIDTH, HEIGHT = 760, 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 20, 92, 64
_NOTE = 17
_LINE = 13
_COLOURS = ("#3a6ea5", "#d1742b", "#3f8f5b", "#8a5a9e", "#b5484d", "#6b6b6b")
"""Told apart by lightness too, for eyes that do not tell colours apart; lines have marks of their own as well."""
_GREY, _INK, _FAINT = "#666666", "#1c1c1c", "#dddddd"
_GAP = 0.25
"""The part of a place's width that its bars leave free."""


@dataclass(frozen=True, slots=True)
class Series:
    """Values by the name of their place; every one finite and not negative."""

    name: str
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Chart:
    """A title, its series, the unit of their values, what the places are, and (name, text) notes below."""

    title: str
    series: tuple[Series, ...]
    unit: str = ""
    across: str = ""
    notes: tuple[tuple[str, str], ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """Names of all places, in the order they first come."""
        return tuple(dict.fromkeys(place for series in self.series for place in series.values))

    @property
    def is_lines(self) -> bool:
        """Whether the places are numbers that go on from one to the next, alike in every series."""
        alike = all(tuple(series.values) == self.places for series in self.series)
        return alike and len(self.places) > 1 and all(place.isdecimal() for place in self.places)


@dataclass(frozen=True, slots=True)
class _Plane:
    """Where values and places lie in the picture."""

    places: tuple[str, ...]
    top: float

    def across(self, place: int) -> float:
        """The middle of a place."""
        return _LEFT + (place + 0.5) * self.step

    @property
    def step(self) -> float:
        """The width of a place."""
        return (WIDTH - _LEFT - _RIGHT) / max(1, len(self.places))

    def up(self, value: float) -> float:
        """The height of a value, from the picture's upper edge."""
        return HEIGHT - _BOTTOM - value / self.top * (HEIGHT - _TOP - _BOTTOM)


def draw(chart: Chart) -> str:
    """The chart as a whole SVG document."""
    marks = ticks(max((value for series in chart.series for value in series.values.values()), default=0.0))
    plane = _Plane(chart.places, marks[-1])
    parts = [text(chart.title, _LEFT, 28, size=17, weight="bold"), *_legend(chart)]
    if chart.unit:
        parts.append(text(chart.unit, _LEFT, _TOP - 14, size=12, fill=_GREY))
    if chart.across:
        middle = (_LEFT + WIDTH - _RIGHT) / 2
        parts.append(text(chart.across, middle, HEIGHT - _BOTTOM + 42, size=12, fill=_GREY, anchor="middle"))
    parts += _axes(plane, marks)
    parts += _lines(chart, plane) if chart.is_lines else _bars(chart, plane)
    for number, (name, note) in enumerate(chart.notes):
        parts.append(text(f"{name}: {note}", _LEFT, HEIGHT + number * _NOTE, size=11, fill=_GREY))
    return page(WIDTH, HEIGHT + _NOTE * len(chart.notes) + 4, chart.title, "\n".join(_said(chart)), parts)


def _said(chart: Chart) -> Iterator[str]:
    """Every figure in words."""
    for series in chart.series:
        for place, value in series.values.items():
            yield f"{f'{series.name}, ' if series.name else ''}{place}: {short(value)} {chart.unit}".rstrip()
    if chart.across:
        yield f"places: {chart.across}"
    for name, note in chart.notes:
        yield f"{name}: {note}"


def _legend(chart: Chart) -> Iterator[str]:
    across = float(_LEFT)
    for number, series in enumerate(chart.series):
        if series.name:
            yield element("rect", x=across, y=44, width=12, height=12, fill=_colour(number))
            yield text(series.name, across + 18, 54, size=12)
            across += 40 + 7 * len(series.name)


def _axes(plane: _Plane, marks: tuple[float, ...]) -> Iterator[str]:
    for mark, label in zip(marks, labels(marks), strict=True):
        height = plane.up(mark)
        colour = _GREY if mark == 0 else _FAINT
        yield element("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=height, y2=height, stroke=colour)
        yield text(label, _LEFT - 8, height + 4, size=11, fill=_GREY, anchor="end")
    for number, place in enumerate(plane.places):
        yield text(place, plane.across(number), HEIGHT - _BOTTOM + 20, size=12, anchor="middle")


def _lines(chart: Chart, plane: _Plane) -> Iterator[str]:
    values = [tuple(series.values.values()) for series in chart.series]
    for number, heights in enumerate(values):
        path = " ".join(f"{plane.across(at):.1f},{plane.up(value):.1f}" for at, value in enumerate(heights))
        yield element("polyline", points=path, fill="none", stroke=_colour(number), stroke_width=2.5)
        for at, value in enumerate(heights):
            yield _mark(number, plane.across(at), plane.up(value), _colour(number))
    for at in range(len(plane.places)):
        here = [heights[at] for heights in values]
        for number, height in enumerate(apart([plane.up(value) for value in here], _LINE)):
            label = short(here[number])
            yield text(label, plane.across(at) + 7, height + 13, size=11, fill=_colour(number), halo=True)


def _mark(number: int, x: float, y: float, colour: str) -> str:
    """Another shape for each series."""
    if number % 3 == 0:
        return element("circle", cx=x, cy=y, r=4, fill=colour)
    if number % 3 == 1:
        return element("rect", x=x - 4, y=y - 4, width=8, height=8, fill=colour)
    return element(
        "polygon", points=f"{x:.1f},{y - 5:.1f} {x - 5:.1f},{y + 4:.1f} {x + 5:.1f},{y + 4:.1f}", fill=colour
    )


def _bars(chart: Chart, plane: _Plane) -> Iterator[str]:
    width = plane.step * (1 - _GAP) / max(1, len(chart.series))
    for number, series in enumerate(chart.series):
        for place, value in series.values.items():
            begin = plane.across(plane.places.index(place)) - plane.step * (1 - _GAP) / 2 + number * width
            height = plane.up(value)
            yield element(
                "rect", x=begin, y=height, width=width * 0.94, height=plane.up(0) - height, fill=_colour(number)
            )
            yield text(short(value), begin + width * 0.47, height - 5, size=11, fill=_INK, anchor="middle")


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]
