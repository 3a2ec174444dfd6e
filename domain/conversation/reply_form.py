"""How a served model writes replies: its thoughts and its calls, from what its template was seen to do and its family.

The checkpoint's own template counts before the family's plan: it is what the model was trained on and is prompted with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tensorfold.domain.conversation.dialects import call_dialect
from tensorfold.domain.conversation.dialects.dialect import CallDialect
from tensorfold.domain.conversation.template_traits import TemplateTraits
from tensorfold.domain.conversation.thoughts import ThoughtMarks
from tensorfold.domain.families.plans import Dialect

THINK = ThoughtMarks("<think>", "</think>")
CHANNEL = ThoughtMarks("<|channel>thought", "<channel|>", again=True)
_KNOWN = {marks.close: marks for marks in (THINK, CHANNEL)}
_TOKENS = {THINK.close: ("<think>", "</think>"), CHANNEL.close: ("<|channel>", "<channel|>")}
_EFFORT_LINE = re.compile(r"\A(\[gMASK\]<sop>)?<\|system\|>\s*Reasoning Effort: \w+\s*(?=<\|)")


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """What a reply's reader looks for; None: nothing of the kind."""

    thoughts: ThoughtMarks | None = None
    calls: CallDialect | None = None

    @property
    def tokens(self) -> tuple[str, ...]:
        """Marks that may be special tokens, and are text to the reader all the same."""
        thoughts = () if self.thoughts is None else _TOKENS.get(self.thoughts.close, ())
        return (*thoughts, *(() if self.calls is None else self.calls.marks))

    def opened(self, prompt: str) -> bool:
        """Whether a prompt leaves a thought open for the reply to go on with."""
        return self.thoughts is not None and prompt.rstrip().endswith(self.thoughts.open)

    def without_thought(self, prompt: str) -> str:
        """A prompt that was to open no thought. Where a template knows no way to leave it out, it is closed at once.

        A line at the prompt's start that asks for an effort goes too.
        """
        if self.thoughts is None or not self.opened(prompt):
            return prompt
        lines = "\n\n" if prompt.endswith("\n") else ""
        return _EFFORT_LINE.sub(r"\1", prompt) + (lines and "\n") + self.thoughts.close + lines


def reply_form(family: Dialect, traits: TemplateTraits) -> ReplyForm:
    """The form of a model's replies. Raises KeyError for a call dialect that is not known."""
    close = traits.thought_close or family.think_close
    marks = _KNOWN.get(close) or (ThoughtMarks(family.think_open.strip(), close) if close else None)
    return ReplyForm(marks, call_dialect(traits.tool_calls or family.tool_calls))


def thought_close(sources: Iterable[str]) -> str:
    """The mark that closes thoughts in templates of these sources; empty where none is written in them."""
    return next((close for source in sources for close, marks in _KNOWN.items() if _writes(source, marks)), "")


def _writes(source: str, marks: ThoughtMarks) -> bool:
    return marks.close in source and _TOKENS[marks.close][0] in source
