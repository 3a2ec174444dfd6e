"""One file of all parts' figures, and plots of those that are series. Each part says which commit it is of.

`python -m tests.benchmarks.gpu_report FOLDER gpu.json ...` merges the parts of several runs into FOLDER; of a part that
stands in several the last is taken.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorfold.adapters.reports.writer import SvgReportWriter

MERGED = "gpu.json"
NO_RECORD = "none, kernels alone"
"""What is said of figures that no record could have changed."""
Plot = tuple[str, str, dict[str, Any]]


def merge(folder: Path) -> dict[str, Any]:
    """Write `gpu.json` of every PART.json in the folder, and the plots."""
    parts = {}
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        if path.name != MERGED and "part" in record:
            parts[record["part"]] = record
    merged = {"commits": sorted({record["commit"] for record in parts.values()}), "parts": parts}
    put(folder / MERGED, merged)
    for name, title, figures in plots(parts):
        SvgReportWriter().write(folder / f"{name}.svg", title, figures)
    return merged


def gather(folder: Path, runs: Sequence[Path]) -> dict[str, Any]:
    """Put the parts of several merged files into a folder, and merge them there."""
    folder.mkdir(parents=True, exist_ok=True)
    for run in runs:
        for name, record in json.loads(run.read_text(encoding="utf-8"))["parts"].items():
            put(folder / f"{name}.json", record)
    return merge(folder)


def put(path: Path, record: Mapping[str, Any]) -> None:
    """Write a file as a whole: another process that reads it sees the old one or the new one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(record, indent=1), encoding="utf-8")
    beside.replace(path)


def state(figures: Mapping[str, Any]) -> str:
    """The record's state of a part's figures, in words."""
    return "; ".join(sorted(set(_states(figures)))) or (NO_RECORD if figures else "no figures")


def plots(parts: Mapping[str, Any]) -> Iterator[Plot]:
    """Name, title and figures of each plot that there are figures for."""
    rounds = {_named(name): record for name, record in parts.items() if _has(record, "rounds", "device ms")}
    if rounds:
        lines = {name: _numbers(record["figures"]["rounds"]["device ms"]) for name, record in rounds.items()}
        yield "rounds", "A round by rows", lines | {"unit": "ms", "across": "rows"} | _said(rounds)
    streams = {_named(name): record for name, record in parts.items() if _has(record, "streams", "tokens/s")}
    if streams:
        lines = {
            f"{name}{mixed and ', half sampled'}": _numbers(record["figures"][f"streams{mixed}"]["tokens/s"])
            for name, record in streams.items()
            for mixed in ("", " half sampled")
            if _has(record, f"streams{mixed}", "tokens/s")
        }
        yield (
            "streams",
            "Streams that share rounds, no drafts",
            lines | {"unit": "tokens/s", "across": "streams"} | _said(streams),
        )
    for name, record in rounds.items():
        values = record["figures"].get("values", {})
        bars = {key: values[key] for key in _SPEEDS if key in values}
        if bars:
            yield f"speeds-{name}", f"One stream, {name}", {"": bars, "unit": "tokens/s"} | _said({name: record})


_SPEEDS = (
    "serial tokens/s",
    "drafted tokens/s",
    "tokens/s at 5.5 tokens a round",
    "file written again tokens/s",
    "copied tokens/s",
)


def _has(record: Mapping[str, Any], series: str, unit: str) -> bool:
    """Whether a part has figures of a series; a step that failed left none."""
    figures = record["figures"].get(series)
    return isinstance(figures, Mapping) and bool(figures.get(unit))


def _named(part: str) -> str:
    return part.partition("-")[0]


def _numbers(by_count: Mapping[str, float]) -> dict[str, float]:
    """Counts in order: JSON keeps them as texts."""
    return {str(key): float(by_count[key]) for key in sorted(by_count, key=int)}


def _said(records: Mapping[str, Any]) -> dict[str, str]:
    cards = sorted({record["card"] for record in records.values()})
    commits = sorted({record["commit"] for record in records.values()})
    states = sorted({state for record in records.values() for state in _states(record["figures"])})
    return {
        "measured on": f"{', '.join(cards)}, {', '.join(commits)}; synthetic weights of true geometry",
        "record": "; ".join(states) or "off",
    }


def _states(figures: Mapping[str, Any]) -> Iterator[str]:
    for part in (figures, *figures.values()):
        if isinstance(part, Mapping) and isinstance(part.get("record"), str):
            yield part["record"]


if __name__ == "__main__":
    merged = gather(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
    print(", ".join(f"{name} of {record['commit']}" for name, record in merged["parts"].items()))
