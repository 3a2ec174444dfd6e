"""From messages or text to a running reply, and from landed ids back to text.

Everything that can be refused is refused before a reply exists. Text is made in the thread that reads the reply, never
in the engine's. Knows no HTTP: orders and events are plain values.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensorfold.application.errors import RequestError
from tensorfold.application.generation import Generation
from tensorfold.application.ports.machine import Clock
from tensorfold.application.ports.tokenizer import ChatTemplate, TemplateError, Tokenizer
from tensorfold.application.replies import Cancelled, Ended, Failed, GenerationRequest, Landed, ReplyStats, token_sha
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import SamplingDefaults
from tensorfold.domain.conversation.message_parts import MessageError
from tensorfold.domain.conversation.messages import normalise
from tensorfold.domain.conversation.reply_text import ReplyText
from tensorfold.domain.sampling import Sampling, derive_seed


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """What a request may set; None is the server's default."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stops: tuple[str, ...] = ()
    ignore_eos: bool = False
    draft: bool = True
    background: bool = False
    label: str = ""


@dataclass(frozen=True, slots=True)
class ChatOrder:
    """A conversation to continue. `template_variables` are passed to the template as they are."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    template_variables: Mapping[str, Any] | None = None
    options: ReplyOptions = ReplyOptions()


@dataclass(frozen=True, slots=True)
class CompletionOrder:
    """A raw prompt, as text or as ids."""

    prompt: str | tuple[int, ...]
    options: ReplyOptions = ReplyOptions()


@dataclass(frozen=True, slots=True)
class ReplyDelta:
    """Shown text that a round added, with the ids that landed in it."""

    text: str
    reasoning: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReplyDone:
    """The reply is whole; `text` is what was still held back."""

    finish_reason: str
    stats: ReplyStats
    token_sha: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class ReplyError:
    """The reply ended with an error that may be shown to the client."""

    message: str
    code: str | None = None


ReplyEvent = ReplyDelta | ReplyDone | ReplyError


class Reply:
    """A running reply, pulled by one reader."""

    __slots__ = ("_generation", "_ids", "_text", "created", "id", "prompt_tokens")

    def __init__(self, generation: Generation, text: ReplyText, created: int) -> None:
        self.id = secrets.token_hex(12)
        self.created = created
        self.prompt_tokens = len(generation.request.prompt)
        self._generation = generation
        self._text = text
        self._ids: list[int] = []

    @property
    def greedy(self) -> bool:
        """Whether the reply is drawn by plain argmax."""
        return self._generation.request.sampling.greedy

    @property
    def drafts(self) -> bool:
        """Whether the request allowed drafts."""
        return self._generation.request.draft

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Ids landed so far."""
        return tuple(self._ids)

    def next(self, timeout: float) -> ReplyEvent | None:
        """The next event, or None when `timeout` seconds brought none."""
        event = self._generation.next(timeout)
        if event is None:
            return None
        if isinstance(event, Landed):
            self._ids += event.ids
            return ReplyDelta(self._text.feed(event.ids), "", event.ids)
        if isinstance(event, Ended):
            tail = self._text.finish(stopped=event.stop is not None)
            return ReplyDone(event.reason, event.stats, token_sha(self._ids), tail)
        if isinstance(event, Failed):
            return ReplyError(event.message, event.code)
        assert isinstance(event, Cancelled)
        return ReplyError("The request was cancelled.")

    def listen(self, heard: Callable[[], None]) -> None:
        """Call `heard` after every event from now on, and once now; it must not wait."""
        self._generation.listen(heard)

    def cancel(self) -> None:
        """End the request at its next round; harmless afterwards."""
        self._generation.cancel()


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
    ) -> None:
        self.model_names = tuple(model_names)
        self._scheduler = scheduler
        self._tokenizer = tokenizer
        self._template = template
        self._defaults = defaults
        self._clock = clock
        self._thinking = thinking

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
        try:
            return self._tokenizer.encode(text)
        except ValueError:
            raise RequestError("The tokenizer cannot turn this text into ids.", param=param) from None

    def _variables(self, order: ChatOrder) -> Mapping[str, Any]:
        """The server's thinking toggle under what the request sets."""
        return {"enable_thinking": self._thinking, **(order.template_variables or {})}

    def _completion_ids(self, prompt: str | tuple[int, ...]) -> tuple[int, ...]:
        if isinstance(prompt, str):
            ids = tuple(self._encode(prompt, "prompt"))
        else:
            ids = prompt
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
        return Reply(generation, ReplyText(self._tokenizer.token_bytes, stops), int(self._clock.wall()))

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
