"""Tries one grammar in a process of its own: nothing that a grammar does there reaches the server.

Run as a file, with the folder of llguidance, the limits and the grammar as JSON on its input; answers with JSON. Knows
nothing of the rest of the product, so that it starts fast.
"""

from __future__ import annotations

import json
import re
import resource
import sys
from typing import Any

LEAST = 257
_NUMBERED = re.compile(r"<\[(\d{1,9})\]>")


class _Bytes:
    """A tokenizer of the 256 bytes and an end token: what compiling costs hardly depends on the vocabulary.

    Of the ids behind these it has those that the grammar names by their number.
    """

    eos_token_id = 256
    bos_token_id = None

    def __init__(self, vocabulary: int, grammar: str) -> None:
        named = {int(number) for number in _NUMBERED.findall(grammar)}
        self.special_token_ids = sorted({256, *(n for n in named if LEAST <= n < vocabulary)})
        self.tokens = [*(bytes((i,)) for i in range(256)), *[b""] * (vocabulary - 256)]
        for token in self.special_token_ids:
            self.tokens[token] = b"\xff<%d>" % token

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
    vocabulary = max(LEAST, asked["vocabulary"])
    wrapper = library.TokenizerWrapper(_Bytes(vocabulary, asked["grammar"]))
    tokenizer = library.LLTokenizer(wrapper, n_vocab=vocabulary, eos_token=256)
    limits = library.LLParserLimits(max_lexer_states=asked["states"], verbose_errors=False)
    matcher = library.LLMatcher(tokenizer, asked["grammar"], log_level=0, limits=limits)
    error = matcher.get_error() if matcher.is_error() else ""
    begins = not error and any(matcher.compute_bitmask()) and not matcher.is_error()
    costly = not error and "TooComplex" in matcher.stop_reason()
    print(json.dumps({"error": error, "costly": costly, "empty": not begins}))


if __name__ == "__main__":
    main()
