"""Triton's interpreter without its habit of patching the language anew in every call of a helper function.

In a process that only interprets, one patch of each function's modules is enough; it is never taken back. Call
`quicken()` after TRITON_INTERPRET is set and before the first kernel runs.
"""

from __future__ import annotations

from typing import Any


class _Kept:
    """A scope of patches that stay."""

    def restore(self) -> None:
        """Leave them."""


def quicken() -> None:
    """Patch each function's modules once."""
    from triton.runtime import interpreter  # type: ignore[import-not-found, unused-ignore]

    patch, patched = interpreter._patch_lang, set()

    def once(fn: Any) -> _Kept:
        if fn not in patched:
            patched.add(fn)
            patch(fn)
        return _Kept()

    interpreter._patch_lang = once
