"""Whose ids a record holds: a digest of the tokenizer's vocabulary, merges and added tokens, and the vocabulary's size.

Two tokenizers with one identity give every id the same text. How text is cut before it becomes ids, and how messages
become text, are left out: they decide which ids are written, not what an id means. The text of an identity is read back
from a disk, so anything but the exact form counts as malformed. It ends with a checksum, so that one flipped bit, which
could name another vocabulary, is noticed and put right.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

TAG = "tensorfold record 1"
MOST_VOCABULARY = (1 << 31) - 2
"""Ids are stored plus one, in 32 signed bits."""
MOST_MODEL = 200
"""Characters kept of a model's name."""
MOST_TEXT_BYTES = 1024
"""No identity is longer."""

_FORM = re.compile(
    r"(tokenizer sha256:([0-9a-f]{64})\nvocabulary ([1-9][0-9]{0,9})\nmodel ([^\n]*))(?:\ncheck ([0-9a-f]{8}))?\n?"
)


@dataclass(frozen=True, slots=True)
class RecordIdentity:
    """`digest` is 64 hexadecimal digits; `vocabulary` counts ids; `model` is the model that began the record.

    A model's name informs and decides nothing: models that share a tokenizer share a record.
    """

    digest: str
    vocabulary: int
    model: str

    def __post_init__(self) -> None:
        """Raise ValueError for a digest or a size that no tokenizer has."""
        if not re.fullmatch(r"[0-9a-f]{64}", self.digest):
            raise ValueError("a record's digest is 64 hexadecimal digits")
        if not 0 < self.vocabulary <= MOST_VOCABULARY:
            raise ValueError(f"a record's vocabulary has 1 to {MOST_VOCABULARY} ids, not {self.vocabulary}")

    @property
    def folder_name(self) -> str:
        """The record's folder where the user names none: the digest's first 16 digits and the vocabulary's size."""
        return f"{self.digest[:16]}-{self.vocabulary}"

    @property
    def named_model(self) -> str:
        """The model's name on one line without what a terminal would act on, at most MOST_MODEL characters."""
        return "".join(c if c.isprintable() else "?" for c in self.model[:MOST_MODEL])

    def text(self) -> str:
        """The content of the file `identity`."""
        lines = f"tokenizer sha256:{self.digest}\nvocabulary {self.vocabulary}\nmodel {self.named_model}"
        return f"{lines}\ncheck {_check(lines)}\n"

    def same_tokenizer(self, other: RecordIdentity) -> bool:
        """Whether ids of one mean the same for the other."""
        return (self.digest, self.vocabulary) == (other.digest, other.vocabulary)


def parse(text: str) -> RecordIdentity | None:
    """An identity from what a file holds, or None when the text is not exactly one. A text without a check is one."""
    form = _FORM.fullmatch(text)
    if form is None or int(form[3]) > MOST_VOCABULARY or form[5] not in (None, _check(form[1])):
        return None
    model = form[4]
    return RecordIdentity(form[2], int(form[3]), model) if model.isprintable() and len(model) <= MOST_MODEL else None


def mended(data: bytes) -> RecordIdentity | None:
    """The identity in a file before one bit of it flipped; None unless one with a check, and no other, is that near."""
    found: list[RecordIdentity] = []
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        identity = parse(changed.decode("utf-8", "replace"))
        if identity is not None and identity.text().encode("utf-8") == changed:
            found.append(identity)
    return found[0] if len(found) == 1 else None


def _check(lines: str) -> str:
    """CRC-32 of the lines before it, in hexadecimal: no two flipped bits of a text this short go unnoticed."""
    return f"{zlib.crc32(lines.encode('utf-8', 'surrogatepass')):08x}"


def record_digest(
    vocabulary: Iterable[tuple[str, int]],
    merges: Iterable[tuple[str, str]],
    added: Iterable[tuple[int, str, bool]],
) -> str:
    """SHA-256 in hex over a tag, (token, id) by id, merges in their order of rank, and (id, content, special) by id.

    Each item is its UTF-8 length as eight little-endian bytes and its UTF-8; numbers are decimal text. Each of the
    three lists begins with its name and its length, so that no two tokenizers spell one sequence of items.
    """
    tokens = sorted(vocabulary, key=lambda entry: (entry[1], entry[0]))
    pairs = list(merges)
    extra = sorted(added)
    items = [TAG, "vocabulary", str(len(tokens))]
    for token, number in tokens:
        items += (token, str(number))
    items += ("merges", str(len(pairs)))
    for left, right in pairs:
        items += (left, right)
    items += ("added", str(len(extra)))
    for number, content, special in extra:
        items += (str(number), content, "special" if special else "plain")
    digest = hashlib.sha256()
    for item in items:
        data = item.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()
