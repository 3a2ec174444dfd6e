"""What a kernel did wrong, in one sentence."""

from __future__ import annotations


class EmulatorError(Exception):
    """A rule of the language, of a launch or of the machine was broken; the message names the kernel and the place."""
