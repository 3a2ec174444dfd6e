"""Two results side by side: the ratio of every cell, what became slower, and the paragraph for a changelog.

Only results that measured the same thing are compared: the same model and weights, class of machine, prompts, lengths,
modes and states of the record. Anything else is refused with what differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tensorfold.application.benchmark_results import Result, Row
from tensorfold.application.ports.checkpoints import RefusedError

LEAST_RATE = 1e-3
"""Tokens per second below which a cell shows no speed to compare."""
_SHORT_DIGEST = 19
_SECTION = "## "


@dataclass(frozen=True, slots=True)
class Pair:
    """One cell before and after."""

    before: Row
    after: Row

    @property
    def ratio(self) -> float:
        """Tokens per second after by before: under 1 is slower."""
        return self.after.rate / self.before.rate

    @property
    def first_ratio(self) -> float | None:
        """Median time to the first token after by before, over 1 is later; None where there is none to divide by."""
        return self.after.first_p50_s / self.before.first_p50_s if self.before.first_p50_s > 0 else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two results of the same measurement; `tolerance` is the part of a cell's speed that may be lost."""

    before: Result
    after: Result
    pairs: tuple[Pair, ...]
    tolerance: float

    @property
    def slower(self) -> tuple[Pair, ...]:
        """Cells that lost more than the tolerance, the slowest first."""
        return tuple(sorted((p for p in self.pairs if p.ratio < 1 - self.tolerance), key=lambda pair: pair.ratio))


def compare(before: Result, after: Result, names: tuple[str, str], tolerance: float) -> Comparison:
    """The comparison of two results; `names` are their files in refusals. Raises RefusedError when they cannot be."""
    for what, one, other in _same(before, after):
        if one != other:
            raise RefusedError(
                f"{names[0]} and {names[1]} cannot be compared: {what}, {_shown(one)} and {_shown(other)}."
            )
    for name, result in zip(names, (before, after), strict=True):
        if result.through == "scheduler" and result.differences:
            raise RefusedError(
                f"{name} cannot be compared: {result.differences} of its replies were not the serial ones."
            )
        if (still := next((row for row in result.rows if row.rate < LEAST_RATE), None)) is not None:
            raise RefusedError(f"{name} cannot be compared: {still.name} has {still.rate:g} tokens per second.")
    after_rows = {row.key: row for row in after.rows}
    pairs = tuple(Pair(row, after_rows[row.key]) for row in before.rows)
    return Comparison(before, after, pairs, tolerance)


def _same(before: Result, after: Result) -> Iterator[tuple[str, object, object]]:
    """What two results must share, the most telling first."""
    yield "one was measured in process, the other over HTTP", before.through, after.through
    yield "the models are not the same", before.model, after.model
    yield "the weights are not the same", before.weights, after.weights
    yield "the backends are not the same", before.backend, after.backend
    yield "the machines are not of one class", before.machine, after.machine
    yield "the prompts are not the same", before.prompts, after.prompts
    yield "the lengths of the replies are not the same (--tokens)", before.reply, after.reply
    yield "the runs are not the same (--runs)", before.runs, after.runs
    states = {row.mode: row.record for row in after.rows}
    for row in before.rows:
        if row.mode in states:
            yield f"the record's states of {row.mode!r} are not the same", row.record, states[row.mode]
    yield "the cells are not the same (--streams)", _cells(before), _cells(after)


def _cells(result: Result) -> list[tuple[str, str, int]]:
    return sorted(row.key for row in result.rows)


def _shown(value: object) -> str:
    """A value as a refusal shows it; of several cells, how many."""
    if isinstance(value, list):
        return f"{len(value)} cells"
    text = str(value)
    return repr(text if len(text) <= 80 else f"{text[:80]}…")


def paragraph(comparison: Comparison) -> list[str]:
    """The lines of a release's measurements, in Markdown."""
    before, after = comparison.before, comparison.after
    old, new = _versions(before, after)
    first = after.rows[0]
    records = dict.fromkeys(f"{row.mode}: {row.record}" for row in after.rows)
    lines = [
        "### Measurements",
        "",
        f"`tensorfold bench` with {_cell(after.model)} on {_cell(after.machine)}, {_cell(after.backend)} backend: "
        f"{first.replies} replies of {after.reply} tokens in a cell, prompts {after.prompts[:_SHORT_DIGEST]}. Record "
        f"with {_cell('; '.join(records))}. Before: {_cell(before.version)}, {_cell(before.date)}; after: "
        f"{_cell(after.version)}, {_cell(after.date)}.",
        "",
        f"| Mode | Streams | Tokens/s, {old} | Tokens/s, {new} | Ratio | First token p50, ms |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {_cell(pair.after.mode)} | {pair.after.streams} | {pair.before.rate:.1f} | {pair.after.rate:.1f} "
        f"| {pair.ratio:.2f} | {1e3 * pair.before.first_p50_s:.0f} to {1e3 * pair.after.first_p50_s:.0f} |"
        for pair in comparison.pairs
    ]
    if comparison.slower:
        named = ", ".join(f"{_cell(pair.after.name)} ({pair.ratio:.2f})" for pair in comparison.slower)
        lines += ["", f"Slower by more than {100 * comparison.tolerance:g}%: {named}."]
    return lines


def _versions(before: Result, after: Result) -> tuple[str, str]:
    """Heads of the two columns."""
    if before.version == after.version:
        return "before", "after"
    return _cell(before.version), _cell(after.version)


def _cell(text: str) -> str:
    """Text that cannot end a table's cell or begin a tag."""
    return text.replace("|", "/").replace("<", "(").replace(">", ")").replace("`", "'")


def placed(changelog: str | None, lines: list[str], name: str) -> str:
    """A changelog with the paragraph at the end of its newest section; the paragraph alone where there is none.

    Raises RefusedError when the newest section holds measurements already.
    """
    if changelog is None or not changelog.strip():
        return "\n".join(lines) + "\n"
    text = changelog.splitlines()
    heads = [at for at, line in enumerate(text) if line.startswith(_SECTION)]
    begin = heads[0] if heads else 0
    end = heads[1] if len(heads) > 1 else len(text)
    if lines[0] in text[begin:end]:
        raise RefusedError(f"{name} has {lines[0]!r} in its newest section already; remove it, or name another file.")
    while end > 0 and not text[end - 1].strip():
        end -= 1
    rest = text[end:]
    while rest and not rest[0].strip():
        rest = rest[1:]
    return "\n".join([*text[:end], "", *lines, *(["", *rest] if rest else [])]) + "\n"
