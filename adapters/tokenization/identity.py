"""Two digests of a tokenizer.json: of everything that decides which ids a text becomes, and of what its ids mean.

Counted by the first: the model with its vocabulary and merges, added tokens with the flags that decide how they match,
normalizer, pre-tokenizer and post-processor. Left out: decoder, truncation, padding and the file's layout, which change
no id. Two spellings of one tokenizer (merges as "a b" or as pairs, an option absent or at its neutral value) have one
digest. The second counts vocabulary, merges and added tokens alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tensorfold.domain.recall.identity import record_digest

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
        "merges": list(_merges(model)),
        "options": _plain({key: value for key, value in model.items() if key not in ("vocab", "merges")}),
        "added": sorted(_added(token) for token in file.get("added_tokens") or ()),
        **{part: file.get(part) for part in ("normalizer", "pre_tokenizer", "post_processor")},
    }
    text = json.dumps(canonical, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def record_identity(file: Mapping[str, Any]) -> str:
    """The digest that a record of ids carries, of a parsed tokenizer.json that the library has accepted."""
    model = file["model"]
    added = ((token["id"], token["content"], bool(token.get("special"))) for token in file.get("added_tokens") or ())
    return record_digest(_entries(model["vocab"]), _merges(model), added)


def _merges(model: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Both halves of each merge, by rank; a file writes them as one text with a space between, or as a pair."""
    for merge in model.get("merges") or ():
        left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
        yield left, right


def _entries(vocab: Any) -> Iterable[tuple[str, int]]:
    """Tokens with their ids; a unigram model lists (token, score) in the order of the ids."""
    if isinstance(vocab, Mapping):
        return vocab.items()
    return ((entry[0], at) for at, entry in enumerate(vocab))


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
