"""Lanes: opened, filled, forked, closed. A lane's state is its own, and what it absorbed is all that counts."""

from __future__ import annotations

import numpy as np

from tensorfold.application.ports.target_model import CapacityError, Span
from tensorfold.domain.windows import chain
from tests.contracts.candidates import refuses
from tests.contracts.target_model.rows import SETTINGS, Driver, ModelSubject, driving, fill, texts


def limits_costs_and_identity_are_whole(subject: ModelSubject) -> None:
    """Capacities are positive, costs ascend, and one sampler rule is named."""
    limits, costs = subject.model.limits, subject.model.costs
    assert limits.vocabulary > 1 and limits.context > 1
    assert min(limits.chain_width, limits.tree_width, limits.max_streams, limits.batch_rows) >= 1
    assert limits.prefill_slice >= 0 and limits.draft_context >= 0 and limits.resume in ("chunk", "prompt_end")
    rows = [row for row, _ in costs.rows_ms]
    assert rows and rows == sorted(set(rows)) and rows[0] >= 1
    assert all(ms > 0 for _, ms in costs.rows_ms) and costs.prefill_row_ms > 0 and all(ms >= 0 for ms in costs.head_ms)
    assert limits.sampler_rule == subject.model.identity.sampler_rule != ""
    assert subject.model.identity == subject.model.identity


def lanes_are_listed_until_they_are_closed(subject: ModelSubject) -> None:
    """`lanes` names each open lane once."""
    model = subject.model
    before = model.lanes()
    opened = [model.open(8), model.open(16)]
    assert len(set(opened)) == 2 and sorted(model.lanes()) == sorted((*before, *opened))
    model.close(opened[0])
    assert sorted(model.lanes()) == sorted((*before, opened[1]))
    model.close(opened[1])
    assert sorted(model.lanes()) == sorted(before)


def closing_an_unknown_lane_raises_key_error(subject: ModelSubject) -> None:
    """So does closing a lane twice."""
    lane = subject.model.open(8)
    subject.model.close(lane)
    refuses(lambda: subject.model.close(lane), KeyError)
    refuses(lambda: subject.model.close(10**9), KeyError)


def a_lane_larger_than_the_window_is_refused(subject: ModelSubject) -> None:
    """The refusal is a sentence and leaves no lane behind."""
    before = subject.model.lanes()
    error = refuses(lambda: subject.model.open(subject.model.limits.context + 1), CapacityError)
    assert isinstance(error, CapacityError) and error.message.endswith(".")
    assert subject.model.lanes() == before


def equal_histories_give_equal_rows(subject: ModelSubject) -> None:
    """Two lanes with one history, and a lane opened after others were closed, draw the same."""
    for prompt, reply in zip(texts(subject, 3, 1), texts(subject, 3, 2, 6, 10), strict=True):
        for sampling in SETTINGS:
            with driving(subject, prompt, prompt) as (one, two):
                expected = one.serial(reply, sampling)
                assert two.serial(reply, sampling) == expected
                one.close()
                assert Driver(subject, prompt).serial(reply, sampling) == expected


def different_histories_give_different_rows(subject: ModelSubject) -> None:
    """Swapped, dropped and repeated prompt ids show in the rows behind them."""
    prompt = [*range(1, 13), 1]
    vocabulary = subject.model.limits.vocabulary
    reply = [t % vocabulary for t in range(3, 19)]
    swapped, dropped, repeated = [2, 1, *prompt[2:]], prompt[1:], [1, *prompt]
    with driving(subject, prompt, swapped, dropped, repeated) as drivers:
        rows = [driver.serial(reply) for driver in drivers]
    assert all(rows[0] != other for other in rows[1:])


def a_fork_equals_its_original_and_goes_its_own_way(subject: ModelSubject) -> None:
    """Whatever either absorbs later, the other does not notice; it outlives its original."""
    for seed, prompt in enumerate(texts(subject, 3, 3)):
        mine, theirs = texts(subject, 2, 4 + seed, 5, 8)
        with driving(subject, prompt, prompt, prompt) as (original, alone, other):
            original.serial(mine[:2])
            alone.serial(mine[:2])
            other.serial(mine[:2])
            copy = original.forked()
            assert copy.lane != original.lane
            assert copy.serial(theirs) == other.serial(theirs)
            assert original.serial(mine[2:]) == alone.serial(mine[2:])
            original.close()
            assert copy.serial(mine) == other.serial(mine)


def a_prompt_may_be_absorbed_in_the_slices_that_the_limits_allow(subject: ModelSubject) -> None:
    """Slices of `prefill_slice` rows leave the state of the whole chunk, bit for bit."""
    size = subject.model.limits.prefill_slice
    longest = min(3 * size + 24, subject.model.limits.context - 8)
    if size == 0 or longest < size + 2:
        return
    for prompt in texts(subject, 3, 7, size + 2, longest):
        length = len(prompt) - 1
        with driving(subject, prompt) as (whole,):
            lane = subject.model.open(length + 8)
            for start in range(0, length, size):
                ticket = fill(subject.model, lane, prompt, start, min(start + size, length))
                assert ticket.rows == min(start + size, length) - start
            sliced = Driver(subject, prompt, lane)
            reply = texts(subject, 1, length, 6, 6)[0]
            assert sliced.serial(reply, SETTINGS[1]) == whole.serial(reply, SETTINGS[1])


def a_prefill_draws_nothing(subject: ModelSubject) -> None:
    """Its ticket counts its rows and brings no draws."""
    lane = subject.model.open(16)
    ticket = subject.model.prefill(lane, np.array([1, 2, 3, 4], dtype=np.int64), Span(0, 3))
    assert ticket.rows == 3
    assert tuple(subject.model.collect(ticket).tokens) == ()
    subject.model.close(lane)


def a_prompt_of_one_id_needs_no_prefill(subject: ModelSubject) -> None:
    """A fresh lane takes rows at position 0."""
    with driving(subject, [5], [5]) as (serial, wide):
        assert serial.absorbed == 0
        tokens = [5, 6, 7][: subject.chain_width]
        assert serial.serial(tokens) == wide.look(chain(tokens[0], tokens[1:]))
