"""Proof at load that bytes joined id by id are the text the library decodes, on sample texts and sampled ids.

A tokenizer that fails here would stream other text than it holds, so it is refused, never served as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tokenizers import Tokenizer as Library

from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.conversation.token_bytes import TokenBytes

SAMPLES = (
    "The quick brown fox, 12345 times; it's 3.14!",
    "def area(r):\n    return 3 * r**2\n\n\tif x == {}:  # tab",
    "příliš žluťoučký kůň; naïve façade, straße",
    "数学与科学、日本語テスト。한국어",
    "emoji 😀 👩‍👩‍👧 and café",
    "<div class=\"a\">&amp;</div> \\n {'k': [1, 2]}",
)
_SAMPLED_IDS = 256


def prove_bytes(library: Library, token_bytes: TokenBytes, decode: Callable[[Sequence[int]], str]) -> None:
    """Compare `decode` with the library on samples, on added tokens and on ids across the table.

    Raises RefusedError at the first difference. Ids whose bytes are no whole characters are left to the samples.
    """
    for text in SAMPLES:
        ids = library.encode(text, add_special_tokens=False).ids
        if decode(ids) != library.decode(ids, skip_special_tokens=False):
            raise RefusedError(f"tokenizer.json decodes {text[:20]!r} to other text than the bytes of its ids give.")
    # A leading id keeps the rule for a text's first space out of the comparison.
    lead = library.encode("a", add_special_tokens=False).ids[-1:]
    for token in _sampled(library, len(token_bytes.table)):
        text = decode([*lead, token])
        if "\ufffd" not in text and text != library.decode([*lead, token], skip_special_tokens=False):
            raise RefusedError(f"tokenizer.json decodes id {token} to other text than its bytes give.")


def _sampled(library: Library, size: int) -> list[int]:
    added = sorted(library.get_added_tokens_decoder())[:_SAMPLED_IDS]
    return [*range(0, size, max(1, size // _SAMPLED_IDS)), *added]
