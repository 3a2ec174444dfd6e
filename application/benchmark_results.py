"""What a benchmark measured, as values, and the object that a results file holds.

A results file may come from anywhere: it is read into these values or refused, and nothing else of it is looked at.
Every figure is finite; every text that could be shown is short and printable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tensorfold.application.ports.checkpoints import RefusedError

FORM = 1
"""The version of the file's form; another one is refused."""
MOST_ROWS = 512
MOST_SOURCES = 64
MOST_NOTES = 64
MOST_WORD = 256
MOST_NOTE = 1024
MOST_FIGURE = 1e15


@dataclass(frozen=True, slots=True)
class Row:
    """One cell of the matrix. Times are seconds, rates tokens per second.

    `record` names the record's state. `rate` is every token of the cell by its whole time, prompts included;
    `stream_rate` the median over the replies of the tokens after the first round by the time they took, 0 where every
    reply landed in one. `rounds` and `launches` are the engine's, `round_tokens` the tokens of a stream by the rounds
    it took part in; all three are None where they are not known. `sources` holds drafted and kept tokens by source.
    """

    mode: str
    record: str
    streams: int
    replies: int
    tokens: int
    seconds: float
    first_p50_s: float
    first_p99_s: float
    rate: float
    stream_rate: float
    rounds: int | None = None
    launches: int | None = None
    round_tokens: float | None = None
    sources: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The cell in words."""
        return f"{self.mode}, {self.streams} stream{'' if self.streams == 1 else 's'}"

    @property
    def key(self) -> tuple[str, str, int]:
        """What two results must share to compare this row."""
        return self.mode, self.record, self.streams


@dataclass(frozen=True, slots=True)
class Result:
    """A whole benchmark. `weights` is a digest, empty where only a server knows it; `through` is `scheduler` or `http`.

    `compared` replies were held against another reply to the same prompt, and `differences` of them were not equal.
    `reply` is how many tokens each reply was asked to have.
    """

    version: str
    date: str
    model: str
    weights: str
    backend: str
    through: str
    machine: str
    prompts: str
    prompt_names: tuple[str, ...]
    prompt_source: str
    reply: int
    runs: int
    compared: int
    differences: int
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def row(self, mode: str, streams: int) -> Row | None:
        """The cell of that mode and number of streams."""
        return next((row for row in self.rows if (row.mode, row.streams) == (mode, streams)), None)

    @property
    def modes(self) -> tuple[str, ...]:
        """Modes in the order they were measured."""
        return tuple(dict.fromkeys(row.mode for row in self.rows))


def result_object(result: Result) -> dict[str, Any]:
    """What a results file holds."""
    return {
        "tensorfold_bench": FORM,
        "version": result.version,
        "date": result.date,
        "model": {"name": result.model, "weights": result.weights, "backend": result.backend},
        "through": result.through,
        "machine": result.machine,
        "prompts": {
            "digest": result.prompts,
            "names": list(result.prompt_names),
            "source": result.prompt_source,
        },
        "tokens_a_reply": result.reply,
        "runs": result.runs,
        "compared": result.compared,
        "differences": result.differences,
        "rows": [_row_object(row) for row in result.rows],
        "notes": list(result.notes),
    }


def _row_object(row: Row) -> dict[str, Any]:
    return {
        "mode": row.mode,
        "record": row.record,
        "streams": row.streams,
        "replies": row.replies,
        "tokens": row.tokens,
        "seconds": round(row.seconds, 4),
        "first_token_p50_s": round(row.first_p50_s, 5),
        "first_token_p99_s": round(row.first_p99_s, 5),
        "tokens_per_second": round(row.rate, 3),
        "tokens_per_second_a_stream": round(row.stream_rate, 3),
        "rounds": row.rounds,
        "launches": row.launches,
        "tokens_a_round": None if row.round_tokens is None else round(row.round_tokens, 3),
        "sources": {name: {"drafted": d, "kept": k} for name, (d, k) in sorted(row.sources.items())},
    }


def read_result(stated: Mapping[str, Any], name: str) -> Result:
    """The result that a file holds; `name` is the file in refusals. Raises RefusedError."""
    fields = _Fields(stated, name)
    if (form := stated.get("tensorfold_bench")) != FORM or isinstance(form, bool):
        raise RefusedError(f"{name} is no results file of form {FORM}; `tensorfold bench --json FILE` writes one.")
    model, prompts = fields.part("model"), fields.part("prompts")
    result = Result(
        version=fields.word("version"),
        date=fields.word("date"),
        model=model.word("name"),
        weights=model.word("weights", empty=True),
        backend=model.word("backend"),
        through=fields.word("through"),
        machine=fields.word("machine"),
        prompts=prompts.word("digest"),
        prompt_names=tuple(prompts.words("names", MOST_ROWS, MOST_WORD)),
        prompt_source=prompts.word("source"),
        reply=fields.count("tokens_a_reply"),
        runs=fields.count("runs"),
        compared=fields.count("compared"),
        differences=fields.count("differences"),
        rows=tuple(_read_row(row) for row in fields.parts("rows", MOST_ROWS)),
        notes=tuple(fields.words("notes", MOST_NOTES, MOST_NOTE)),
    )
    keys = [row.key for row in result.rows]
    if not keys or len(set(keys)) != len(keys):
        raise RefusedError(f"{name} has {'no row' if not keys else 'a row twice'}; each cell of a matrix stands once.")
    return result


def _read_row(row: _Fields) -> Row:
    sources = row.part("sources").every(MOST_SOURCES)
    return Row(
        mode=row.word("mode"),
        record=row.word("record"),
        streams=row.count("streams"),
        replies=row.count("replies"),
        tokens=row.count("tokens"),
        seconds=row.figure("seconds"),
        first_p50_s=row.figure("first_token_p50_s"),
        first_p99_s=row.figure("first_token_p99_s"),
        rate=row.figure("tokens_per_second"),
        stream_rate=row.figure("tokens_per_second_a_stream"),
        rounds=row.count_or_none("rounds"),
        launches=row.count_or_none("launches"),
        round_tokens=row.figure_or_none("tokens_a_round"),
        sources={word: (source.count("drafted"), source.count("kept")) for word, source in sources.items()},
    )


class _Fields:
    """An object of a file whose keys are read by kind; what is missing or of another kind is refused by its path."""

    def __init__(self, stated: Any, name: str, path: str = "") -> None:
        self._name = name
        self._path = path
        if not isinstance(stated, Mapping):
            raise self._refused(path or "the file", "an object")
        self._stated = stated

    def _at(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def _refused(self, place: str, wanted: str) -> RefusedError:
        return RefusedError(f"{self._name} is no results file: {place} is not {wanted}.")

    def word(self, key: str, *, empty: bool = False) -> str:
        """A short printable text."""
        return self._word(self._stated.get(key), self._at(key), MOST_WORD, empty=empty)

    def _word(self, value: Any, place: str, most: int, *, empty: bool = False) -> str:
        if not isinstance(value, str) or len(value) > most or not value.isprintable() or not (value or empty):
            raise self._refused(place, f"a printable text of 1 to {most} characters")
        return value

    def words(self, key: str, most: int, longest: int) -> list[str]:
        """A list of short printable texts."""
        return [
            self._word(value, f"{self._at(key)}[{index}]", longest) for index, value in enumerate(self._list(key, most))
        ]

    def _list(self, key: str, most: int) -> Sequence[Any]:
        value = self._stated.get(key)
        if not isinstance(value, list) or len(value) > most:
            raise self._refused(self._at(key), f"a list of at most {most}")
        return value

    def part(self, key: str) -> _Fields:
        """An object inside."""
        return _Fields(self._stated.get(key), self._name, self._at(key))

    def parts(self, key: str, most: int) -> list[_Fields]:
        """A list of objects."""
        found = self._list(key, most)
        return [_Fields(value, self._name, f"{self._at(key)}[{index}]") for index, value in enumerate(found)]

    def every(self, most: int) -> dict[str, _Fields]:
        """Every key of an object of objects."""
        if len(self._stated) > most:
            raise self._refused(self._path, f"an object of at most {most}")
        names = {self._word(key, f"a key of {self._path}", MOST_WORD): key for key in self._stated}
        return {word: _Fields(self._stated[key], self._name, self._at(word)) for word, key in names.items()}

    def figure(self, key: str) -> float:
        """A finite number that is not negative; NaN is not in any range."""
        value = self._stated.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_FIGURE:
            return float(value)
        raise self._refused(self._at(key), f"a number from 0 to {MOST_FIGURE:g}")

    def figure_or_none(self, key: str) -> float | None:
        """The same, or null."""
        return None if self._stated.get(key) is None else self.figure(key)

    def count(self, key: str) -> int:
        """A whole number that is not negative."""
        value = self._stated.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= int(MOST_FIGURE):
            raise self._refused(self._at(key), f"a whole number from 0 to {MOST_FIGURE:g}")
        return value

    def count_or_none(self, key: str) -> int | None:
        """The same, or null."""
        return None if self._stated.get(key) is None else self.count(key)
