"""Why a rendering ended without a text, and the sentence that says so.

The words are ours; a template adds its own only through `raise_exception`, kept to one short line.
"""

from __future__ import annotations

import sys

from tensorfold.adapters.tokenization.render_limits import MIB, RenderLimits

STOPPING = frozenset({"memory", "time", "output", "ended", "garbled"})
"""Faults after which the process is not used again."""
_DETAIL = 300
_LAST_LINE = 1 << 21


class RenderFaultError(Exception):
    """One rendering's end: the fault's name, the template's line or 0, the template's own message or nothing."""

    def __init__(self, kind: str, line: int = 0, detail: str = "") -> None:
        super().__init__(kind)
        self.kind = kind
        self.line = int(line) if 0 < line < _LAST_LINE else 0
        self.detail = detail

    @property
    def stopping(self) -> bool:
        """Whether the process was stopped, or must be."""
        return self.kind in STOPPING


def sentence(fault: RenderFaultError, source: str, limits: RenderLimits) -> str:
    """One line for whoever sent the messages or serves the checkpoint; `source` is the template's file."""
    template = f"The chat template in {source}"
    where = f" at line {fault.line}" if fault.line else ""
    match fault.kind:
        case "refused":
            return f"The chat template refused the messages: {_one_line(fault.detail) or 'it gives no reason'}"
        case "memory":
            return f"{template} was stopped: it needed more than {limits.memory_bytes // MIB} MiB of memory."
        case "output":
            return f"{template} was stopped: its output passed {_size(limits.output_bytes)}."
        case "time":
            return f"{template} was stopped: it ran for more than {limits.seconds:g} s."
        case "input":
            return f"The messages are more than {_size(limits.request_bytes)} of JSON, the most a template is given."
        case "nested":
            return "The messages or tools nest too deeply for a chat template; nest their JSON less."
        case "depth":
            return f"{template} nests or calls itself too deeply{where}."
        case "forbidden":
            return f"{template} tried what its sandbox forbids{where}."
        case "include":
            return f"{template} names another template{where}, but only this file is read."
        case "undefined":
            return f"{template} uses a value that these messages do not have{where}."
        case "syntax":
            return f"{template} is not a valid Jinja template{where}."
        case "start":
            return f"The chat template's renderer did not start: {sys.executable} with jinja2 must be able to run."
        case "closed":
            return "The chat template is closed; the server is ending."
        case "ended" | "garbled":
            return f"{template} was stopped: its renderer ended without an answer."
    return f"{template} failed on these messages{where}."


def _one_line(detail: str) -> str:
    text = " ".join("".join(char if char.isprintable() else " " for char in detail).split())
    return text if len(text) <= _DETAIL else text[: _DETAIL - 1] + "…"


def _size(count: int) -> str:
    return f"{count // MIB} MiB" if count >= MIB else f"{count} bytes"
