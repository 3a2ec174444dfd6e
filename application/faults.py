"""A fault in words that may be logged whatever it was about: its kind and its place, never its own text."""

from __future__ import annotations

from pathlib import PurePath


def named(fault: BaseException) -> str:
    """For example `ValueError in recall/index.py, line 120`. The fault's text may hold ids or text of requests."""
    trace = fault.__traceback__
    if trace is None:
        return type(fault).__name__
    while trace.tb_next is not None:
        trace = trace.tb_next
    place = "/".join(PurePath(trace.tb_frame.f_code.co_filename).parts[-2:])
    return f"{type(fault).__name__} in {place}, line {trace.tb_lineno}"
