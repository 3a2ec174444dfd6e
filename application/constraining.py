"""From what a request asks of a reply's form to its grammar, compiled before anything runs.

A grammar holds from the answer's first token: behind the thought that the prompt left open, if it left one. With tools
on offer an answer held to a JSON schema may be calls instead, unless the request forces one or the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property

from tensorfold.application.errors import RequestError
from tensorfold.application.orders import ChatOrder, ReplyOptions
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.services import GrammarCompiler
from tensorfold.application.ports.tokenizer import Tokenizer
from tensorfold.application.scheduler import Scheduler
from tensorfold.domain.conversation.offered_tools import OfferedTools
from tensorfold.domain.conversation.reply_form import ReplyForm
from tensorfold.domain.conversation.token_bytes import TokenBytes
from tensorfold.domain.gates.calls import MOST_CALLS, UnheldError, calls_grammar
from tensorfold.domain.gates.constraint import Constraint
from tensorfold.domain.gates.grammar import Grammar, GrammarKind
from tensorfold.domain.gates.thought_end import ThoughtEnd

CHOICE = "tool_choice"


class Constraining:
    """Makes the constraints of one served model's replies. `compiler` None: no grammar is served."""

    def __init__(
        self, scheduler: Scheduler, tokenizer: Tokenizer, compiler: GrammarCompiler | None, form: ReplyForm, name: str
    ) -> None:
        self._scheduler = scheduler
        self._tokenizer = tokenizer
        self._compiler = compiler
        self._form = form
        self._name = name

    def of_text(self, options: ReplyOptions) -> Constraint | None:
        """The constraint of a raw completion, which is all answer. Raises RequestError."""
        return None if options.grammar is None else self._compiled(options.grammar, options.grammar_field, False)

    def of_chat(self, order: ChatOrder, in_thought: bool) -> Constraint | None:
        """The constraint of a chat reply; `in_thought`: the prompt leaves a thought open. Raises RequestError."""
        grammar, field = order.options.grammar, order.options.grammar_field
        if order.must_call:
            if grammar is not None:
                raise RequestError(
                    f"{field} asks for an answer and {CHOICE} for a tool call; send one of them.", param=field
                )
            grammar, field = self._calls(order, None), CHOICE
        elif grammar is not None and grammar.kind is GrammarKind.JSON_SCHEMA and order.tools and self._form.calls:
            grammar = self._calls(order, grammar)
        return None if grammar is None else self._compiled(grammar, field, in_thought)

    def _calls(self, order: ChatOrder, answer: Grammar | None) -> Grammar:
        """Calls of the offered tools, or the one that is named; with `answer`, JSON of its schema instead of them."""
        calls = self._form.calls
        if calls is None:
            raise RequestError(
                f"{CHOICE} asks for a call, but the chat template of {self._name} shows no form of calls.", param=CHOICE
            )
        offered = OfferedTools(order.tools or ())
        tools = [tool for name in offered.names if (tool := offered.get(name)) and order.call_name in (None, name)]
        schema = None if answer is None else json.loads(answer.text)
        most = 1 if order.one_call or order.call_name is not None else MOST_CALLS
        try:
            return calls_grammar(calls.name, tools, self._special_marks, most=most, answer=schema)
        except UnheldError as unheld:
            raise RequestError(unheld.message, param="tools") from None
        except RecursionError:
            raise RequestError("tools nest too deeply for a forced call.", param="tools") from None

    def _compiled(self, grammar: Grammar, field: str, in_thought: bool) -> Constraint:
        if self._compiler is None:
            raise RequestError(
                f"{field} asks for constrained output, which this server does not offer.",
                param=field,
                code="unsupported_parameter",
            )
        try:
            matcher = self._compiler.compile(str(grammar.kind), grammar.text)
        except RefusedError as refusal:
            raise RequestError(f"{field}: {refusal.message}", param=field) from None
        model, factory = self._scheduler.engine.model, self._scheduler.factory
        thought = self._thought_end if in_thought else None
        return Constraint(matcher, model.limits.vocabulary, factory.stop_ids, thought)

    @cached_property
    def _special_marks(self) -> Mapping[str, int]:
        """Marks of calls that are special tokens, which only their ids can write."""
        special = self._tokenizer.token_bytes.special
        marks = () if self._form.calls is None else self._form.calls.marks
        ids = {mark: self._tokenizer.token_id(mark) for mark in marks}
        return {mark: token for mark, token in ids.items() if token is not None and token in special}

    @cached_property
    def _thought_end(self) -> ThoughtEnd | None:
        marks = self._form.thoughts
        if marks is None:
            return None
        known = self._tokenizer.token_bytes
        shown = {self._tokenizer.token_id(mark) for mark in self._form.tokens}
        return ThoughtEnd(TokenBytes(known.table, known.special - shown, known.rule), marks)
