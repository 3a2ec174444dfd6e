"""The fields that chat and text completions share: sampling, limits, stops, streaming, and what is not offered.

A field this server cannot honour exactly is accepted at values that change nothing and refused at all others.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, model_validator

from tensorfold.application.orders import ReplyOptions
from tensorfold.domain.gates.grammar import Grammar
from tensorfold.entrypoints.http import fields, grammars
from tensorfold.entrypoints.http.fields import Flag, Integer, Number, Sequence, Text, only, read, within

MAX_STOPS = 16
MAX_STOP_LENGTH = 1024
MOST_TOKENS = 2**31 - 1
SEED_RANGE = (-(2**63), 2**64 - 1)


def _stops(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list):
        raise fields.refuse("must be null, a string or a list of strings")
    if len(stops) > MAX_STOPS:
        raise fields.refuse(f"holds {len(stops)} stop strings; at most {MAX_STOPS} are taken")
    for index, stop in enumerate(stops):
        at = () if isinstance(value, str) else (index,)
        if not isinstance(stop, str):
            raise fields.refuse("must be a string", at=at)
        if not stop:
            raise fields.refuse("is empty; a stop string needs at least one character", at=at)
        if len(stop) > MAX_STOP_LENGTH:
            raise fields.refuse(f"has {len(stop)} characters; at most {MAX_STOP_LENGTH} are taken", at=at)
    return tuple(stops)


def _one_choice(value: Any) -> int | None:
    n = fields.integer(value)
    if n is not None and n < 1:
        raise fields.refuse(f"is {n}; it must be 1")
    if n is not None and n > 1:
        raise fields.not_supported(f"is {n}; this server gives one choice per request")
    return n


def _priority(value: Any) -> str | None:
    if value in (None, "foreground", "background"):
        return None if value is None else str(value)
    raise fields.refuse('must be "foreground", "background" or null')


def _logit_bias(value: Any) -> dict[str, Any] | None:
    bias = fields.mapping(value)
    if bias:
        raise fields.not_supported("asks for biased tokens, which this server does not offer")
    return bias


def _no_logprobs(value: Any) -> None:
    if value is None or value is False or (value == 0 and not isinstance(value, (str, list, dict))):
        return
    raise fields.not_supported("asks for log probabilities, which this server does not offer")


Positive = Annotated[int | None, read(fields.integer), within(1, MOST_TOKENS, f"from 1 to {MOST_TOKENS}")]
Form = Grammar | None


class StreamOptions(BaseModel):
    """What a stream carries besides text."""

    model_config = ConfigDict(extra="ignore")
    include_usage: Flag = None
    continuous_usage_stats: Flag = None


class GenerationFields(BaseModel):
    """Fields of every route that generates. Null means absent; unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    model: Text = None
    max_tokens: Positive = None
    max_completion_tokens: Positive = None
    temperature: Annotated[Number, within(0, None, "0 or more")] = None
    top_p: Annotated[Number, within(0, 1, "above 0 and at most 1", open_low=True)] = None
    top_k: Annotated[Integer, within(-(2**31), 2**31 - 1, "a 32-bit integer")] = None
    min_p: Annotated[Number, within(0, 1, "from 0 to 1")] = None
    seed: Annotated[Integer, within(*SEED_RANGE, "a 64-bit integer")] = None
    stop: Annotated[tuple[str, ...], read(_stops)] = ()
    ignore_eos: Flag = None
    stream: Flag = None
    stream_options: Annotated[StreamOptions | None, read(fields.mapping)] = None
    draft: Flag = None
    priority: Annotated[str | None, read(_priority)] = None
    return_token_ids: Flag = None
    n: Annotated[int | None, read(_one_choice)] = None

    best_of: Annotated[Integer, only(1, what="several candidates")] = None
    min_tokens: Annotated[Integer, only(0, what="a least reply length")] = None
    frequency_penalty: Annotated[Number, only(0.0, what="a penalty")] = None
    presence_penalty: Annotated[Number, only(0.0, what="a penalty")] = None
    repetition_penalty: Annotated[Number, only(1.0, what="a penalty")] = None
    logit_bias: Annotated[dict[str, Any] | None, read(_logit_bias)] = None
    logprobs: Annotated[None, read(_no_logprobs)] = None
    top_logprobs: Annotated[None, read(_no_logprobs)] = None
    prompt_logprobs: Annotated[None, read(_no_logprobs)] = None
    response_format: Annotated[Form, read(grammars.read_response_format)] = None
    guided_json: Annotated[Form, read(grammars.read_json)] = None
    guided_regex: Annotated[Form, read(grammars.read_regex)] = None
    guided_choice: Annotated[Form, read(grammars.read_choice)] = None
    guided_grammar: Annotated[Form, read(grammars.read_lark)] = None
    structured_outputs: Annotated[Form, read(grammars.read_structured_outputs)] = None
    thinking_budget: Annotated[Integer, within(0, MOST_TOKENS, f"from 0 to {MOST_TOKENS}")] = None
    stop_token_ids: Annotated[Sequence, only([], what="stop tokens given as ids")] = None
    bad_words: Annotated[Sequence, only([], what="forbidden words")] = None
    allowed_token_ids: Annotated[Sequence, only([], what="a set of allowed tokens")] = None
    include_stop_str_in_output: Annotated[Flag, only(False, what="stop strings in the reply")] = None
    use_beam_search: Annotated[Flag, only(False, what="beam search")] = None

    @model_validator(mode="after")
    def _one_form(self) -> GenerationFields:
        asked = [name for name in grammars.FIELDS if getattr(self, name) is not None]
        if len(asked) > 1:
            raise fields.refuse(f"and {asked[1]} both ask for a form of the reply; send one", at=(asked[0],))
        return self

    @property
    def include_usage(self) -> bool:
        """Whether a last chunk of a stream carries the usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def usage_in_every_chunk(self) -> bool:
        """Whether every chunk carries the usage so far."""
        return self.include_usage and bool(self.stream_options and self.stream_options.continuous_usage_stats)

    @property
    def in_background(self) -> bool:
        """Whether others may pass in the queue."""
        return self.priority == "background"

    def options(self, *, label: str) -> ReplyOptions:
        """The application's view of these fields."""
        form = next((name for name in grammars.FIELDS if getattr(self, name) is not None), "")
        return ReplyOptions(
            max_tokens=self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            seed=self.seed,
            stops=self.stop,
            ignore_eos=bool(self.ignore_eos),
            draft=self.draft is not False,
            background=self.in_background,
            label=label,
            thinking_budget=self.thinking_budget or 0,
            grammar=getattr(self, form) if form else None,
            grammar_field=form,
            limit_field="max_tokens" if self.max_completion_tokens is None else "max_completion_tokens",
        )
