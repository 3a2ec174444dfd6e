"""Families of metrics as Prometheus reads them: text format 0.0.4. Knows no figure of ours.

A family without samples is not written, so that what does not apply is absent and never a zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["gauge", "counter", "histogram"]
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: the family's name, continued by `suffix`, its labels and its value."""

    value: float
    labels: Labels
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with its samples. The name of a counter ends in `_total`."""

    name: str
    kind: Kind
    help: str
    samples: tuple[Sample, ...]


def single(name: str, kind: Kind, text: str, value: float, labels: Labels | None = None) -> Family:
    """A family of one sample."""
    return Family(name, kind, text, (Sample(value, labels or {}),))


def by_label(
    name: str, kind: Kind, text: str, label: str, values: Mapping[str, float], labels: Labels | None = None
) -> Family:
    """A family of one sample for each value of `label`, beside fixed labels."""
    fixed = labels or {}
    return Family(name, kind, text, tuple(Sample(value, {**fixed, label: key}) for key, value in values.items()))


def states(name: str, text: str, known: Iterable[str], now: str) -> Family:
    """A gauge that is 1 for the state that holds and 0 for every other one known."""
    return by_label(name, "gauge", text, "state", {state: float(state == now) for state in (*known,)})


def histogram(
    name: str, text: str, edges: tuple[float, ...], counts: tuple[int, ...], total: float, labels: Labels | None = None
) -> Family:
    """A histogram; `counts` has one more entry than `edges`, for what lies past them."""
    fixed = labels or {}
    sums = list(accumulate(counts))
    bounds = [*(_number(edge) for edge in edges), "+Inf"]
    buckets = [Sample(n, {**fixed, "le": bound}, "_bucket") for bound, n in zip(bounds, sums, strict=True)]
    return Family(name, "histogram", text, (*buckets, Sample(total, fixed, "_sum"), Sample(sums[-1], fixed, "_count")))


def text_of(families: Iterable[Family]) -> bytes:
    """The families as one text."""
    lines: list[str] = []
    for family in families:
        if family.samples:
            lines.append(f"# HELP {family.name} {_escaped(family.help)}")
            lines.append(f"# TYPE {family.name} {family.kind}")
            lines += [f"{family.name}{s.suffix}{_labels(s.labels)} {_number(s.value)}" for s in family.samples]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{_escaped(value, quotes=True)}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}"


def _escaped(text: str, quotes: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    if isinstance(value, int) or value.is_integer():
        return str(int(value))
    return repr(value)
