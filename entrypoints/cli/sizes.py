"""Words for a model's sizes: layers by kind, parameters, bytes of state; shared by `info` and `models`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorfold.domain.families.facts import Facts, State

_MIB = 1 << 20


def size_lines(facts: Facts) -> Iterator[tuple[str, str]]:
    """Lines of a model's layers, parameters and state."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in facts.kinds)
    yield "layers", f"{facts.layers}: {kinds}"
    table = f" and {billions(facts.table)} of n-gram table" if facts.table else ""
    head = f", {billions(facts.head)} of draft head" if facts.head else ""
    yield "parameters", f"{billions(facts.parameters)}{table}{head}"
    yield "state", state_words(facts.state) + (f"; draft head {state_words(facts.head_state)}" if facts.head else "")


def state_words(state: State) -> str:
    """What a stream holds."""
    parts = [f"{state.token:,} bytes a token"] if state.token else []
    if state.windowed:
        parts.append(f"{state.windowed:,} bytes for each of the last {state.window:,} tokens")
    if state.fixed:
        parts.append(f"{_fixed(state.fixed)} a stream")
    return " and ".join(parts) or "none"


def billions(count: int) -> str:
    """Parameters, as they are commonly written."""
    return f"{count / 1e9:.2f} B" if count >= 10_000_000 else f"{count:,}"


def size_object(facts: Facts) -> dict[str, Any]:
    """The sizes of a model as JSON has them."""
    return {
        "layers": facts.layers,
        "kinds": dict(facts.kinds),
        "parameters": facts.parameters,
        "table_parameters": facts.table,
        "head_parameters": facts.head,
        "state": state_object(facts.state),
        "head_state": state_object(facts.head_state),
    }


def state_object(state: State) -> dict[str, int]:
    """Bytes of state as JSON has them."""
    return {
        "token_bytes": state.token,
        "windowed_token_bytes": state.windowed,
        "window": state.window,
        "fixed_bytes": state.fixed,
    }


def _fixed(count: int) -> str:
    return f"{count / _MIB:.1f} MiB" if count >= _MIB else f"{count:,} bytes"
