"""Tries one grammar in a process of its own: nothing that a grammar does there reaches the server.

Run as a file, with the folder of llguidance, the limits and the grammar as JSON on its input; answers with JSON. Knows
nothing of the rest of the product, so that it starts fast.
"""

from __future__ import annotations

import json
import resource
import sys
from typing import Any


class _Bytes:
    """A tokenizer of the 256 bytes and an end token: what compiling costs hardly depends on the vocabulary."""

    eos_token_id = 256
    bos_token_id = None
    tokens = (*(bytes((i,)) for i in range(256)), b"\xff<end>")
    special_token_ids = (256,)

    def __call__(self, text: Any) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


def _bound(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, hard))


def main() -> None:
    """Compile, and look at the first tokens: `error` is the library's text, `empty` says that no reply can begin."""
    asked = json.loads(sys.stdin.buffer.read())
    sys.path.append(asked["folder"])
    import llguidance as library  # type: ignore[import-not-found,unused-ignore]

    _bound(resource.RLIMIT_CORE, 0)
    if sys.platform == "linux":
        _bound(resource.RLIMIT_AS, asked["memory"])
    used = resource.getrusage(resource.RUSAGE_SELF)
    _bound(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + asked["cpu"])
    tokenizer = library.LLTokenizer(library.TokenizerWrapper(_Bytes()), n_vocab=257, eos_token=256)
    limits = library.LLParserLimits(max_lexer_states=asked["states"], verbose_errors=False)
    matcher = library.LLMatcher(tokenizer, asked["grammar"], log_level=0, limits=limits)
    error = matcher.get_error() if matcher.is_error() else ""
    begins = not error and any(matcher.compute_bitmask()) and not matcher.is_error()
    costly = not error and "TooComplex" in matcher.stop_reason()
    print(json.dumps({"error": error, "costly": costly, "empty": not begins}))


if __name__ == "__main__":
    main()
