"""A benchmark in words: one sentence that says what it found, then tables. Plain text, as wide as a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensorfold.application.benchmark_comparing import Comparison
from tensorfold.application.benchmark_results import Result, Row
from tensorfold.application.benchmarking import DRAFTS, RECORD, SERIAL


def verdict(result: Result) -> str:
    """The one sentence of a result."""
    if result.through == "http":
        return _server_verdict(result)
    least = min(row.streams for row in result.rows)
    serial, drafts, record = (result.row(mode, least) for mode in (SERIAL, DRAFTS, RECORD))
    assert serial is not None
    found = [f"serial decoding gives {_rate(serial)} on {_streams(least)}"]
    if drafts is not None and record is not None:
        found.append(f"drafts {_times(drafts, serial)} and a record that has seen the prompts {_times(record, serial)}")
    else:
        found.append("drafts are off here")
    found += _together(result, least)
    return f"{result.model}: {', '.join(found)}; {_equality(result)}."


def _together(result: Result, least: int) -> Iterator[str]:
    """What the largest number of streams brings, where several were measured."""
    most = max(row.streams for row in result.rows)
    mode = DRAFTS if result.row(DRAFTS, most) is not None else SERIAL
    one, all_of_them = result.row(mode, least), result.row(mode, most)
    if most > least and one is not None and all_of_them is not None:
        with_drafts = " with drafts" if mode == DRAFTS else ""
        yield f"{_streams(most)} together {_times(all_of_them, one)} of {_streams(least)}{with_drafts}"


def _equality(result: Result) -> str:
    return f"all {result.compared} replies held against their serial reply are equal to it"


def _server_verdict(result: Result) -> str:
    first, last = result.rows[0], result.rows[-1]
    found = [f"{_rate(first)} on {_streams(first.streams)}"]
    if last is not first:
        found.append(f"{_rate(last)} on {_streams(last.streams)}")
    if not result.compared:
        equal = "no greedy prompt was asked twice, so no reply was compared"
    elif result.differences:
        equal = f"{result.differences} of {result.compared} repeated greedy replies differ from the first one"
    else:
        equal = f"all {result.compared} repeated greedy replies are equal to the first one"
    return f"{result.model}: the server gives {', '.join(found)}; {equal} (nothing else can be compared over HTTP)."


def _rate(row: Row) -> str:
    return f"{row.rate:.1f} tokens/s"


def _times(row: Row, base: Row) -> str:
    return f"{row.rate / base.rate:.2f} times that" if base.rate > 0 else f"{row.rate:.1f} tokens/s"


def _streams(count: int) -> str:
    return f"{count} stream{'' if count == 1 else 's'}"


def table(result: Result) -> list[str]:
    """Every cell, and what was measured where."""
    heads = ("mode", "streams", "first token p50", "p99", "tokens/s", "a stream", "rounds", "tokens/round")
    rows = [
        (
            row.mode,
            str(row.streams),
            _seconds(row.first_p50_s),
            _seconds(row.first_p99_s),
            f"{row.rate:.1f}",
            f"{row.stream_rate:.1f}" if row.stream_rate else "-",
            "-" if row.rounds is None else str(row.rounds),
            "-" if row.round_tokens is None else f"{row.round_tokens:.2f}",
            sources(row),
        )
        for row in result.rows
    ]
    return [*_aligned((*heads, "drafts kept/verified"), rows), "", *_facts(result)]


def sources(row: Row) -> str:
    """Drafts of a cell by source."""
    if row.rounds is None:
        return "-"
    return ", ".join(f"{name} {kept}/{drafted}" for name, (drafted, kept) in sorted(row.sources.items())) or "none"


def _facts(result: Result) -> Iterator[str]:
    first = result.rows[0]
    yield f"model    {result.model}, {result.backend} backend"
    yield f"machine  {result.machine}"
    yield f"prompts  {len(result.prompt_names)} from {result.prompt_source}, {result.prompts}"
    yield f"replies  {first.replies} of {result.reply} tokens in a cell; times are seconds, p99 is the nearest of them"
    for mode, record in dict.fromkeys((row.mode, row.record) for row in result.rows):
        yield f"record   {mode}: {record}"
    for note in result.notes:
        yield f"note     {note}"


def comparison_verdict(comparison: Comparison) -> str:
    """The one sentence of a comparison."""
    slower, count = comparison.slower, len(comparison.pairs)
    allowed = f"{100 * comparison.tolerance:g}%"
    if slower:
        named = ", ".join(f"{pair.after.name} ({pair.ratio:.2f})" for pair in slower)
        return f"SLOWER: {len(slower)} of {count} cells lost more than {allowed} of their speed: {named}."
    worst = min(comparison.pairs, key=lambda pair: pair.ratio)
    least = f"the least ratio is {worst.ratio:.2f}, {worst.after.name}"
    return f"No cell of {count} lost more than {allowed} of its speed; {least}."


def comparison_table(comparison: Comparison) -> list[str]:
    """Every cell before and after."""
    rows = [
        (
            pair.after.mode,
            str(pair.after.streams),
            f"{pair.before.rate:.1f}",
            f"{pair.after.rate:.1f}",
            f"{pair.ratio:.2f}",
            _seconds(pair.before.first_p50_s),
            _seconds(pair.after.first_p50_s),
            "-" if pair.first_ratio is None else f"{pair.first_ratio:.2f}",
            "SLOWER" if pair in comparison.slower else "",
        )
        for pair in comparison.pairs
    ]
    heads = ("mode", "streams", "tokens/s before", "after", "ratio", "first token before", "after", "ratio", "")
    return _aligned(heads, rows)


def _seconds(value: float) -> str:
    return f"{value:.3f}"


def _aligned(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns under their heads: words to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    last = len(heads) - 1
    return [
        "  ".join(
            cell.ljust(width) if at in (0, last) else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in (heads, *rows)
    ]
