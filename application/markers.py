"""The markers of a chat template, found by rendering conversations and comparing the ids.

Two sets of words, thinking on and off, with and without a generation prompt: what stays the same is the template's.
A template that refuses or breaks has no markers, and prompts are then cut on a plain grid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from tensorfold.application.ports.tokenizer import ChatTemplate, TemplateError, Tokenizer
from tensorfold.domain.prompts.markers import NO_MARKERS, Markers, markers_of

_WORDS = (("Amber boats drift", "Quiet", "Nine", "Old lamps"), ("7 plus 4?", "It is eleven.", "Zebra", "yes, two"))
_SYSTEMS = ("Be brief.", "Answer 1 thing")
_ROLES = ("user", "assistant", "user", "assistant")


def discover(template: ChatTemplate, tokenizer: Tokenizer) -> Markers:
    """The markers; none where the template has none, or does not take these conversations."""
    probe = _Probe(template, tokenizer)
    pieces: dict[str, list[Sequence[int]]] = {"user": [], "assistant": []}
    try:
        for words, thinking in product(_WORDS, (True, False)):
            for role, piece in probe.pieces(words, thinking):
                pieces[role].append(piece)
    except (TemplateError, ValueError):
        return NO_MARKERS
    return markers_of(pieces, probe.systems(), tokenizer.token_bytes.special)


class _Probe:
    """Renders conversations to ids."""

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer) -> None:
        self._template = template
        self._tokenizer = tokenizer

    def pieces(self, words: Sequence[str], thinking: bool) -> Iterator[tuple[str, Sequence[int]]]:
        """What each message but the first adds, where the render before it stays as it was."""
        messages = [{"role": role, "content": text} for role, text in zip(_ROLES, words, strict=True)]
        before = self._ids(messages[:1], thinking)
        yield from _added("assistant", before, self._ids(messages[:1], thinking, reply=True))
        for count in range(2, len(messages) + 1):
            after = self._ids(messages[:count], thinking)
            yield from _added(_ROLES[count - 1], before, after)
            before = after

    def systems(self) -> list[Sequence[int]]:
        """Renders of system messages alone; none where the template wants more."""
        try:
            return [self._ids([{"role": "system", "content": text}], False) for text in _SYSTEMS]
        except (TemplateError, ValueError):
            return []

    def _ids(self, messages: Sequence[Mapping[str, Any]], thinking: bool, *, reply: bool = False) -> list[int]:
        variables = {"enable_thinking": thinking}
        text = self._template.render(messages, add_generation_prompt=reply, variables=variables).text
        return self._tokenizer.encode(text)


def _added(role: str, before: Sequence[int], after: Sequence[int]) -> Iterator[tuple[str, Sequence[int]]]:
    if len(after) > len(before) and after[: len(before)] == before:
        yield role, after[len(before) :]
