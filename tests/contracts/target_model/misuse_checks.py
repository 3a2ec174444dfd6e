"""Misuse: a strict model raises at the call that breaks a rule of the port, and stands where it stood before it."""

from __future__ import annotations

from functools import partial

import numpy as np

from tensorfold.application.ports.target_model import RoundBatch, Span, Ticket
from tensorfold.domain.windows import chain, tree
from tests.contracts.candidates import refuses
from tests.contracts.target_model.misuse import launch, raises
from tests.contracts.target_model.rows import Driver, ModelSubject, driving, texts


def a_wrong_position_raises(subject: ModelSubject) -> None:
    """Too early, too late, below zero."""
    with driving(subject, [1, 2, 3, 4]) as (driver,):
        for position in (driver.absorbed - 1, driver.absorbed + 1, -1):
            raises(subject, driver, partial(launch, driver, chain(1), position))


def a_span_that_does_not_go_on_where_the_lane_stands_raises(subject: ModelSubject) -> None:
    """A gap, an overlap, an empty span, one past the prompt."""
    ids = np.arange(1, 17, dtype=np.int64)
    with driving(subject, [1, 2, 3, 4]) as (driver,):
        for span in (Span(2, 5), Span(4, 6), Span(3, 3), Span(3, 17)):
            raises(subject, driver, partial(subject.model.prefill, driver.lane, ids, span))


def ids_outside_the_vocabulary_raise(subject: ModelSubject) -> None:
    """In windows and in prompts, past the end and below zero."""
    vocabulary = subject.model.limits.vocabulary
    with driving(subject, [1, 2, 3]) as (driver,):
        for token in (vocabulary, -1, 2**40):
            raises(subject, driver, partial(launch, driver, chain(token)))
            if subject.chain_width > 1:
                raises(subject, driver, partial(launch, driver, chain(1, [token])))
            ids = np.array([1, 2, token, 3], dtype=np.int64)
            raises(subject, driver, partial(subject.model.prefill, driver.lane, ids, Span(2, 3)))


def windows_wider_than_the_limits_raise(subject: ModelSubject) -> None:
    """A chain, a tree, and a launch of too many rows."""
    limits = subject.model.limits
    with driving(subject, [1, 2, 3]) as (driver,):
        raises(subject, driver, lambda: launch(driver, chain(1, [2] * limits.chain_width)))
        wide = tree(1, [2] * limits.tree_width, [0] * limits.tree_width)
        if not wide.is_chain:
            raises(subject, driver, lambda: launch(driver, wide))


def a_launch_of_more_rows_than_the_batch_holds_raises(subject: ModelSubject) -> None:
    """Over all its lanes together."""
    limits = subject.model.limits
    count = limits.batch_rows // limits.chain_width + 1
    if not limits.shares_rounds or count > limits.max_streams:
        return
    with driving(subject, *[[1, 2, 3]] * count) as drivers:
        wide = chain(1, [2] * (limits.chain_width - 1))
        batch = RoundBatch(tuple(d.window(wide) for d in drivers))
        raises(subject, drivers[0], lambda: subject.model.launch(batch))


def a_lane_twice_in_a_launch_raises(subject: ModelSubject) -> None:
    """Even with the same window."""
    with driving(subject, [1, 2, 3]) as (driver,):
        raises(subject, driver, lambda: subject.model.launch(RoundBatch((driver.window(chain(1)),) * 2)))


def lanes_that_may_not_share_raise(subject: ModelSubject) -> None:
    """Where the load check turned sharing off."""
    if subject.model.limits.shares_rounds:
        return
    with driving(subject, [1, 2], [1, 2]) as (one, two):
        raises(subject, one, lambda: subject.model.launch(RoundBatch((one.window(chain(1)), two.window(chain(1))))))


def a_closed_lane_takes_no_call(subject: ModelSubject) -> None:
    """Not one of them."""
    model = subject.model
    with driving(subject, [1, 2, 3], [4, 5, 6]) as (driver, other):
        driver.close()
        ids = np.array([1, 2, 3], dtype=np.int64)
        raises(subject, other, lambda: launch(driver, chain(1)))
        raises(subject, other, lambda: model.prefill(driver.lane, ids, Span(2, 3)))
        raises(subject, other, lambda: model.fork(driver.lane))
        if subject.images:
            raises(subject, other, lambda: model.export(driver.lane))


def rows_neither_kept_nor_discarded_block_their_lane(subject: ModelSubject) -> None:
    """The next launch, prefill, fork and export raise until they are settled."""
    model = subject.model
    with driving(subject, [1, 2, 3]) as (driver,):
        before = driver.look(chain(1))
        ticket = launch(driver, chain(1))
        model.collect(ticket)
        refuses(lambda: launch(driver, chain(1)), Exception)
        refuses(lambda: model.prefill(driver.lane, np.array([1, 2, 3], dtype=np.int64), Span(2, 3)), Exception)
        refuses(lambda: model.fork(driver.lane), Exception)
        refuses(lambda: model.export(driver.lane), Exception)
        model.discard(ticket)
        assert driver.look(chain(1)) == before


def a_ticket_is_settled_once(subject: ModelSubject) -> None:
    """Collected once, kept or discarded once, and only when it is the model's own."""
    model = subject.model
    with driving(subject, [1, 2, 3], [1, 2, 3]) as (driver, fresh):
        ticket = launch(driver, chain(1))
        model.collect(ticket)
        refuses(lambda: model.collect(ticket), Exception)
        model.keep(ticket, [(0,)])
        driver.absorbed += 1
        raises(subject, driver, lambda: model.keep(ticket, [(0,)]))
        raises(subject, driver, lambda: model.discard(ticket))
        discarded = launch(driver, chain(1))
        model.discard(discarded)
        raises(subject, driver, lambda: model.discard(discarded))
        raises(subject, driver, lambda: model.collect(discarded))
        foreign = Ticket(10**9, 1)
        raises(subject, driver, lambda: model.collect(foreign))
        raises(subject, driver, lambda: model.keep(foreign, [(0,)]))
        raises(subject, driver, lambda: model.discard(foreign))
        fresh.serial([1])
        assert driver.serial([7, 8]) == fresh.serial([7, 8])


def a_path_that_does_not_follow_the_window_raises(subject: ModelSubject) -> None:
    """Not from row 0, with a gap, past the end, or of another count of windows."""
    if subject.chain_width < 3:
        return
    model = subject.model
    with driving(subject, [1, 2, 3]) as (driver,):
        before = driver.look(chain(1))
        ticket = launch(driver, chain(1, [2, 3]))
        model.collect(ticket)
        for paths in ([(1,)], [(0, 2)], [(0, 1, 2, 3)], [(0, 1, 1)], [], [(0,), (0,)]):
            refuses(partial(model.keep, ticket, paths), Exception)
        model.discard(ticket)
        assert driver.look(chain(1)) == before


def rows_past_the_lanes_capacity_raise(subject: ModelSubject) -> None:
    """A lane opened for n tokens absorbs n and no more."""
    model = subject.model
    (prompt,) = texts(subject, 1, 5, 4, 4)
    lane = model.open(len(prompt))
    model.prefill(lane, np.array(prompt, dtype=np.int64), Span(0, 3))
    driver = Driver(subject, prompt, lane)
    if subject.chain_width > 1:
        raises(subject, driver, lambda: launch(driver, chain(1, [2])))
    driver.serial([1])
    refuses(lambda: launch(driver, chain(1)), Exception)
    model.close(lane)
