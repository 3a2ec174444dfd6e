"""Which charts a benchmark's result becomes: names, titles and the figures of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tensorfold.application.benchmark_results import Result, Row
from tensorfold.application.ports.services import ReportWriter

_SHORT_DIGEST = 19


def write_plots(result: Result, folder: Path, writer: ReportWriter) -> list[Path]:
    """One file a chart in `folder`, which is made where it is missing; their paths."""
    written = []
    for name, title, figures in charts(result):
        path = folder / f"{name}.svg"
        writer.write(path, title, {**figures, **_notes(result)})
        written.append(path)
    return written


def charts(result: Result) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """File name, title and figures of each chart."""
    speeds = {"unit": "tokens per second", "across": "streams"}
    times = {"unit": "seconds", "across": "streams"}
    yield "tokens_per_second", "Tokens per second, all streams", {**speeds, **_lines(result, lambda row: row.rate)}
    yield "a_stream", "Tokens per second of a stream, median", {**speeds, **_lines(result, lambda row: row.stream_rate)}
    yield "first_token_p50", "First token, median", {**times, **_lines(result, lambda row: row.first_p50_s)}
    yield "first_token_p99", "First token, p99", {**times, **_lines(result, lambda row: row.first_p99_s)}
    if any(row.sources for row in result.rows):
        yield "drafts", "Drafts verified and kept, all cells", {"unit": "tokens", **_drafts(result)}


def _lines(result: Result, figure: Callable[[Row], float]) -> dict[str, dict[str, float]]:
    return {mode: {str(row.streams): figure(row) for row in result.rows if row.mode == mode} for mode in result.modes}


def _drafts(result: Result) -> dict[str, dict[str, float]]:
    """Totals of each mode and source."""
    totals: dict[str, dict[str, float]] = {"verified": {}, "kept": {}}
    for row in result.rows:
        for source, counts in sorted(row.sources.items()):
            place = f"{row.mode}: {source}"
            for series, count in zip(totals.values(), counts, strict=True):
                series[place] = series.get(place, 0) + count
    return totals


def _notes(result: Result) -> dict[str, str]:
    return {
        "model": f"{result.model}, {result.backend}, TensorFold {result.version}, {result.date}",
        "machine": result.machine,
        "prompts": f"{len(result.prompt_names)}, {result.prompts[:_SHORT_DIGEST]}, replies of {result.reply} tokens",
        "record": "; ".join(dict.fromkeys(f"{row.mode}: {row.record}" for row in result.rows)),
    }
