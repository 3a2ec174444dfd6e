"""From messages or text to a running reply.

Everything that can be refused is refused before a reply exists. Knows no HTTP: orders and events are plain values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tensorfold.application.constraining import Constraining
from tensorfold.application.errors import ContextExceededError, RequestError
from tensorfold.application.orders import ChatOrder, CompletionOrder, ReplyOptions
from tensorfold.application.ports.machine import Clock
from tensorfold.application.ports.services import GrammarCompiler
from tensorfold.application.ports.tokenizer import ChatTemplate, TemplateError, Tokenizer
from tensorfold.application.replies import GenerationRequest
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import SamplingDefaults
from tensorfold.application.text_replies import Reply
from tensorfold.domain.conversation.efforts import DEFAULT, LEVELS, OWN, nearest
from tensorfold.domain.conversation.message_parts import MessageError
from tensorfold.domain.conversation.messages import normalise
from tensorfold.domain.conversation.offered_tools import OfferedTools
from tensorfold.domain.conversation.reply_form import ReplyForm, reply_form
from tensorfold.domain.conversation.reply_reader import CallsWanted, ReplyReader
from tensorfold.domain.families.plans import Dialect
from tensorfold.domain.gates.constraint import Constraint
from tensorfold.domain.sampling import Sampling, derive_seed

_EFFORT = "reasoning_effort"
_THINKING = "enable_thinking"
_PLAIN = ReplyForm()


@dataclass(frozen=True, slots=True)
class _Prompt:
    """Ids of a prompt, how the reply to it is read, and whether that begins in a thought.

    `opened` says so of the prompt alone, also where the reply is shown as it is written.
    """

    ids: tuple[int, ...]
    form: ReplyForm = _PLAIN
    in_thought: bool = False
    opened: bool = False


def default_effort(given: str | None, named: Sequence[str]) -> str | None:
    """What a template that names these efforts gets when a request says nothing; None leaves it to the template.

    An effort that was asked for becomes the nearest one named; the default itself is never bent to another.
    """
    if given == OWN:
        return None
    if given is not None:
        return nearest(given, named) if named else None
    return DEFAULT if DEFAULT in named else None


class ChatService:
    """Turns orders into replies of one served model."""

    def __init__(
        self,
        scheduler: Scheduler,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        defaults: SamplingDefaults,
        clock: Clock,
        *,
        model_names: Sequence[str],
        thinking: bool = True,
        effort: str | None = None,
        dialect: Dialect | None = None,
        grammars: GrammarCompiler | None = None,
        thinking_budget: int = 0,
    ) -> None:
        """`thinking` and `effort` are what the template gets when a request says nothing; effort None: medium,
        OWN: the template's own.

        A thought has at most `thinking_budget` tokens where a request does not say (0: no limit). `dialect` is the
        family's; what the template was seen to do counts before it.
        """
        self.model_names = tuple(model_names)
        self._scheduler = scheduler
        self._tokenizer = tokenizer
        self._template = template
        self._defaults = defaults
        self._clock = clock
        self._thinking = thinking
        dialect = dialect or Dialect()
        self._form = reply_form(dialect, template.traits)
        self._constraining = Constraining(scheduler, tokenizer, grammars, self._form, model_names[0])
        self._thinking_budget = thinking_budget
        named = template.traits.efforts
        # A level that an unknown word falls back to cannot be seen from outside: there the family's list knows more.
        self._efforts = tuple(level for level in LEVELS if level in {*named, *dialect.efforts}) if named else ()
        self.effort = default_effort(effort, self._efforts)

    @property
    def context(self) -> int:
        """Prompt plus reply capacity in tokens."""
        return self._scheduler.factory.context

    def chat(self, order: ChatOrder) -> Reply:
        """Start a chat reply. Raises RequestError or OverloadedError before anything runs."""
        prompt = self._prompt(order)
        calls = prompt.form.calls
        wanted = None
        if calls is not None and order.tools:
            wanted = CallsWanted(calls, OfferedTools(order.tools), 1 if order.one_call else None)
        constraint = self._constraining.of_chat(order, prompt.opened)
        return self._submit(prompt, order.options, "messages", wanted, constraint)

    def complete(self, order: CompletionOrder) -> Reply:
        """Start a raw completion. Raises RequestError or OverloadedError before anything runs."""
        prompt = _Prompt(self._completion_ids(order.prompt))
        return self._submit(prompt, order.options, "prompt", None, self._constraining.of_text(order.options))

    def chat_ids(self, order: ChatOrder) -> tuple[int, ...]:
        """The prompt ids a conversation becomes."""
        return self._prompt(order).ids

    def _prompt(self, order: ChatOrder) -> _Prompt:
        traits = self._template.traits
        if order.tools and not traits.takes_tools:
            raise RequestError(
                f"The chat template of {self.model_names[0]} ({self._template.source}) renders no tools; send none.",
                param="tools",
            )
        variables = self._variables(order)
        try:
            messages = normalise(
                order.messages,
                late_system=traits.late_system,
                user_runs=traits.user_runs,
                null_content=traits.null_content,
            )
            text = self._template.render(messages, tools=order.tools or None, variables=variables).text
        except MessageError as refusal:
            raise RequestError(refusal.message, param=refusal.path) from None
        except TemplateError as refusal:
            raise RequestError(refusal.message, param="messages") from None
        if variables[_THINKING] is False:
            text = self._form.without_thought(text)
        ids = self._encode(text, "messages")
        if not ids:
            raise RequestError("The chat template made an empty prompt of these messages.", param="messages")
        opened = self._form.opened(text)
        if order.as_text:
            return _Prompt(tuple(ids), opened=opened)
        return _Prompt(tuple(ids), self._form, opened, opened)

    def _encode(self, text: str, param: str) -> list[int]:
        """Ids of a text. One that is far beyond the window is refused unread: encoding it would take minutes."""
        most = self.context * self._longest if len(text) > self.context else len(text)
        if len(text) > most:
            raise RequestError(
                f"This model's maximum context length is {self.context} tokens. However, the {param} come to "
                f"{len(text)} characters, more than the {most} that its longest tokens could cover.",
                param=param,
                code="context_length_exceeded",
            )
        try:
            return self._tokenizer.encode(text)
        except ValueError:
            raise RequestError("The tokenizer cannot turn this text into ids.", param=param) from None

    @cached_property
    def _longest(self) -> int:
        """Bytes of the longest token, at least 1; a character is no shorter than a byte."""
        return max(1, *map(len, self._tokenizer.token_bytes.table))

    def _variables(self, order: ChatOrder) -> Mapping[str, Any]:
        """The server's thinking toggle and effort under what the request sets; the effort as the template names it."""
        variables = {_THINKING: self._thinking, **(order.template_variables or {})}
        asked = variables.get(_EFFORT)
        if isinstance(asked, str):
            variables[_EFFORT] = nearest(asked, self._efforts)
        elif self.effort is not None:
            variables[_EFFORT] = self.effort
        return variables

    def _completion_ids(self, prompt: str | tuple[int, ...]) -> tuple[int, ...]:
        if isinstance(prompt, str):
            ids = tuple(self._encode(prompt, "prompt"))
        else:
            ids = prompt
            if len(ids) >= self.context:
                raise ContextExceededError(prompt=len(ids), reply=None, limit=self.context, param="prompt")
            top = self._scheduler.engine.model.limits.vocabulary
            for index, token in enumerate(ids):
                if not 0 <= token < top:
                    raise RequestError(
                        f"prompt[{index}] is {token}; token ids run from 0 to {top - 1}.", param="prompt"
                    )
        if not ids:
            raise RequestError("The prompt is empty; send at least one token.", param="prompt")
        return ids

    @cached_property
    def _marks(self) -> frozenset[int]:
        """Special ids whose text the reader of replies needs."""
        ids = {self._tokenizer.token_id(mark) for mark in self._form.tokens}
        return frozenset(token for token in ids if token in self._tokenizer.token_bytes.special)

    def _close(self, constrained: bool) -> tuple[int, ...]:
        """Ids that close a thought over its budget; what a grammar holds begins right behind the mark."""
        marks = self._form.thoughts
        if marks is None:
            return ()
        lines = "" if constrained or marks.again else "\n\n"
        return tuple(self._encode(f"\n{marks.close}{lines}", "messages"))

    def _submit(
        self,
        prompt: _Prompt,
        options: ReplyOptions,
        param: str,
        calls: CallsWanted | None,
        constraint: Constraint | None,
    ) -> Reply:
        stops = tuple(stop.encode("utf-8", "replace") for stop in options.stops)
        request = GenerationRequest(
            prompt=prompt.ids,
            sampling=self._sampling(prompt.ids, options),
            max_tokens=options.max_tokens,
            stops=stops,
            ignore_eos=options.ignore_eos,
            draft=options.draft,
            background=options.background,
            param=param,
            limit_param=options.limit_field,
            label=options.label,
            constraint=constraint,
        )
        if prompt.form is not _PLAIN:
            request = replace(request, marks=self._marks, thoughts=prompt.form.thoughts, in_thought=prompt.in_thought)
            if budget := options.thinking_budget or self._thinking_budget:
                request = replace(request, thinking_budget=budget, thought_close=self._close(constraint is not None))
        generation = self._scheduler.submit(request)
        shown = self._scheduler.factory.shown_bytes(request)
        return Reply(generation, ReplyReader(shown, stops, request.splitter(), calls), int(self._clock.wall()))

    def _sampling(self, ids: tuple[int, ...], options: ReplyOptions) -> Sampling:
        d = self._defaults
        temperature = d.temperature if options.temperature is None else options.temperature
        if temperature <= 0.0:
            return Sampling()
        return Sampling(
            seed=derive_seed(ids, d.seed_salt) if options.seed is None else options.seed & (2**64 - 1),
            temperature=temperature,
            top_k=d.top_k if options.top_k is None else options.top_k,
            top_p=d.top_p if options.top_p is None else options.top_p,
            min_p=d.min_p if options.min_p is None else options.min_p,
        )
