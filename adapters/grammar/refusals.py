"""What is wrong with a grammar, in sentences of ours: a library's text never reaches a client, names of keywords do."""

from __future__ import annotations

import re

from tensorfold.adapters.grammar.limits import MOST_BYTES, MOST_STATES, TRIAL_CPU_S, TRIAL_MEMORY

NAMES = {"json_schema": "JSON schema", "regex": "regular expression", "choices": "list of choices", "lark": "grammar"}
_KEYWORD = re.compile(r'"([$A-Za-z]{1,40})"')
_PLACE = re.compile(r"(\d{1,9})\((\d{1,9})\)")

OUTGROWN = (
    f"The reply cannot go on: its form came to more than {MOST_STATES} states, or to parts that are too many to hold; "
    "give a simpler one."
)


def too_long(kind: str, size: int) -> str:
    """A text over the limit."""
    return f"The {NAMES[kind]} has {size} bytes; at most {MOST_BYTES} are taken."


def too_costly(kind: str) -> str:
    """A trial that was stopped."""
    return (
        f"The {NAMES[kind]} takes more than {TRIAL_CPU_S} seconds or {TRIAL_MEMORY >> 20} MiB to prepare; "
        "give a simpler one."
    )


def nothing_fits(kind: str) -> str:
    """A grammar that no reply satisfies."""
    return f"Nothing can satisfy the {NAMES[kind]}."


def malformed(kind: str, error: str = "") -> str:
    """Why a grammar did not compile, as far as `error`, the library's text, has it in names and numbers."""
    name = NAMES[kind]
    if kind == "json_schema":
        if error.startswith("Unimplemented keys") and (keys := _KEYWORD.findall(error)):
            listed = ", ".join(f"`{key}`" for key in sorted(set(keys))[:8])
            return f"The JSON schema uses {listed}, which no reply can be held to here."
        if error.startswith("oneOf"):
            return "The JSON schema uses `oneOf` with branches that one value may share; `anyOf` can be held."
        if "nsatisfiable" in error or "schema is false" in error:
            return nothing_fits(kind)
        if "Resource" in error or "registry" in error:
            return "The JSON schema refers to another schema; only `$ref` inside the same schema is taken."
    place = _PLACE.search(error[:200]) if kind == "lark" else None
    where = f" at line {place[1]}, column {place[2]}" if place is not None else ""
    return f"The {name} is malformed{where} or uses what no reply can be held to here."
