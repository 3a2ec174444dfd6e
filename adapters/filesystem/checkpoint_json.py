"""JSON objects of a hostile file: size, depth and value count are bounded before anything is parsed.

Refuses duplicate keys, NaN and infinities, numbers no machine type holds, and anything but an object at the top.
Knows nothing of checkpoints; the caller names the file.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from tensorfold.adapters.filesystem.checkpoint_limits import CheckpointLimits, quoted, shown
from tensorfold.application.ports.checkpoints import RefusedError

NUMBER_CHARACTERS = 32
_MARKS = re.compile(rb'["\[\]{}]')


class JsonFaultError(ValueError):
    """What is wrong with a value; the text is ours and completes "the file ..."."""


def strict_decoder() -> json.JSONDecoder:
    """A decoder that raises JsonFaultError on duplicate keys and on numbers that are not finite or not plausible."""
    return json.JSONDecoder(object_pairs_hook=_distinct, parse_constant=_constant, parse_float=_float, parse_int=_int)


def parse_object(data: bytes, label: str, limits: CheckpointLimits) -> dict[str, Any]:
    """The object that `data` holds. Raises RefusedError with a sentence that begins with `label`."""
    try:
        _require_shallow(data, limits)
        text = data.decode("utf-8-sig")
        value = strict_decoder().decode(text)
    except JsonFaultError as fault:
        raise RefusedError(f"{label} {fault}.") from None
    except UnicodeDecodeError as error:
        raise RefusedError(f"{label} is not UTF-8 text (byte {error.start}).") from None
    except json.JSONDecodeError as error:
        raise RefusedError(f"{label} is not valid JSON (line {error.lineno}, column {error.colno}).") from None
    except (RecursionError, ValueError):
        raise RefusedError(f"{label} is not valid JSON.") from None
    if not isinstance(value, dict):
        raise RefusedError(f"{label} holds a JSON {_type_name(value)} where an object is expected.")
    return value


def _require_shallow(data: bytes, limits: CheckpointLimits) -> None:
    values = data.count(b",") + data.count(b"[") + data.count(b"{")
    if values > limits.json_values:
        raise JsonFaultError(f"holds about {values} values, more than the {limits.json_values} that are read")
    depth = position = 0
    while (mark := _MARKS.search(data, position)) is not None:
        position = mark.end()
        if mark.group() == b'"':
            position = _string_end(data, position)
        elif mark.group() in (b"[", b"{"):
            depth += 1
            if depth > limits.json_depth:
                raise JsonFaultError(f"is nested deeper than the {limits.json_depth} levels that are read")
        else:
            depth -= 1


def _string_end(data: bytes, position: int) -> int:
    """The offset behind the string that begins at `position`, or the end of the data when nothing closes it."""
    while (quote := data.find(b'"', position)) >= 0:
        backslashes = quote - len(data[position:quote].rstrip(b"\\")) - position
        if backslashes % 2 == 0:
            return quote + 1
        position = quote + 1
    return len(data)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise JsonFaultError(f"says {quoted(key)} twice in one object")
            seen.add(key)
    return made


def _constant(word: str) -> Any:
    raise JsonFaultError(f"holds {word}, which is not JSON")


def _float(digits: str) -> float:
    if len(digits) > NUMBER_CHARACTERS or not math.isfinite(value := float(digits)):
        raise JsonFaultError(f"holds the number {shown(digits)}, which no float holds")
    return value


def _int(digits: str) -> int:
    if len(digits) > NUMBER_CHARACTERS:
        raise JsonFaultError(f"holds a whole number of {len(digits)} digits, more than {NUMBER_CHARACTERS}")
    return int(digits)


def _type_name(value: object) -> str:
    if isinstance(value, list):
        return "array"
    if isinstance(value, str):
        return "string"
    return "value"
