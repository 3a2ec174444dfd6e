"""`tensorfold bench --compare BEFORE AFTER`: two results, what became slower, and a changelog's paragraph."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from tensorfold.application.benchmark_comparing import compare, paragraph, placed
from tensorfold.application.benchmark_results import Result, read_result
from tensorfold.application.ports.benchmarks import BenchmarkFiles
from tensorfold.entrypoints.cli.bench_words import comparison_table, comparison_verdict
from tensorfold.entrypoints.cli.lines import put
from tensorfold.entrypoints.container import Container
from tensorfold.entrypoints.settings import cache_folder, own_path


def compare_results(flags: argparse.Namespace) -> int:
    """Run the command; 1 when a cell became slower than is allowed, else 0. Raises RefusedError."""
    files = Container(cache=cache_folder(os.environ)).benchmark_files()
    before, after = (_result(files, text) for text in flags.compare)
    comparison = compare(before, after, _names(*flags.compare), flags.tolerance / 100)
    lines = paragraph(comparison)
    if flags.changelog is not None:
        place = own_path("--changelog", flags.changelog, "file")
        files.check_place(place)
        files.write(place, placed(files.text(place), lines, str(place)))
    put(comparison_verdict(comparison))
    put()
    for line in comparison_table(comparison):
        put(line)
    if flags.changelog is None:
        put()
        for line in lines:
            put(line)
    else:
        put()
        put(f"the paragraph is in {place}")
    return 1 if comparison.slower else 0


def _result(files: BenchmarkFiles, text: str) -> Result:
    path = own_path("--compare", text, "results file")
    return read_result(files.result(path), _shown(path))


def _names(before: str, after: str) -> tuple[str, str]:
    return _shown(Path(before)), _shown(Path(after))


def _shown(path: Path) -> str:
    text = str(path)
    return text if text.isprintable() else ascii(text)
