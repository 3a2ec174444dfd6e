"""Checks of draft heads: what they answer, that they read every absorbed token, that asking them changes nothing."""

from __future__ import annotations

import numpy as np

from tensorfold.application.ports.target_model import (
    Chain,
    HeadLimits,
    LaneWindow,
    Lattice,
    Path,
    ProposeSpec,
    RoundBatch,
)
from tensorfold.domain.windows import Window, chain
from tests.contracts.target_model.rows import GREEDY, SETTINGS, Driver, ModelSubject, driving, texts


def _depth(head: HeadLimits | None) -> int:
    return min(3, head.most) if head is not None else 3


def a_head_answers_each_lane_within_what_was_asked(subject: ModelSubject) -> None:
    """A chain, a lattice or None for each lane in order; ids are the model's and no more than asked for."""
    limits = subject.model.limits
    depth = _depth(limits.head)
    prompts = texts(subject, 3, 83)
    with driving(subject, *prompts) as drivers:
        specs = [ProposeSpec(d.lane, p[0], depth, s) for d, p, s in zip(drivers, prompts, SETTINGS, strict=False)]
        for width in range(1, depth + 1):
            offers = subject.model.propose([ProposeSpec(s.lane, s.pending, width, s.sampling) for s in specs])
            assert len(offers) == len(specs)
            for offer in offers:
                _sound(offer, width, limits.vocabulary, limits.head)
        assert subject.model.propose([]) == []


def _sound(offer: Chain | Lattice | None, depth: int, vocabulary: int, head: HeadLimits | None) -> None:
    if offer is None:
        return
    assert head is not None and head.most >= head.drafts >= 1 and head.title
    if isinstance(offer, Chain):
        assert head.kind == "chain" and len(offer.tokens) == len(offer.confidence) <= depth
        assert all(0 <= t < vocabulary for t in offer.tokens)
        assert all(0.0 <= c <= 1.0 for c in offer.confidence)
        return
    assert head.kind == "lattice" and len(offer.ids) == len(offer.scores) == len(offer.pair) <= depth
    before = 1
    for ids, scores, pair in zip(offer.ids, offer.scores, offer.pair, strict=True):
        assert [part.dtype.name for part in (ids, scores, pair)] == ["int64", "float64", "float64"]
        assert ids.shape == scores.shape and pair.shape == (before, len(ids))
        assert ids.min() >= 0 and ids.max() < vocabulary and len(np.unique(ids)) == len(ids)
        assert not np.isnan(scores).any() and not np.isnan(pair).any()
        before = len(ids)


def a_head_drafts_from_everything_its_lane_absorbed(subject: ModelSubject) -> None:
    """Whether tokens came by prompt, one a round, or in one window, and whether or not it was asked in between."""
    depth, width = _depth(subject.model.limits.head), min(subject.chain_width, 4)
    (text,) = texts(subject, 1, 84, 4 + width, 4 + width)
    (pending,) = texts(subject, 1, 85, 1, 1)
    first, rest = text[: 1 - width or len(text)], text[-width:]
    with driving(subject, [*text, *pending], first, first) as (whole, serial, wide):
        serial.serial(rest[:-1])
        _asked(subject, serial.lane, rest[-1], depth)
        serial.serial(rest[-1:])
        wide.take(chain(rest[0], rest[1:]), range(width))
        expected = _asked(subject, whole.lane, pending[0], depth)
        for driver in (serial, wide):
            _alike(_asked(subject, driver.lane, pending[0], depth), expected)


def _asked(subject: ModelSubject, lane: int, pending: int, depth: int) -> Chain | Lattice | None:
    (offer,) = subject.model.propose([ProposeSpec(lane, pending, depth, GREEDY)])
    return offer


def _alike(one: Chain | Lattice | None, other: Chain | Lattice | None) -> None:
    """The same ids; scores may differ where a prompt's arithmetic is not a round's."""
    assert type(one) is type(other)
    if isinstance(one, Chain) and isinstance(other, Chain):
        assert one.tokens == other.tokens
    if isinstance(one, Lattice) and isinstance(other, Lattice):
        assert [set(ids.tolist()) for ids in one.ids] == [set(ids.tolist()) for ids in other.ids]


def a_proposal_changes_no_row(subject: ModelSubject) -> None:
    """Asking a head, once or twice, leaves the lane as it stood, and the second answer is the first."""
    depth = _depth(subject.model.limits.head)
    prompts, replies = texts(subject, 2, 81), texts(subject, 2, 82, 5, 5)
    for prompt, reply in zip(prompts, replies, strict=True):
        with driving(subject, prompt, prompt) as (driver, serial):
            for token in reply:
                _alike(_asked(subject, driver.lane, token, depth), _asked(subject, driver.lane, token, depth))
                assert driver.serial([token]) == serial.serial([token])


def drafts_follow_the_rows_that_are_kept(subject: ModelSubject) -> None:
    """Round after round of drafts, of which rows stand, or are cut off where none had to be, or all are forgotten.

    Drafts of a lane that took the same tokens one by one are the same.
    """
    depth, width = _depth(subject.model.limits.head), min(subject.chain_width, 4)
    prompts = texts(subject, 2, 86, 9, 12)
    with driving(subject, *prompts, *prompts) as drivers:
        pairs, pending = list(zip(drivers[:2], drivers[2:], strict=True)), [prompt[-1] for prompt in prompts]
        for number in range(9):
            specs = [
                ProposeSpec(pair[0].lane, token, depth, GREEDY) for pair, token in zip(pairs, pending, strict=True)
            ]
            offers = subject.model.propose(specs)
            for (_, twin), offer, token in zip(pairs, offers, pending, strict=True):
                _alike(offer, _asked(subject, twin.lane, token, depth))
                twin.look(chain(token))  # between, so that nothing is a habit of this one
            for at, (driver, twin) in enumerate(pairs):
                reply = _reply(twin, pending[at], width)
                right = reply[: number % width]
                wrong = [(reply[len(right)] + 1) % subject.model.limits.vocabulary]
                window = chain(pending[at], [*right, *wrong * (width - 1 - len(right))])
                kept = () if number == 4 else tuple(range(1 if number == 5 else 1 + len(right)))
                drawn = _kept(driver, window, kept)
                twin.serial([window.tokens[row] for row in kept])
                if kept:
                    pending[at] = drawn if number != 6 else 3


def _reply(driver: Driver, pending: int, count: int) -> list[int]:
    """What a lane's stream would take behind its pending token."""
    drawn, copy = [pending], driver.forked()
    for _ in range(count):
        drawn.append(copy.serial(drawn[-1:])[0].draw)
    copy.close()
    return drawn[1:]


def _kept(driver: Driver, window: Window, path: Path) -> int:
    """The last draw of what stays of a round, or of its first row where it is forgotten."""
    ticket = driver.model.launch(RoundBatch((LaneWindow(driver.lane, driver.absorbed, window, GREEDY),)))
    (draws,) = driver.model.collect(ticket).tokens
    drawn = int(draws[path[-1] if path else 0])
    if path:
        driver.model.keep(ticket, [path])
    else:
        driver.model.discard(ticket)
    driver.absorbed += len(path)
    return drawn
