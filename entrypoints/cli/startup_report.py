"""The last lines of the startup report: what a request that says nothing gets, who may ask, where it is served."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass

from tensorfold.application.settings import SamplingDefaults
from tensorfold.entrypoints.cli.opening import sampling_words


@dataclass(frozen=True, slots=True)
class Ready:
    """A server that takes requests. `names` are the served one and its aliases.

    `effort` is the template's when a request names none; None: the template's own. `keys` counts API keys, None where
    none is asked for. `seconds` is how long the start took.
    """

    names: tuple[str, ...]
    url: str
    defaults: SamplingDefaults
    thinking: bool
    effort: str | None
    drafts: bool
    context: int
    parallel: int
    keys: int | None
    metrics_open: bool
    origins: tuple[str, ...]
    seconds: float


def ready_lines(ready: Ready) -> list[str]:
    """The lines, the one with the address last."""
    name, *aliases = ready.names
    lines = [_replies(ready), _keys(ready)]
    lines += [f"web pages of {', '.join(ready.origins)} may use this server"] if ready.origins else []
    lines += [f"also served as {', '.join(aliases)}"] if aliases else []
    sampling = f"{sampling_words(ready.defaults)} unless a request says otherwise"
    engine = f"drafts {'on' if ready.drafts else 'off'}, context {ready.context}, {ready.parallel} at once"
    return [*lines, f"serving {name} on {ready.url} ({sampling}; {engine}; ready in {ready.seconds:.1f} s)"]


def curl(ready: Ready) -> str:
    """A request that a shell takes as it is. No key is shown: these lines are kept in logs."""
    message = {"role": "user", "content": "What is the capital of France?"}
    body = json.dumps({"model": ready.names[0], "messages": [message]}, ensure_ascii=False)
    key = "" if ready.keys is None else " -H 'Authorization: Bearer KEY'"
    return f"curl {ready.url}/chat/completions -H 'Content-Type: application/json'{key} -d {shlex.quote(body)}"


def _replies(ready: Ready) -> str:
    effort = f"effort {ready.effort}" if ready.effort is not None else "the template's own effort"
    thinking = f"thinking {'on' if ready.thinking else 'off'}"
    limit = ready.defaults.max_tokens
    most = f"up to {limit} tokens" if limit < ready.context else "as long as the context leaves room"
    return f"replies: {most}, {thinking}, {effort}, unless a request says otherwise"


def _keys(ready: Ready) -> str:
    if ready.keys is None:
        return "keys: none, the server is open"
    metrics = ", metrics need none" if ready.metrics_open else ""
    return f"keys: {ready.keys} API key{'s' if ready.keys != 1 else ''}{metrics}"
