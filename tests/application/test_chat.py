"""Orders become replies: everything refusable is refused first, and streamed text is the text of the ids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tensorfold.application.chat import ChatService
from tensorfold.application.errors import ContextExceededError, RequestError
from tensorfold.application.generation import Generation, StreamFactory
from tensorfold.application.orders import ChatOrder, CompletionOrder, ReplyOptions
from tensorfold.application.ports.tokenizer import RenderedChat
from tensorfold.application.replies import GenerationRequest, token_sha
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import EngineSettings, SamplingDefaults
from tensorfold.application.text_replies import Reply, ReplyDelta, ReplyDone, ReplyError
from tensorfold.domain.conversation.efforts import OWN
from tensorfold.domain.conversation.template_traits import TemplateTraits
from tensorfold.domain.conversation.token_bytes import TokenBytes
from tensorfold.domain.drafting.sources import DraftSource
from tensorfold.domain.families.plans import Dialect
from tensorfold.domain.sampling import Sampling, derive_seed
from tests.application.house import law, serving
from tests.fakes.clock import FakeClock
from tests.fakes.faulty_model import Fault, FaultyModel
from tests.fakes.hash_model import HashModel
from tests.fakes.serial import serial_reference
from tests.fakes.tokenizer import FakeTemplate, FakeTokenizer

LAW = law(41, vocabulary=512)
TOKENIZER = FakeTokenizer(512)
HELLO = ({"role": "user", "content": "Hello"},)


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    with serving(HashModel(LAW), context=200, token_bytes=TOKENIZER.token_bytes) as running:
        yield running


def service(scheduler: Scheduler, template: FakeTemplate | None = None, **defaults: float) -> ChatService:
    values = SamplingDefaults(**defaults)  # type: ignore[arg-type]
    return ChatService(
        scheduler, TOKENIZER, template or FakeTemplate(), values, FakeClock(wall=1234.5), model_names=("fake", "alias")
    )


def given_to_template(
    scheduler: Scheduler, named: tuple[str, ...], effort: str | None = None, **asked: object
) -> dict[str, object]:
    """The variables of a template that names these efforts, on a server of this effort, for a request that asks so."""
    template = FakeTemplate(TemplateTraits(efforts=named))
    chat = ChatService(
        scheduler, TOKENIZER, template, SamplingDefaults(), FakeClock(), model_names=("fake",), effort=effort
    )
    chat.chat_ids(ChatOrder(HELLO, template_variables=asked or None))
    return dict(template.calls[-1]["variables"])


@pytest.mark.parametrize(
    ("named", "effort", "asked", "given"),
    [
        ((), None, None, None),
        ((), "high", None, None),
        ((), None, "high", "high"),
        (("low", "medium", "xhigh"), None, None, "medium"),
        (("low", "medium", "xhigh"), "high", None, "xhigh"),
        (("low", "medium", "xhigh"), "low", "high", "xhigh"),
        (("low", "high"), None, None, None),
        (("low", "high"), "medium", None, "high"),
        (("low", "high"), None, "minimal", "low"),
        (("low", "medium"), OWN, None, None),
        (("low", "medium"), OWN, "high", "medium"),
    ],
)
def test_a_template_gets_an_effort_that_it_names_the_requests_before_the_servers(
    scheduler: Scheduler, named: tuple[str, ...], effort: str | None, asked: str | None, given: str | None
) -> None:
    fields = {} if asked is None else {"reasoning_effort": asked}
    variables = given_to_template(scheduler, named, effort, **fields)
    assert variables.pop("reasoning_effort", None) == given
    assert variables == {"enable_thinking": True}


@pytest.mark.parametrize("odd", [None, 3, ["high"]])
def test_an_effort_that_is_no_word_is_not_the_servers_to_bend(scheduler: Scheduler, odd: object) -> None:
    assert given_to_template(scheduler, ("low", "medium"), reasoning_effort=odd)["reasoning_effort"] == "medium"


def told(reply: Reply) -> tuple[str, ReplyDone]:
    text = ""
    while True:
        event = reply.next(10)
        if isinstance(event, ReplyDelta):
            text += event.text
        else:
            assert isinstance(event, ReplyDone), event
            return text + event.text, event


def test_a_chat_reply_is_the_serial_reply_to_the_rendered_prompt(scheduler: Scheduler) -> None:
    chat = service(scheduler)
    reply = chat.chat(ChatOrder(HELLO, options=ReplyOptions(max_tokens=20)))
    prompt = TOKENIZER.encode("<|user|>Hello<|end|><|assistant|>")
    expected = serial_reference(LAW, prompt, 20).tokens
    text, done = told(reply)
    assert reply.prompt_tokens == len(prompt) and reply.created == 1234 and reply.greedy and reply.drafts
    assert reply.token_ids == expected and done.token_sha == token_sha(expected) and done.finish_reason == "length"
    shown = b"".join(TOKENIZER.token_bytes.of(t) for t in expected).decode("utf-8", "replace")
    assert text == shown
    assert done.stats.completion_tokens == 20 and done.stats.tokens_per_second >= 0


def test_the_seed_comes_from_the_prompt_unless_it_is_given(scheduler: Scheduler) -> None:
    chat = service(scheduler, temperature=1.0, seed_salt=7)
    ids = (5, 6, 7)
    derived = told_ids(chat.complete(CompletionOrder(ids, ReplyOptions(max_tokens=12))))
    given = told_ids(
        chat.complete(CompletionOrder(ids, ReplyOptions(max_tokens=12, seed=-1, top_k=5, top_p=0.9, min_p=0.1)))
    )
    assert derived == serial_reference(LAW, ids, 12, Sampling(derive_seed(ids, 7), 1.0)).tokens
    assert given == serial_reference(LAW, ids, 12, Sampling(2**64 - 1, 1.0, 5, 0.9, 0.1)).tokens


def told_ids(reply: Reply) -> tuple[int, ...]:
    told(reply)
    return reply.token_ids


def test_a_completion_takes_text_or_ids(scheduler: Scheduler) -> None:
    chat = service(scheduler)
    as_text = told_ids(chat.complete(CompletionOrder("abc", ReplyOptions(max_tokens=5))))
    as_ids = told_ids(chat.complete(CompletionOrder(tuple(TOKENIZER.encode("abc")), ReplyOptions(max_tokens=5))))
    assert as_text == as_ids


def test_a_stop_string_ends_the_reply_and_is_not_shown(scheduler: Scheduler) -> None:
    chat = service(scheduler)
    whole, _ = told(chat.complete(CompletionOrder("abc", ReplyOptions(max_tokens=40))))
    stop = next(
        whole[i : i + 2] for i in range(4, len(whole)) if "�" not in whole[i : i + 2] and whole[i : i + 2].strip()
    )
    text, done = told(chat.complete(CompletionOrder("abc", ReplyOptions(max_tokens=40, stops=(stop,)))))
    assert done.finish_reason == "stop" and text == whole[: whole.index(stop)]


@pytest.mark.parametrize(
    ("order", "param", "words"),
    [
        (CompletionOrder(""), "prompt", "empty"),
        (CompletionOrder(()), "prompt", "empty"),
        (CompletionOrder((1, 512)), "prompt", r"prompt\[1\] is 512; token ids run from 0 to 511"),
        (CompletionOrder((-1,)), "prompt", r"prompt\[0\] is -1"),
    ],
)
def test_a_prompt_that_cannot_be_run_is_refused(
    scheduler: Scheduler, order: CompletionOrder, param: str, words: str
) -> None:
    with pytest.raises(RequestError, match=words) as refusal:
        service(scheduler).complete(order)
    assert refusal.value.param == param
    assert scheduler.counters.requests == 0


def test_a_conversation_that_cannot_be_rendered_is_refused(scheduler: Scheduler) -> None:
    template = FakeTemplate()
    template.refusal = "The template wants a user message first."
    with pytest.raises(RequestError, match="wants a user message first"):
        service(scheduler, template).chat(ChatOrder(HELLO))
    with pytest.raises(RequestError, match="role") as refusal:
        service(scheduler).chat(ChatOrder(({"role": "banana", "content": "x"},)))
    assert refusal.value.param == "messages[0].role"
    with pytest.raises(RequestError, match="renders no tools") as refusal:
        service(scheduler, FakeTemplate(TemplateTraits(takes_tools=False))).chat(
            ChatOrder(HELLO, tools=({"name": "t"},))
        )
    assert refusal.value.param == "tools"


def test_a_text_the_tokenizer_cannot_take_is_refused(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str) -> list[int]:
        raise ValueError("library text")

    monkeypatch.setattr(TOKENIZER, "encode", broken, raising=False)
    for order in (CompletionOrder("x"), ChatOrder(HELLO)):
        with pytest.raises(RequestError, match="cannot turn this text into ids") as refusal:
            service(scheduler).complete(order) if isinstance(order, CompletionOrder) else service(scheduler).chat(order)
        assert "library" not in refusal.value.message


def test_an_empty_rendered_prompt_is_refused(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    template = FakeTemplate()
    monkeypatch.setattr(TOKENIZER, "encode", lambda text: [], raising=False)
    with pytest.raises(RequestError, match="empty prompt"):
        service(scheduler, template).chat(ChatOrder(HELLO))


def test_a_prompt_beyond_the_window_names_the_field_it_came_from(scheduler: Scheduler) -> None:
    chat = service(scheduler)
    assert chat.context == 200
    with pytest.raises(ContextExceededError) as refusal:
        chat.chat(ChatOrder(({"role": "user", "content": "x" * 300},)))
    assert refusal.value.param == "messages" and "in the messages" in refusal.value.message
    with pytest.raises(ContextExceededError, match="in the prompt"):
        chat.complete(CompletionOrder("x" * 300))


def test_a_prompt_far_beyond_the_window_is_refused_without_being_encoded_or_looked_through(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = service(scheduler)
    longest = max(len(TOKENIZER.token_bytes.table[token]) for token in range(TOKENIZER.vocabulary))
    monkeypatch.setattr(TOKENIZER, "encode", lambda text: [1] * (len(text) // longest), raising=False)
    with pytest.raises(ContextExceededError):
        chat.complete(CompletionOrder("x" * 200 * longest))
    monkeypatch.setattr(TOKENIZER, "encode", lambda text: pytest.fail("encoded"), raising=False)
    with pytest.raises(RequestError, match=f"maximum context length is 200 tokens.* {200 * longest} ") as refusal:
        chat.complete(CompletionOrder("x" * (200 * longest + 1)))
    assert (refusal.value.param, refusal.value.code) == ("prompt", "context_length_exceeded")
    with pytest.raises(RequestError, match="the messages come to"):
        chat.chat(ChatOrder(({"role": "user", "content": "x" * 200 * longest},)))
    with pytest.raises(ContextExceededError, match="500 in the prompt"):
        chat.complete(CompletionOrder((10**9,) * 500))


def test_template_variables_reach_the_template_over_the_servers_own(scheduler: Scheduler) -> None:
    template = FakeTemplate()
    chat = service(scheduler, template)
    chat.chat_ids(ChatOrder(HELLO))
    chat.chat_ids(ChatOrder(HELLO, tools=({"name": "t"},), template_variables={"enable_thinking": False, "x": 1}))
    assert template.calls[0]["variables"] == {"enable_thinking": True}
    assert template.calls[1]["variables"] == {"enable_thinking": False, "x": 1}


def test_a_fault_and_a_cancellation_end_a_reply_with_a_sentence() -> None:
    model = FaultyModel(HashModel(LAW), [Fault("launch")])
    with serving(model, token_bytes=TOKENIZER.token_bytes) as scheduler:
        chat = service(scheduler)
        failed = chat.complete(CompletionOrder("abc")).next(10)
        assert isinstance(failed, ReplyError) and "failed inside the engine" in failed.message
        model.faults.clear()
        reply = chat.complete(CompletionOrder("abc", ReplyOptions(max_tokens=4000, ignore_eos=True)))
        reply.cancel()
        while isinstance(event := reply.next(10), ReplyDelta):
            pass
        assert isinstance(event, ReplyError) and "cancelled" in event.message
        assert reply.next(0.01) is None


def test_a_server_that_drains_takes_no_order(scheduler: Scheduler) -> None:
    from tensorfold.application.errors import OverloadedError

    scheduler.drain()
    with pytest.raises(OverloadedError):
        service(scheduler).complete(CompletionOrder("abc"))


def test_sampling_defaults_hold_until_a_request_says_otherwise(scheduler: Scheduler) -> None:
    chat = service(scheduler, temperature=0.0)
    assert EngineSettings().drafts
    reply = chat.complete(CompletionOrder("abc", ReplyOptions(max_tokens=3, temperature=0.9, draft=False)))
    told(reply)
    assert not reply.greedy and not reply.drafts


def test_an_end_token_counts_but_its_text_is_not_shown_unless_it_is_ignored() -> None:
    whole = serial_reference(LAW, TOKENIZER.encode("abc"), 30).tokens
    end = next(t for t in whole[5:] if TOKENIZER.token_bytes.of(t))
    cut = whole[: whole.index(end) + 1]
    with serving(HashModel(LAW), stop_ids=frozenset({end}), token_bytes=TOKENIZER.token_bytes) as scheduler:
        chat = service(scheduler)
        text, done = told(chat.complete(CompletionOrder("abc", ReplyOptions(max_tokens=30))))
        kept, _ = told(chat.complete(CompletionOrder("abc", ReplyOptions(max_tokens=30, ignore_eos=True))))
    assert done.finish_reason == "stop" and done.stats.completion_tokens == len(cut)
    assert text == _text(cut[:-1]) and kept == _text(whole)


def _text(ids: tuple[int, ...]) -> str:
    return b"".join(TOKENIZER.token_bytes.of(t) for t in ids).decode("utf-8", "replace")


def test_an_end_token_completes_no_stop_string() -> None:
    whole = serial_reference(LAW, TOKENIZER.encode("abc"), 30).tokens
    end = next(t for t in whole[5:] if TOKENIZER.token_bytes.of(t).strip().isascii() and TOKENIZER.token_bytes.of(t))
    stop = TOKENIZER.token_bytes.of(end).decode()
    with serving(HashModel(LAW), stop_ids=frozenset({end}), token_bytes=TOKENIZER.token_bytes) as scheduler:
        text, done = told(
            service(scheduler).complete(CompletionOrder("abc", ReplyOptions(max_tokens=30, stops=(stop,))))
        )
    before = whole[: whole.index(end)]
    assert stop not in _text(before) and text == _text(before) and done.finish_reason == "stop"


class Opening(FakeTemplate):
    """A template that always opens a thought."""

    def render(self, *messages: Any, **how: Any) -> RenderedChat:
        return RenderedChat(super().render(*messages, **how).text + "<think>\n")


def plan_of_a_family(efforts: tuple[str, ...] = ()) -> Dialect:
    return Dialect("<think>", "</think>", efforts=efforts, tool_calls="json")


def with_dialect(scheduler: Scheduler, template: FakeTemplate, dialect: Dialect | None = None) -> ChatService:
    return ChatService(
        scheduler, TOKENIZER, template, SamplingDefaults(), FakeClock(), model_names=("fake",), dialect=dialect
    )


def test_a_familys_dialect_counts_where_the_template_shows_none(scheduler: Scheduler) -> None:
    options = ReplyOptions(max_tokens=12)
    plain = with_dialect(scheduler, Opening()).chat(ChatOrder(HELLO, options=options))
    text, _ = told(plain)
    thinking = with_dialect(scheduler, Opening(), plan_of_a_family()).chat(ChatOrder(HELLO, options=options))
    events = []
    while not isinstance(event := thinking.next(10), ReplyDone):
        assert isinstance(event, ReplyDelta)
        events.append(event)
    reasoning = "".join(event.reasoning for event in events) + event.reasoning
    assert reasoning == text.lstrip("\n") != ""
    assert "".join(event.text for event in events) + event.text == ""
    assert (event.reasoning_tokens, event.finish_reason) == (12, "length")
    assert thinking.token_ids == plain.token_ids


def test_an_effort_that_the_family_knows_is_given_where_the_template_reads_efforts(scheduler: Scheduler) -> None:
    for named, given in ((("low", "high"), "max"), ((), "max")):
        template = FakeTemplate(TemplateTraits(efforts=named))
        chat = with_dialect(scheduler, template, plan_of_a_family(("low", "high", "max")))
        chat.chat_ids(ChatOrder(HELLO, template_variables={"reasoning_effort": "max"}))
        assert template.calls[-1]["variables"]["reasoning_effort"] == given


def test_a_dialect_that_nobody_wrote_stops_the_start(scheduler: Scheduler) -> None:
    with pytest.raises(KeyError):
        with_dialect(scheduler, FakeTemplate(), Dialect(tool_calls="owl"))


def test_special_tokens_that_mark_calls_are_text_of_a_chat_and_not_of_a_completion(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked = FakeTokenizer(512, ("<tool_call>", "</tool_call>", "<|end|>"))
    chat = ChatService(
        scheduler,
        marked,
        FakeTemplate(),
        SamplingDefaults(),
        FakeClock(),
        model_names=("m",),
        dialect=plan_of_a_family(),
    )
    asked: list[GenerationRequest] = []
    submit = scheduler.submit

    def noted(request: GenerationRequest, source: DraftSource | None = None) -> Generation:
        asked.append(request)
        return submit(request, source)

    monkeypatch.setattr(scheduler, "submit", noted)
    told(chat.chat(ChatOrder(HELLO, options=ReplyOptions(max_tokens=2))))
    told(chat.chat(ChatOrder(HELLO, options=ReplyOptions(max_tokens=2), as_text=True)))
    told(chat.complete(CompletionOrder("abc", ReplyOptions(max_tokens=2))))
    marks = {marked.token_id("<tool_call>"), marked.token_id("</tool_call>")}
    assert [request.marks for request in asked] == [marks, frozenset(), frozenset()]
    assert [request.thoughts is None for request in asked] == [False, True, True]


def test_every_request_shows_its_marks_and_hides_its_ends() -> None:
    table = TokenBytes((b"a", b"<m>", b"<e>"), frozenset({1, 2}))
    factory = StreamFactory(context=9, max_tokens=9, stop_ids=frozenset({2}), token_bytes=table)
    request = GenerationRequest(prompt=(0,), sampling=Sampling())
    assert factory.shown_bytes(request) is table
    assert factory.shown_bytes(replace(request, marks=frozenset({1, 2}))).special == {2}
    assert factory.shown_bytes(replace(request, marks=frozenset({1, 2}), ignore_eos=True)).special == set()
