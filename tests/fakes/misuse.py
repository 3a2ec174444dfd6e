"""The error of fakes that were used against their port's rules."""

from __future__ import annotations


class MisuseError(Exception):
    """The port was used against its rules: a fault of the caller, never of a request."""
