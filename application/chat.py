"""From messages or text to a running reply.

Everything that can be refused is refused before a reply exists. Knows no HTTP: orders and events are plain values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from tensorfold.application.errors import ContextExceededError, RequestError
from tensorfold.application.orders import ChatOrder, CompletionOrder, ReplyOptions
from tensorfold.application.ports.machine import Clock
from tensorfold.application.ports.tokenizer import ChatTemplate, TemplateError, Tokenizer
from tensorfold.application.replies import GenerationRequest
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import SamplingDefaults
from tensorfold.application.text_replies import Reply
from tensorfold.domain.conversation.efforts import DEFAULT, nearest
from tensorfold.domain.conversation.message_parts import MessageError
from tensorfold.domain.conversation.messages import normalise
from tensorfold.domain.conversation.reply_text import ReplyText
from tensorfold.domain.sampling import Sampling, derive_seed

_EFFORT = "reasoning_effort"


def default_effort(given: str | None, named: Sequence[str]) -> str | None:
    """What a template that names these efforts gets when a request says nothing; None leaves it to the template.

    An effort that was asked for becomes the nearest one named; the default itself is never bent to another.
    """
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
    ) -> None:
        """`thinking` and `effort` are what the template gets when a request says nothing; effort None: medium."""
        self.model_names = tuple(model_names)
        self._scheduler = scheduler
        self._tokenizer = tokenizer
        self._template = template
        self._defaults = defaults
        self._clock = clock
        self._thinking = thinking
        self._efforts = template.traits.efforts
        self.effort = default_effort(effort, self._efforts)

    @property
    def context(self) -> int:
        """Prompt plus reply capacity in tokens."""
        return self._scheduler.factory.context

    def chat(self, order: ChatOrder) -> Reply:
        """Start a chat reply. Raises RequestError or OverloadedError before anything runs."""
        return self._submit(self.chat_ids(order), order.options, "messages")

    def complete(self, order: CompletionOrder) -> Reply:
        """Start a raw completion. Raises RequestError or OverloadedError before anything runs."""
        return self._submit(self._completion_ids(order.prompt), order.options, "prompt")

    def chat_ids(self, order: ChatOrder) -> tuple[int, ...]:
        """The prompt ids a conversation becomes."""
        traits = self._template.traits
        if order.tools and not traits.takes_tools:
            raise RequestError(
                f"The chat template of {self.model_names[0]} ({self._template.source}) renders no tools; send none.",
                param="tools",
            )
        try:
            messages = normalise(
                order.messages,
                late_system=traits.late_system,
                user_runs=traits.user_runs,
                null_content=traits.null_content,
            )
            rendered = self._template.render(messages, tools=order.tools or None, variables=self._variables(order))
        except MessageError as refusal:
            raise RequestError(refusal.message, param=refusal.path) from None
        except TemplateError as refusal:
            raise RequestError(refusal.message, param="messages") from None
        ids = self._encode(rendered.text, "messages")
        if not ids:
            raise RequestError("The chat template made an empty prompt of these messages.", param="messages")
        return tuple(ids)

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
        variables = {"enable_thinking": self._thinking, **(order.template_variables or {})}
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

    def _submit(self, ids: tuple[int, ...], options: ReplyOptions, param: str) -> Reply:
        stops = tuple(stop.encode("utf-8", "replace") for stop in options.stops)
        request = GenerationRequest(
            prompt=ids,
            sampling=self._sampling(ids, options),
            max_tokens=options.max_tokens,
            stops=stops,
            ignore_eos=options.ignore_eos,
            draft=options.draft,
            background=options.background,
            param=param,
            label=options.label,
        )
        generation = self._scheduler.submit(request)
        return Reply(
            generation, ReplyText(self._scheduler.factory.shown_bytes(request), stops), int(self._clock.wall())
        )

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
