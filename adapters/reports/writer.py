"""Writes a benchmark's figures as a picture. Knows nothing of what was measured: names, numbers and series come in.

A number is one bar. A mapping of names to numbers is a series: lines where every series has the same numeric names,
which lie in order along the axis, else bars in groups. A text is a line under the picture, but `unit` and `across`
stand at the axes.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorfold.adapters.reports.charts import Chart, Series, draw
from tensorfold.application.ports.checkpoints import RefusedError

_UNIT, _ACROSS = "unit", "across"


class SvgReportWriter:
    """The ReportWriter that draws SVG, one chart a file."""

    def write(self, path: Path, title: str, figures: Mapping[str, Any]) -> None:
        """One file at `path`, which ends in .svg. Raises RefusedError where none can stand, ValueError otherwise."""
        if path.suffix != ".svg":
            raise ValueError(f"{path.suffix!r} is no form of report; .svg is")
        data = draw(chart_of(title, figures)).encode("utf-8")
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(data)
            os.replace(beside, path)
        except OSError as broken:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise RefusedError(f"{str(path)!a} cannot be written (error {broken.errno}).") from None


def chart_of(title: str, figures: Mapping[str, Any]) -> Chart:
    """The chart that shows every figure. Raises ValueError for a figure of another kind, or one that is not finite."""
    series: list[Series] = []
    single: dict[str, float] = {}
    notes: dict[str, str] = {}
    for name, value in figures.items():
        if isinstance(value, str):
            notes[name] = value
        elif isinstance(value, Mapping):
            series.append(Series(name, {str(key): _number(name, one) for key, one in value.items()}))
        else:
            single[name] = _number(name, value)
    if single:
        series.append(Series("", single))
    unit, across = notes.pop(_UNIT, ""), notes.pop(_ACROSS, "")
    return Chart(title, tuple(series), unit, across, tuple(notes.items()))


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"figure {name!r} is no finite number from 0")
    return float(value)
