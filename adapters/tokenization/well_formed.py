"""Text that UTF-8 can carry: a request's JSON may hold half a surrogate pair, which no tokenizer takes."""

from __future__ import annotations


def well_formed(text: str) -> str:
    """`text` with every unpaired surrogate as U+FFFD; halves that stand side by side become their character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
