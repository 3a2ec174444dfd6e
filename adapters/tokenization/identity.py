"""A digest of everything in tokenizer.json that decides which ids a text becomes.

Counted: the model with its vocabulary and merges, added tokens with the flags that decide how they match, normalizer,
pre-tokenizer and post-processor. Left out: decoder, truncation, padding and the file's layout, which change no id. Two
spellings of one tokenizer (merges as "a b" or as pairs, an option absent or at its neutral value) have one digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_TAG = "tensorfold tokenizer 1"
_FLAGS = ("special", "normalized", "lstrip", "rstrip", "single_word")


def tokenizer_identity(file: Mapping[str, Any]) -> str:
    """SHA-256 in hex of a parsed tokenizer.json that the library has accepted.

    The digest is over compact JSON of a fixed shape with sorted keys, UTF-8, so equal digests mean equal content.
    """
    model = file["model"]
    canonical = {
        "tag": _TAG,
        "vocabulary": _vocabulary(model["vocab"]),
        "merges": [merge.split(" ", 1) if isinstance(merge, str) else merge for merge in model.get("merges") or ()],
        "options": _plain({key: value for key, value in model.items() if key not in ("vocab", "merges")}),
        "added": sorted(_added(token) for token in file.get("added_tokens") or ()),
        **{part: file.get(part) for part in ("normalizer", "pre_tokenizer", "post_processor")},
    }
    text = json.dumps(canonical, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _vocabulary(vocab: Any) -> list[Any]:
    """Tokens in the order of their ids, with the ids; a unigram model's list is already in that order."""
    if not isinstance(vocab, Mapping):
        return list(vocab)
    ordered = sorted(vocab, key=lambda token: (vocab[token], token))
    return [ordered, [vocab[token] for token in ordered]]


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that say something: absent, null, false and the empty text all mean the default."""
    return {key: value for key, value in options.items() if value not in (None, False, "")}


def _added(token: Mapping[str, Any]) -> list[Any]:
    return [token["id"], token["content"], *(bool(token.get(flag)) for flag in _FLAGS)]
