"""The serial reference: its two forms agree with each other and with one-row rounds of the model."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tensorfold.application.ports.target_model import LaneWindow, RoundBatch, Span
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.windows import chain
from tests.fakes.hash_law import HashLaw
from tests.fakes.hash_model import HashModel
from tests.fakes.serial import BYTE_IDS, SerialCase, completed_stop, serial_reference, serial_references

SETTINGS = (Sampling(), Sampling(5, 1.0), Sampling(6, 0.7, 20, 0.9, 0.05))


def _cases(count: int) -> list[SerialCase]:
    rng = random.Random(4)
    return [
        SerialCase(
            tuple(rng.randrange(64) for _ in range(rng.randint(1, 12))),
            rng.randint(1, 60),
            rng.choice(SETTINGS),
            frozenset(rng.sample(range(64), rng.choice((0, 1, 3)))),
            tuple(bytes(rng.randrange(64) for _ in range(rng.randint(1, 2))) for _ in range(rng.choice((0, 0, 3)))),
        )
        for _ in range(count)
    ]


def test_many_cases_side_by_side_give_the_replies_of_each_alone() -> None:
    law, cases = HashLaw(habit_share=0.3), _cases(120)
    together = serial_references(law, cases)
    alone = [serial_reference(law, c.prompt, c.max_tokens, c.sampling, c.stop_ids, stops=c.stops) for c in cases]
    assert together == alone
    assert {r.finish for r in alone} == {"stop", "length"} and any(r.stop for r in alone)


@pytest.mark.parametrize("sampling", SETTINGS)
def test_one_row_rounds_of_the_model_give_the_same_reply(sampling: Sampling) -> None:
    law, prompt = HashLaw(vocabulary=128), [5, 9, 127, 0]
    model = HashModel(law)
    lane = model.open(64)
    model.prefill(lane, np.array(prompt, dtype=np.int64), Span(0, 3))
    tokens = list(prompt)
    for position in range(3, 43):
        ticket = model.launch(RoundBatch((LaneWindow(lane, position, chain(tokens[-1]), sampling),)))
        tokens.append(model.collect(ticket).tokens[0][0])
        model.keep(ticket, [(0,)])
    assert tuple(tokens[4:]) == serial_reference(law, prompt, 40, sampling).tokens


def test_an_end_token_stands_in_the_reply_and_ends_it() -> None:
    law = HashLaw()
    whole = serial_reference(law, [1], 50).tokens
    ended = serial_reference(law, [1], 50, stop_ids=frozenset([whole[7]]))
    assert ended.tokens == whole[: whole.index(whole[7]) + 1] and (ended.finish, ended.stop) == ("stop", None)


def test_a_stop_string_ends_the_reply_at_the_token_that_completes_it() -> None:
    law = HashLaw()
    whole = serial_reference(law, [2], 50).tokens
    stop = bytes(whole[3:6])
    ended = serial_reference(law, [2], 50, stops=[stop, b"\xff"])
    assert ended.tokens == whole[:6] and (ended.finish, ended.stop) == ("stop", stop)


def test_a_stop_string_may_span_parts_of_tokens() -> None:
    law, table = HashLaw(), [b"ab", b"bc", b"", *BYTE_IDS]
    whole = serial_reference(law, [3], 30, token_bytes=table).tokens
    text = b"".join(table[t] for t in whole[:20])
    stop = text[9:12]
    ended = serial_reference(law, [3], 30, stops=[stop], token_bytes=table)
    joined = b"".join(table[t] for t in ended.tokens)
    assert stop in joined and stop not in b"".join(table[t] for t in ended.tokens[:-1])


def test_of_several_completed_stops_the_one_that_begins_first_counts_then_the_longest() -> None:
    assert completed_stop(b"xxabc", 2, [b"bc", b"abc", b"c"]) == b"abc"
    assert completed_stop(b"xxabc", 3, [b"ab", b"abc"]) == b"abc"
    assert completed_stop(b"xxabc", 1, [b"ab"]) is None
    assert completed_stop(b"", 0, [b"a"]) is None


def test_fixed_tokens_stand_in_for_drawn_ones_and_what_follows_reads_them() -> None:
    law = HashLaw()

    def fix(emitted: object, token: int) -> list[int] | None:
        return [11, 12, 13] if len(emitted) == 4 else None  # type: ignore[arg-type]

    plain, fixed = serial_reference(law, [4], 12).tokens, serial_reference(law, [4], 12, fix=fix).tokens
    assert fixed[:4] == plain[:4] and fixed[4:7] == (11, 12, 13)
    assert fixed[7:] == serial_reference(law, [4, *fixed[:7]], 5).tokens


def test_masks_bound_what_is_drawn() -> None:
    words = np.array([0b1011, 0], dtype=np.uint32)
    reply = serial_reference(HashLaw(), [5], 30, Sampling(1, 2.0), allow=lambda emitted: words)
    assert set(reply.tokens) == {0, 1, 3}
