"""What the log says of a fault: kind and place, never its text."""

from __future__ import annotations

from tensorfold.application.faults import named


def _fail(text: str) -> None:
    raise ValueError(text)


def test_a_fault_is_named_by_its_kind_and_place_and_its_text_is_left_out() -> None:
    try:
        _fail("id 4711")
    except ValueError as fault:
        line = named(fault)
    assert line.startswith("ValueError in application/test_fault_lines.py, line ") and "4711" not in line


def test_a_fault_that_was_never_raised_has_a_kind_only() -> None:
    assert named(KeyError("secret")) == "KeyError"
