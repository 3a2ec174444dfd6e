"""Readers of single request fields, as annotated types for the request models.

Booleans must be JSON booleans; numbers may come as numeric strings; null is the same as absent. Every refusal is a
sentence of ours that follows the field's path.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator
from pydantic_core import PydanticCustomError

REFUSED: Final = "refused"
UNSUPPORTED_VALUE: Final = "unsupported"
_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")


def refuse(sentence: str, **context: Any) -> PydanticCustomError:
    """A refusal; `sentence` follows the field's path. `at` in the context extends the path inside the field."""
    return PydanticCustomError(REFUSED, "{sentence}", {"sentence": sentence, **context})


def not_supported(sentence: str, **context: Any) -> PydanticCustomError:
    """A refusal of a value that means something, but nothing this server can do exactly."""
    return PydanticCustomError(UNSUPPORTED_VALUE, "{sentence}", {"sentence": sentence, **context})


def flag(value: Any) -> bool | None:
    """A JSON boolean or null."""
    if value is None or isinstance(value, bool):
        return value
    raise refuse("must be true, false or null")


def integer(value: Any) -> int | None:
    """An integer, also as a string of digits or a float without fraction, or null."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        return int(value)
    raise refuse("must be an integer or null")


def number(value: Any) -> float | None:
    """A finite number, also as a numeric string, or null."""
    if value is None:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _finite(value)
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return _finite(float(value))
    raise refuse("must be a finite number or null")


def _finite(value: float) -> float:
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise refuse("must be a finite number or null")
    return result


def text(value: Any) -> str | None:
    """A string or null."""
    if value is None or isinstance(value, str):
        return value
    raise refuse("must be a string or null")


def mapping(value: Any) -> dict[str, Any] | None:
    """A JSON object or null."""
    if value is None or isinstance(value, dict):
        return value
    raise refuse("must be an object or null")


def sequence(value: Any) -> list[Any] | None:
    """A JSON list or null."""
    if value is None or isinstance(value, list):
        return value
    raise refuse("must be a list or null")


def within(low: float | None, high: float | None, rule: str, *, open_low: bool = False) -> AfterValidator:
    """Refuse numbers outside [low, high]; `rule` says it in words, after "it must be"."""

    def check(value: float | None) -> float | None:
        if value is None:
            return None
        below = low is not None and (value <= low if open_low else value < low)
        if below or (high is not None and value > high):
            raise refuse(f"is {value:g}; it must be {rule}" if abs(value) < 1e9 else f"must be {rule}")
        return value

    return AfterValidator(check)


def only(*neutral: Any, what: str) -> AfterValidator:
    """Accept null and values that change nothing; `what` names what this server does not offer."""

    def check(value: Any) -> Any:
        if value is None or any(type(value) is type(same) and value == same for same in neutral):
            return value
        raise not_supported(f"asks for {what}, which this server does not offer")

    return AfterValidator(check)


def read(reader: Callable[[Any], Any]) -> BeforeValidator:
    """A reader that sees the JSON value as it came."""
    return BeforeValidator(reader)


Flag = Annotated[bool | None, BeforeValidator(flag)]
Integer = Annotated[int | None, BeforeValidator(integer)]
Number = Annotated[float | None, BeforeValidator(number)]
Text = Annotated[str | None, BeforeValidator(text)]
Mapping = Annotated[dict[str, Any] | None, BeforeValidator(mapping)]
Sequence = Annotated[list[Any] | None, BeforeValidator(sequence)]
