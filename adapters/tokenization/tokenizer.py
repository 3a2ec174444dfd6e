"""A checkpoint's tokenizer.json over the `tokenizers` library, behind the Tokenizer port.

The file is hostile: its size, ids and decoder are checked, the library's failures (panics too) become sentences of
ours, and the bytes of ids are proved against the library's own decoding before anything is served.

A special token written in a text becomes its id, wherever the text came from: the rendered conversation is encoded as a
whole, as servers of this kind do, so a user who writes a control token sends one. Patterns in the file are run by the
library as they are; one made to take exponential time on some text can hold the thread that encodes that text.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tokenizers import Tokenizer as Library

from tensorfold.adapters.tokenization.checkpoint_files import MIB, read_bytes
from tensorfold.adapters.tokenization.decoder_forms import decoder_form
from tensorfold.adapters.tokenization.identity import record_identity, tokenizer_identity
from tensorfold.adapters.tokenization.token_proof import prove_bytes
from tensorfold.adapters.tokenization.token_table import TokenTable
from tensorfold.adapters.tokenization.well_formed import well_formed
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.conversation.token_bytes import TokenBytes

FILE_LIMIT = 128 * MIB
"""The largest tokenizer.json that is read, in bytes; a vocabulary of 262,145 is 33 MB."""
ID_LIMIT = 1 << 22
"""Ids stay below this, so that a table over all ids is bounded."""

T = TypeVar("T")


class LibraryError(Exception):
    """The library failed; what it said stays here."""


class CheckpointTokenizer:
    """The Tokenizer port over one loaded file. Safe to call from several threads."""

    def __init__(self, library: Library, tokens: Sequence[str | None], token_bytes: TokenBytes, source: bytes) -> None:
        self._library = library
        self._tokens = tokens
        self._token_bytes = token_bytes
        self._source: bytes | None = source
        self._digests = ("", "")
        self._digest_lock = threading.Lock()

    @property
    def vocabulary(self) -> int:
        """One more than the largest id, added tokens included."""
        return len(self._tokens)

    @property
    def identity(self) -> str:
        """Digest of everything that decides which ids a text becomes; worked out when first asked for."""
        return self._digested()[0]

    @property
    def record_digest(self) -> str:
        """Digest of vocabulary, merges and added tokens, 64 hexadecimal digits; worked out when first asked for."""
        return self._digested()[1]

    @property
    def token_bytes(self) -> TokenBytes:
        """The bytes of every id and the rule that joins them."""
        return self._token_bytes

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Ids of a text, special tokens in it recognised; unpaired surrogates are read as U+FFFD.

        Raises ValueError when the library fails on the text.
        """
        text = well_formed(text)
        try:
            # In a batch of one, for the library then lets other threads run: a long text must not halt the server.
            encoded = guarded(lambda: self._library.encode_batch_fast([text], add_special_tokens=add_special_tokens))
            return encoded[0].ids
        except LibraryError:
            raise ValueError(f"the tokenizer failed on a text of {len(text)} characters") from None

    def token_id(self, token: str) -> int | None:
        """The id of a token's exact text, or None."""
        return self._library.token_to_id(well_formed(token))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens included, malformed bytes as U+FFFD; ids without a token have no text."""
        return joined(self._token_bytes, ids).decode("utf-8", "replace")

    def _digested(self) -> tuple[str, str]:
        with self._digest_lock:
            if self._source is not None:
                file = json.loads(self._source)
                self._digests = (tokenizer_identity(file), record_identity(file))
                self._source = None
            return self._digests


def joined(token_bytes: TokenBytes, ids: Sequence[int]) -> bytes:
    """Bytes of a whole text, special tokens included."""
    table = token_bytes.table
    data = b"".join(table[token] for token in ids if 0 <= token < len(table))
    return data[1:] if token_bytes.rule == "strip_first_space" and data.startswith(b" ") else data


def load_tokenizer(folder: Path) -> CheckpointTokenizer:
    """The tokenizer of a checkpoint folder. Raises RefusedError with one sentence."""
    path = folder / "tokenizer.json"
    source = read_bytes(path, FILE_LIMIT)
    if source is None:
        raise RefusedError(f"{path} is missing; fetch the checkpoint again.")
    library = _loaded(source, path)
    tokens = _token_texts(library)
    form = decoder_form(_decoder(library))
    special = frozenset(token for token, added in library.get_added_tokens_decoder().items() if added.special)
    token_bytes = TokenBytes(TokenTable(tokens, form.to_bytes), special, form.rule)
    tokenizer = CheckpointTokenizer(library, tokens, token_bytes, source)
    try:
        guarded(lambda: prove_bytes(library, token_bytes, tokenizer.decode))
    except LibraryError:
        raise RefusedError(f"{path} fails on ordinary text; fetch the checkpoint again.") from None
    return tokenizer


def _loaded(source: bytes, path: Path) -> Library:
    # The library panics on a malformed character map and prints a stack; no served family has one.
    if b'"Precompiled"' in source and b'"precompiled_charsmap"' in source:
        raise RefusedError(f"{path} normalizes with Precompiled, which is not served; use a BPE checkpoint.")
    try:
        library = guarded(lambda: Library.from_buffer(source))
    except LibraryError:
        raise RefusedError(f"{path} is not a tokenizer that can be read; fetch the checkpoint again.") from None
    if getattr(library.model, "dropout", None):
        raise RefusedError(f"{path} sets model.dropout, so one text would have many ids; remove it from the file.")
    library.no_truncation()
    library.no_padding()
    return library


def _token_texts(library: Library) -> list[str | None]:
    """Text of every id, None where an id has none. Raises RefusedError for ids out of bounds or used twice."""
    vocabulary = library.get_vocab(with_added_tokens=False)
    added = library.get_added_tokens_decoder()
    top = max((*vocabulary.values(), *added), default=-1)
    if top < 0:
        raise RefusedError("tokenizer.json has no tokens.")
    if top >= ID_LIMIT:
        raise RefusedError(f"tokenizer.json has a token with id {top}; ids run to {ID_LIMIT - 1} at most.")
    texts: list[str | None] = [None] * (top + 1)
    for text, index in vocabulary.items():
        if texts[index] is not None:
            raise RefusedError(f"tokenizer.json gives id {index} to two tokens.")
        texts[index] = text
    for index, token in added.items():
        texts[index] = token.content
    return texts


def _decoder(library: Library) -> dict[str, Any] | None:
    decoder = library.decoder
    return None if decoder is None else json.loads(decoder.__getstate__())


def guarded(call: Callable[[], T]) -> T:
    """What the library returns. Raises LibraryError when it fails; its panics are no Exception, hence the wide net."""
    try:
        return call()
    except (KeyboardInterrupt, SystemExit, RefusedError):
        raise
    except BaseException:
        raise LibraryError from None
