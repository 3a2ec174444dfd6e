"""Typed readers of config.json: every field is checked for kind and range before any arithmetic uses it.

A config is hostile: it may hold booleans for numbers, infinities, absurd sizes or nested nonsense. What cannot be used
is a `ConfigError` with one sentence that names the field, its value and its limit. `null` counts as absent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_SHOWN = 40
_LISTED = 8


class ConfigError(Exception):
    """A checkpoint that is refused for what it states; `message` is one sentence for the user."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def shown(value: object) -> str:
    """A value in a sentence: one line of at most 40 characters, whatever it is."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, Mapping):
        return f"an object of {len(value)} fields"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"a list of {len(value)}"
    return clipped(repr(value[: _SHOWN + 1]) if isinstance(value, str) else repr(value))


def clipped(text: str, most: int = _SHOWN) -> str:
    """A stranger's text in a sentence: printable and of at most `most` characters."""
    text = "".join(c if c.isprintable() else "?" for c in text[: most + 1])
    return text if len(text) <= most else text[: most - 3] + "..."


def listed(names: Sequence[str]) -> str:
    """A stranger's names in a sentence: the first eight, and how many more there are."""
    rest = len(names) - _LISTED
    return ", ".join(clipped(name, 120) for name in names[:_LISTED]) + (f" and {rest:,} more" if rest > 0 else "")


def either(values: Iterable[object]) -> str:
    """What may stand in a place, as a choice in a sentence."""
    *before, last = map(str, values)
    return f"{', '.join(before)} or {last}" if before else last


class Fields:
    """Reader of one JSON object; `place` names it in sentences: `config.json` or `config.json's rope_scaling`."""

    def __init__(self, values: Mapping[str, Any], place: str = "config.json") -> None:
        self.values = values
        self.place = place

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.values.get(name) is not None

    def refusal(self, name: str, wanted: str) -> ConfigError:
        """The error for a field whose value is not `wanted`."""
        if not self.has(name):
            return ConfigError(f"{self.place} lacks {name}, which must be {wanted}.")
        return ConfigError(f"{self.place} gives {name} as {shown(self.values[name])}; it must be {wanted}.")

    def integer(self, name: str, least: int, most: int, default: int | None = None) -> int:
        """An integer from `least` to `most`; required when there is no default."""
        value = self.values.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.refusal(name, f"an integer from {least:,} to {most:,}")
        return value

    def number(self, name: str, least: float, most: float, default: float | None = None) -> float:
        """A finite number from `least` to `most`; required when there is no default."""
        value = self.values.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise self.refusal(name, f"a number from {least:g} to {most:g}")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refusal(name, "true or false")
        return value

    def word(self, name: str, allowed: Sequence[str], default: str | None = None) -> str:
        """One of the allowed words; required when there is no default."""
        value = self.values.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or value not in allowed:
            raise self.refusal(name, f"one of {', '.join(allowed)}")
        return value

    def words(self, name: str, count: int, allowed: Sequence[str]) -> tuple[str, ...] | None:
        """A list of exactly `count` allowed words, or None when absent."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != count:
            raise self.refusal(name, f"a list of {count:,}, one for each layer")
        for index, word in enumerate(value):
            if not isinstance(word, str) or word not in allowed:
                raise ConfigError(
                    f"{self.place} gives {name}[{index}] as {shown(word)}; it must be one of {', '.join(allowed)}."
                )
        return tuple(value)

    def ids(self, name: str, vocabulary: int, most: int = 64) -> frozenset[int]:
        """Token ids: one, a list of at most `most`, or none when absent."""
        value = self.values.get(name)
        listed = value if isinstance(value, list) else [] if value is None else [value]
        if len(listed) > most:
            raise self.refusal(name, f"a list of at most {most} token ids")
        for token in listed:
            if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocabulary:
                raise ConfigError(
                    f"{self.place} gives {name} with {shown(token)}; a token id is an integer from 0 to "
                    f"{vocabulary - 1:,} (vocab_size less one)."
                )
        return frozenset(listed)

    def only(self, name: str, value: object) -> None:
        """Refuse a field that is there with any other value than the one a family computes with."""
        found = self.values.get(name)
        alike = type(found) is type(value) or (isinstance(found, float) and isinstance(value, int))
        if found is not None and not (alike and found == value):
            raise self.refusal(name, f"{shown(value)} in this family")

    def spelled(self, *names: str) -> str:
        """The first of several spellings of a field that is there; the first of all when none is."""
        return next((name for name in names if self.has(name)), names[0])

    def integers(self, name: str, least: int, most: int, count: int) -> tuple[int, ...]:
        """A list of at most `count` integers from `least` to `most`; empty when absent."""
        value = self.values.get(name)
        wanted = f"a list of at most {count:,} integers from {least:,} to {most:,}"
        if value is None:
            return ()
        if not isinstance(value, list) or len(value) > count:
            raise self.refusal(name, wanted)
        for index, entry in enumerate(value):
            if isinstance(entry, bool) or not isinstance(entry, int) or not least <= entry <= most:
                raise ConfigError(f"{self.place} gives {name}[{index}] as {shown(entry)}; it must be {wanted}.")
        return tuple(value)

    def group(self, name: str) -> Fields | None:
        """A nested object, or None when absent."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.refusal(name, "an object")
        return Fields(value, f"{self.place}'s {name}")
