"""Replies under a grammar or a thinking budget: drafted and shared ones equal the serial ones, token for token."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tensorfold.application.replies import Ended, Failed, GenerationRequest
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.conversation.reply_form import THINK
from tensorfold.domain.conversation.thoughts import ThoughtSplitter
from tensorfold.domain.drafting.copies import CopySourceFactory
from tensorfold.domain.gates.constraint import Constraint, FormError
from tensorfold.domain.gates.thought_end import ThoughtEnd
from tensorfold.domain.sampling import Sampling, draw_rows
from tests.application.house import Read, idle, law, read, serving
from tests.fakes.draft_sources import OracleSource
from tests.fakes.faulty_model import Fault, FaultyModel
from tests.fakes.grammar import FakeGrammarCompiler, FakeGrammarMatcher
from tests.fakes.hash_launch import DrawnRows, HashLaunch
from tests.fakes.hash_law import HashLaw
from tests.fakes.hash_model import HashModel
from tests.fakes.serial import SerialReply, serial_reference
from tests.fakes.tokenizer import FakeTokenizer

VOCABULARY = 300
TOKENIZER = FakeTokenizer(VOCABULARY)
COMPILER = FakeGrammarCompiler(TOKENIZER)
END = TOKENIZER.end_id
CLOSE = tuple(TOKENIZER.encode("\n</think>\n\n"))
PROPERTY = settings(derandomize=True, deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
samplings = st.sampled_from([Sampling(), Sampling(7, 1.0), Sampling(11, 0.7, 20, 0.9, 0.05)])


@st.composite
def automata(draw: st.DrawFn) -> str:
    """Automata over a few letters that can be left from every state, some with long ways to go."""
    states = draw(st.integers(2, 6))
    letters = "abcdefgh"
    edges = [[s, letters[s], (s + 1) % states] for s in range(states)]
    for _ in range(draw(st.integers(0, 8))):
        pair = draw(st.tuples(st.integers(0, states - 1), st.integers(0, states - 1)))
        edges.append([pair[0], draw(st.sampled_from(letters.replace(letters[pair[0]], ""))), pair[1]])
    return json.dumps({"start": 0, "accept": [states - 1], "edges": edges})


@st.composite
def asked(draw: st.DrawFn) -> tuple[HashLaw, list[GenerationRequest], list[SerialReply]]:
    """Requests with and without a grammar, a thought left open and a budget."""
    the_law = law(draw(st.integers(0, 2**32)), VOCABULARY, draw(st.sampled_from([0.0, 0.4])))
    requests, expected = [], []
    for _ in range(draw(st.integers(1, 4))):
        thinks = draw(st.booleans())
        grammar = draw(st.one_of(st.none(), automata()))
        request = GenerationRequest(
            tuple(draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=12))),
            draw(samplings),
            draw(st.integers(1, 40)),
            stop_ids=frozenset({END}),
            thoughts=THINK if thinks else None,
            in_thought=thinks,
            thinking_budget=draw(st.sampled_from([0, 1, 2, 7, 20])) if thinks else 0,
            thought_close=CLOSE if grammar is None else CLOSE[:-2],
            audit=True,
        )
        expected.append(serial(the_law, request, grammar))
        requests.append(replace(request, constraint=constraint(grammar, thinks)) if grammar else request)
    return the_law, requests, expected


@lru_cache(maxsize=64)
def compiled(grammar: str) -> FakeGrammarMatcher:
    return COMPILER.compile("automaton", grammar)


def constraint(grammar: str, thinks: bool) -> Constraint:
    end = ThoughtEnd(TOKENIZER.token_bytes, THINK) if thinks else None
    return Constraint(compiled(grammar), VOCABULARY, frozenset({END}), end)


def serial(the_law: HashLaw, request: GenerationRequest, grammar: str | None) -> SerialReply:
    """The reply without the engine, its masks and forced tokens worked out from the whole reply each time."""

    def open_thought(emitted: Sequence[int]) -> ThoughtSplitter | None:
        splitter = request.splitter()
        if splitter is not None:
            splitter.feed(b"".join(TOKENIZER.token_bytes.of(t) for t in emitted))
        return splitter

    def fix(emitted: Sequence[int], token: int) -> Sequence[int] | None:
        splitter = open_thought(emitted)
        over = request.thinking_budget and len(emitted) + 1 >= request.thinking_budget
        return request.thought_close if over and splitter is not None and splitter.inside else None

    def allow(emitted: Sequence[int]) -> NDArray[np.uint32] | None:
        if grammar is None:
            return None
        text, answer = b"", 0
        while request.in_thought and b"</think>" not in text:
            if answer == len(emitted):
                words = np.full((VOCABULARY + 31) // 32, 0xFFFFFFFF, dtype=np.uint32)
                words[END // 32] &= ~np.uint32(1 << END % 32)
                return words
            text += TOKENIZER.token_bytes.of(emitted[answer])
            answer += 1
        matcher = compiled(grammar).copy()
        matcher.advance(emitted[answer:])
        return matcher.mask()

    return serial_reference(
        the_law, request.prompt, request.max_tokens or 0, request.sampling, frozenset({END}), fix=fix, allow=allow
    )


def replies(model: HashModel, requests: Sequence[GenerationRequest], expected: Sequence[SerialReply]) -> list[Read]:
    engine = EngineSettings(force_windows=True)
    with serving(
        model, settings=engine, sources=(CopySourceFactory(),), token_bytes=TOKENIZER.token_bytes
    ) as scheduler:
        sources = [OracleSource(i, e.tokens, VOCABULARY, hits=(0.8,)) for i, e in enumerate(expected)]
        running = [scheduler.submit(r, s) for r, s in zip(requests, sources, strict=True)]
        got = [read(generation) for generation in running]
        idle(scheduler)
        assert not scheduler.check_integrity() and not model.misuses
    return got


Case = tuple[HashLaw, list[GenerationRequest], list[SerialReply]]


def pairs(case: Case) -> list[tuple[GenerationRequest, SerialReply]]:
    return list(zip(case[1], case[2], strict=True))


@PROPERTY
@given(asked())
@pytest.mark.slow
def test_drafted_shared_and_undrafted_replies_are_the_serial_ones(case: Case) -> None:
    the_law, requests, expected = case
    got = replies(HashModel(the_law), requests, expected)
    narrow = [replies(HashModel(the_law, chain_width=3, tree_width=1), [r], [e])[0] for r, e in pairs(case)]
    undrafted = replies(HashModel(the_law), [replace(r, draft=False) for r in requests], expected)
    for each in (got, narrow, undrafted):
        assert [tuple(reply.ids) for reply in each] == [reply.tokens for reply in expected]
        assert [reply.end.reason for reply in each if isinstance(reply.end, Ended)] == [e.finish for e in expected]


class MaskedAfterDrawing(HashModel):
    """Draws from the whole row and then looks for the nearest token that the mask allows: the order is wrong."""

    def _draw(self, launch: HashLaunch) -> tuple[Sequence[int], ...]:
        rows = self._gathered(launch)
        drawn = draw_rows(self._logits(rows), rows.draw_positions, rows.samplings)
        for row, mask in rows.masks:
            allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
            drawn[row] = int(allowed[np.abs(allowed - drawn[row]).argmin()])
        return rows.split(drawn)


def test_a_mask_applied_after_sampling_is_caught() -> None:
    the_law = law(3, VOCABULARY)
    grammar = json.dumps({"start": 0, "accept": [1], "edges": [[0, "abcdefghijklmnopqrstuvwxyz", 0], [0, ".", 1]]})
    request = GenerationRequest((1, 2, 3), Sampling(5, 1.0), 40, stop_ids=frozenset({END}))
    expected = serial(the_law, request, grammar)
    request = replace(request, constraint=constraint(grammar, thinks=False))
    assert tuple(replies(HashModel(the_law), [request], [expected])[0].ids) == expected.tokens
    assert tuple(replies(MaskedAfterDrawing(the_law), [request], [expected])[0].ids) != expected.tokens


class MasksForgotten(HashModel):
    """Never sees a mask."""

    def _gathered(self, launch: HashLaunch) -> DrawnRows:
        return replace(super()._gathered(launch), masks=[])


def test_a_token_outside_the_grammar_ends_its_own_request_alone() -> None:
    the_law = law(4, VOCABULARY)
    grammar = json.dumps({"start": 0, "accept": [1], "edges": [[0, "a", 1]]})
    free = GenerationRequest((1, 2), Sampling(), 20, stop_ids=frozenset({END}))
    bound = replace(free, constraint=constraint(grammar, thinks=False))
    expected = serial(the_law, free, None)
    got = replies(MasksForgotten(the_law), [bound, free], [expected, expected])
    assert isinstance(got[0].end, Failed) and tuple(got[1].ids) == expected.tokens


class OutgrowingMatcher(FakeGrammarMatcher):
    """One that finds at its fifth letter that it has become too large."""

    def mask(self) -> NDArray[np.uint32]:
        if self._at == 4:
            raise FormError("The reply cannot go on.")
        return super().mask()

    def copy(self) -> OutgrowingMatcher:
        return OutgrowingMatcher(self._automaton, self._tokenizer, self._masks, self._at)


@pytest.mark.parametrize("drafts", [True, False])
def test_a_form_that_outgrows_its_limits_ends_its_own_request_and_says_so(drafts: bool) -> None:
    automaton = json.dumps({"start": 0, "accept": [6], "edges": [[s, "abcdefg"[s], s + 1] for s in range(6)]})
    made = compiled(automaton)
    outgrowing = OutgrowingMatcher(made._automaton, made._tokenizer, {}, made._at)
    free, ends = GenerationRequest((1, 2, 3), Sampling(), 30, stop_ids=frozenset({END})), frozenset({END})
    asks = [replace(free, constraint=Constraint(matcher, VOCABULARY, ends)) for matcher in (outgrowing, made)]
    sources = (CopySourceFactory(),) if drafts else ()
    with serving(HashModel(law(3, VOCABULARY)), sources=sources) as scheduler:
        outgrown, other = [read(g) for g in [scheduler.submit(one) for one in asks]]
        idle(scheduler)
    assert outgrown.end == Failed("The reply cannot go on.") and bytes(outgrown.ids) == b"abcd"
    assert bytes(other.ids[:-1]) == b"abcdef" and other.ids[-1] == END


@pytest.mark.parametrize("thinks", [False, True])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(7, 1.0)])
def test_a_reply_under_a_grammar_is_read_again_under_it(sampling: Sampling, thinks: bool) -> None:
    """Lanes are made anew in the middle of a reply, as when a stream gives its own up to another."""
    the_law, letters = law(5, VOCABULARY), "abcdefghijklmnopqrstuvwxyz"
    grammar = json.dumps({"start": 0, "accept": [1], "edges": [[0, letters, 0], [0, ".", 1]]})
    request = GenerationRequest(
        (1, 2, 3), sampling, 80, stop_ids=frozenset({END}), thoughts=THINK if thinks else None, in_thought=thinks,
        thinking_budget=20 if thinks else 0, thought_close=CLOSE[:-2],
    )  # fmt: skip
    expected = serial(the_law, request, grammar)
    model = FaultyModel(HashModel(the_law), [Fault("keep", nth=n) for n in (1, 5, 11)])
    with serving(model) as scheduler:
        got = read(scheduler.submit(replace(request, constraint=constraint(grammar, thinks))))
        idle(scheduler)
        assert scheduler.counters.rebuilds == 3
    assert isinstance(got.end, Ended) and tuple(got.ids) == expected.tokens and len(got.ids) > 10
