"""Drafted replies equal serial replies, and after every round the lane holds exactly the reply less its last token.

The target is a pure function of the whole history: a rolling hash decides each row's logits, in few levels so that they
tie. Drafts are planted right and wrong, in chains and trees with duplicate siblings, under every way a reply can end.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.conversation.token_bytes import TokenBytes
from tensorfold.domain.gates.gate import Gate
from tensorfold.domain.gates.stop_strings import StopStrings
from tensorfold.domain.sampling import Sampling, draw
from tensorfold.domain.streams import Finish, Stream
from tensorfold.domain.verification import accept
from tensorfold.domain.windows import Window, chain, tree
from tests.domain.test_streams import At

VOCABULARY = 12
BYTES = TokenBytes([bytes([97 + token % 3]) * (1 + token % 2) for token in range(VOCABULARY)])


def absorb(state: int, token: int) -> int:
    return (state * 6364136223846793005 + token + 1442695040888963407) % 2**64


def row_logits(state: int) -> np.ndarray:
    levels = [(absorb(state, 7919 * token) >> 40) % 7 for token in range(VOCABULARY)]
    return np.array(levels, dtype=np.float32)


@dataclass
class Request:
    """What the reply depends on; everything else may only change speed."""

    prompt: list[int]
    sampling: Sampling
    max_tokens: int
    stop_ids: frozenset[int]
    gates: Callable[[], Sequence[Gate]]

    def stream(self) -> Stream:
        stream = Stream(
            self.prompt,
            max_tokens=self.max_tokens,
            sampling=self.sampling,
            stop_ids=self.stop_ids,
            gates=self.gates(),
        )
        stream.absorb_prompt()
        return stream


@dataclass
class Lane:
    """A lane of the target: absorbed tokens and, for each window, the draws of its rows."""

    tokens: list[int]

    def draws(self, window: Window, sampling: Sampling) -> list[int]:
        state = 0
        for token in self.tokens:
            state = absorb(state, token)
        states: list[int] = []
        drawn: list[int] = []
        for row, (token, parent) in enumerate(zip(window.tokens, window.parents, strict=True)):
            states.append(absorb(states[parent] if parent >= 0 else state, token))
            position = len(self.tokens) + 1 + window.depths()[row]
            drawn.append(draw(row_logits(states[row]), position, sampling) if row >= window.forced else -1)
        return drawn


Planner = Callable[[Stream, Lane], Window]


def run(request: Request, plan: Planner) -> tuple[list[int], Finish, list[bytes | None], int, int]:
    """Reply, finish, stops, drafts kept and rounds."""
    stream, lane = request.stream(), Lane(request.prompt[:-1])
    stops: list[bytes | None] = []
    kept = rounds = 0
    while stream.finish is None:
        window = plan(stream, lane)
        before = stream.emitted_count
        room = stream.room
        acceptance = accept(window, lane.draws(window, request.sampling), room, stream.stop_ids)
        assert 1 <= len(acceptance.tokens) <= max(1, room)
        committed = stream.commit(window, acceptance)
        lane.tokens += [window.tokens[row] for row in committed.kept]
        assert lane.tokens == stream.tokens[:-1]
        assert stream.absorbed == len(lane.tokens)
        assert len(committed.tokens) == stream.emitted_count - before
        if len(committed.tokens) > window.forced:
            assert len(committed.tokens) == committed.drafts_kept + 1 + window.forced
        stops.append(committed.stop)
        kept += committed.drafts_kept
        rounds += 1
    assert stops[:-1] == [None] * (rounds - 1)
    return stream.emitted, stream.finish, stops[-1:], kept, rounds


def serial(stream: Stream, lane: Lane) -> Window:
    return chain(stream.pending, (), stream.forced)


def planted(reply: Sequence[int], rng: random.Random) -> Planner:
    """Windows of drafts out of the serial reply and guesses past its end, some of them wrong; chains and trees."""

    def plan(stream: Stream, lane: Lane) -> Window:
        at = stream.emitted_count + len(stream.forced)
        truth = [*reply[at:], *rng.choices(range(VOCABULARY), k=4)][: rng.randrange(9)]
        drafts = [t if rng.random() < 0.8 else rng.randrange(VOCABULARY) for t in truth]
        if stream.forced or rng.random() < 0.4:
            return chain(stream.pending, drafts, stream.forced)
        rows, parents, last = list[int](), list[int](), 0
        for token in drafts:
            for _ in range(rng.randrange(3)):  # wrong and duplicate siblings, some with children of their own
                rows.append(rng.choice([token, rng.randrange(VOCABULARY)]))
                parents.append(rng.randrange(len(rows)))
            rows.append(token)
            parents.append(last)
            last = len(rows)
        return tree(stream.pending, rows, parents)

    return plan


REQUESTS = st.builds(
    Request,
    prompt=st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=6),
    sampling=st.builds(
        Sampling,
        seed=st.integers(0, 99),
        temperature=st.sampled_from([0.0, 0.7, 1.5]),
        top_k=st.sampled_from([0, 3]),
        top_p=st.sampled_from([1.0, 0.8]),
        min_p=st.sampled_from([0.0, 0.1]),
    ),
    max_tokens=st.integers(1, 40),
    stop_ids=st.sampled_from([frozenset[int](), frozenset({5}), frozenset({0, 3})]),
    gates=st.sampled_from(
        [
            list,
            lambda: [StopStrings(BYTES, [b"abab", b"cca", b"bbbb"])],
            lambda: [At(7, (50 % VOCABULARY, 4, 9))],
            lambda: [StopStrings(BYTES, [b"aacb"]), At(3, (1, 2)), At(11, (5, 6, 7, 8, 1, 2))],
        ]
    ),
)


@settings(derandomize=True, deadline=None, max_examples=120)
@given(REQUESTS, st.integers(0, 2**32))
@pytest.mark.slow
def test_a_drafted_reply_equals_the_serial_reply(request: Request, seed: int) -> None:
    reply, finish, stop, _, _ = run(request, serial)
    drafted, drafted_finish, drafted_stop, _, rounds = run(request, planted(reply, random.Random(seed)))
    assert (drafted, drafted_finish, drafted_stop) == (reply, finish, stop)
    assert rounds <= max(len(reply), 1)


def oracle(reply: Sequence[int], width: int) -> Planner:
    """Chains of `width` rows whose drafts are all right."""

    def plan(stream: Stream, lane: Lane) -> Window:
        at = stream.emitted_count
        return chain(stream.pending, reply[at : at + width - 1])

    return plan


def stopped_by(stops: Sequence[bytes]) -> Callable[[], Sequence[Gate]]:
    return lambda: [StopStrings(BYTES, stops)]


def endings(reply: Sequence[int], offset: int) -> list[tuple[int, frozenset[int], list[bytes]]]:
    """Ways to end a reply at its token `offset`: the limit, an end id, a stop string of its own bytes."""
    token = reply[offset]
    ends = [(offset + 1, frozenset[int](), list[bytes]())]
    if token not in reply[:offset]:
        ends.append((99, frozenset({token}), []))
    text = b"".join(map(BYTES.of, reply[: offset + 1]))
    tail = text[-7:]
    if tail not in text[:-1]:
        ends.append((99, frozenset[int](), [tail]))
    return ends


@pytest.mark.slow
def test_a_reply_that_ends_at_any_offset_of_a_kept_window_is_the_serial_reply() -> None:
    ended = {Finish.STOP: 0, Finish.LENGTH: 0}
    inside = 0
    for seed in range(12):
        sampling = Sampling(seed, 0.9 * (seed % 2))
        prompt = [seed % VOCABULARY, 3]
        reply, *_ = run(Request(prompt, sampling, 16, frozenset(), list), serial)
        for width in (4, 16):
            for offset in range(16):
                for limit, stop_ids, stops in endings(reply, offset):
                    request = Request(prompt, sampling, limit, stop_ids, stopped_by(stops))
                    answer = run(request, oracle(reply, width))
                    assert answer[:3] == run(request, serial)[:3]
                    assert answer[0] == reply[: offset + 1]
                    assert answer[4] == offset // width + 1
                    ended[answer[1]] += 1
                    inside += offset % width != width - 1
    assert min(ended.values()) >= 150
    assert inside >= 300


def test_planted_drafts_are_kept_and_refused() -> None:
    kept = rounds = tokens = 0
    for seed in range(20):
        request = Request([seed % VOCABULARY], Sampling(seed, 1.0), 40, frozenset(), list)
        reply, *_ = run(request, serial)
        answer = run(request, planted(reply, random.Random(seed)))
        kept, rounds, tokens = kept + answer[3], rounds + answer[4], tokens + len(reply)
    assert tokens == kept + rounds == 800
    assert 200 < kept < 700
