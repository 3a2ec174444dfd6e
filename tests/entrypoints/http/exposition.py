"""A strict reader of Prometheus' text format 0.0.4: what it takes, every scraper takes.

Stricter than scrapers are: one HELP and one TYPE before a family's samples, samples of a family together, no series
twice, no family without samples, counters that end in `_total`, and histograms whose buckets grow to their count.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_HELP = re.compile(rf"# HELP ({_NAME}) ((?:[^\\\n]|\\\\|\\n)+)")
_TYPE = re.compile(rf"# TYPE ({_NAME}) (gauge|counter|histogram)")
_SAMPLE = re.compile(rf"({_NAME})(\{{[^\n]*\}})? (-?(?:[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?|Inf))")
_PAIR = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"')
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "gauge": ("",), "counter": ("",)}

Series = tuple[str, tuple[tuple[str, str], ...]]


class MalformedError(AssertionError):
    """The text is not what scrapers read."""


@dataclass
class Parsed:
    """A family: its kind and its samples by (full name, sorted labels)."""

    kind: str
    help: str
    samples: dict[Series, float] = field(default_factory=dict)

    def value(self, **labels: str) -> float:
        """The value of the one sample that has these labels among its own."""
        wanted = set(labels.items())
        (found,) = (value for (_, pairs), value in self.samples.items() if wanted <= set(pairs))
        return found

    def ending(self, suffix: str) -> dict[tuple[tuple[str, str], ...], float]:
        """Samples whose name ends so, by labels."""
        return {pairs: value for (name, pairs), value in self.samples.items() if name.endswith(suffix)}


def parse(raw: bytes) -> dict[str, Parsed]:
    """Families by name. Raises MalformedError."""
    text = raw.decode("utf-8")
    _check(text.endswith("\n") and "\r" not in text and "\n\n" not in text, "lines", text[-80:])
    families: dict[str, Parsed] = {}
    lines = text.split("\n")[:-1]
    at = 0
    while at < len(lines):
        at = _family(lines, at, families)
    for name, family in families.items():
        _check_family(name, family)
    return families


def _family(lines: list[str], at: int, families: dict[str, Parsed]) -> int:
    told, kind = _HELP.fullmatch(lines[at]), _TYPE.fullmatch(lines[at + 1]) if at + 1 < len(lines) else None
    _check(told is not None and kind is not None, "a family without its head", lines[at])
    assert told is not None and kind is not None
    name = told.group(1)
    _check(kind.group(1) == name and name not in families, "a family twice or out of step", name)
    family = families[name] = Parsed(kind.group(2), told.group(2))
    at += 2
    while at < len(lines) and not lines[at].startswith("#"):
        sample = _SAMPLE.fullmatch(lines[at])
        _check(sample is not None, "a sample", lines[at])
        assert sample is not None
        _check(any(sample.group(1) == name + end for end in _SUFFIXES[family.kind]), "a foreign sample", lines[at])
        series = (sample.group(1), _labels(sample.group(2)))
        _check(series not in family.samples, "a series twice", lines[at])
        family.samples[series] = float(sample.group(3))
        at += 1
    return at


def _labels(text: str | None) -> tuple[tuple[str, str], ...]:
    if text is None:
        return ()
    pairs, inside, at = [], text[1:-1], 0
    while at < len(inside):
        pair = _PAIR.match(inside, at)
        _check(pair is not None, "a label", inside)
        assert pair is not None
        pairs.append((pair.group(1), re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), pair.group(2))))
        at = pair.end()
        _check(at == len(inside) or inside[at] == ",", "labels", inside)
        at += 1
    _check(len({name for name, _ in pairs}) == len(pairs) > 0, "label names", text)
    return tuple(sorted(pairs))


def _check_family(name: str, family: Parsed) -> None:
    _check(bool(family.samples), "a family without samples", name)
    _check(all(math.isfinite(value) for value in family.samples.values()), "a value", name)
    if family.kind == "counter":
        _check(name.endswith("_total") and min(family.samples.values()) >= 0, "a counter", name)
    else:
        _check(not name.endswith(("_total", "_bucket", "_sum", "_count")), "a name", name)
    if family.kind == "histogram":
        _check_histogram(name, family)


def _check_histogram(name: str, family: Parsed) -> None:
    counts, sums = family.ending("_count"), family.ending("_sum")
    _check(counts.keys() == sums.keys(), "a histogram's series", name)
    buckets: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    for pairs, value in family.ending("_bucket").items():
        edge = dict(pairs)["le"]
        rest = tuple(pair for pair in pairs if pair[0] != "le")
        buckets.setdefault(rest, []).append((math.inf if edge == "+Inf" else float(edge), value))
    _check(buckets.keys() == counts.keys(), "a histogram's buckets", name)
    for rest, found in buckets.items():
        edges, values = [edge for edge, _ in found], [value for _, value in found]
        _check(edges == sorted(set(edges)) and edges[-1] == math.inf, "edges", name)
        _check(values == sorted(values) and values[-1] == counts[rest], "bucket counts", name)


def _check(holds: bool, what: str, where: str) -> None:
    if not holds:
        raise MalformedError(f"{what}: {where!r}")
