"""Rows: a row's draw follows its own history, settings and position, whatever stands beside it; only kept rows stay."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from tensorfold.application.ports.target_model import RoundBatch
from tensorfold.domain.sampling import Sampling, noise
from tensorfold.domain.windows import Window, chain
from tests.contracts.target_model.rows import (
    SETTINGS,
    Driver,
    ModelSubject,
    Row,
    driving,
    random_tree,
    rows_of,
    texts,
    widths,
)


def chain_rows_equal_serial_rows(subject: ModelSubject) -> None:
    """At every width up to the limit, from several lengths, whatever the drafts."""
    for width in widths(subject.chain_width):
        for seed, prompt in enumerate(texts(subject, 4 * subject.effort, width)):
            sampling = SETTINGS[seed % len(SETTINGS)]
            (tokens,) = texts(subject, 1, 100 * width + seed, width, width)
            with driving(subject, prompt, prompt) as (wide, serial):
                assert wide.look(chain(tokens[0], tokens[1:]), sampling) == serial.serial(tokens, sampling), width


def tree_rows_equal_serial_rows_along_their_own_paths(subject: ModelSubject) -> None:
    """Branches, forks of forks and twins among siblings."""
    for width in widths(subject.tree_width)[1:]:
        for seed, prompt in enumerate(texts(subject, 3 * subject.effort, 50 + width)):
            sampling = SETTINGS[seed % len(SETTINGS)]
            window = random_tree(subject, width, 1000 * width + seed)
            with driving(subject, prompt) as (wide,):
                rows = wide.look(window, sampling)
                for row in range(width):
                    assert rows[row] == _serial_row(subject, wide, window, row, sampling), (width, row)


def _serial_row(subject: ModelSubject, driver: Driver, window: Window, row: int, sampling: Sampling) -> Row:
    alone = driver.forked()
    last = alone.serial([window.tokens[r] for r in window.path_to(row)], sampling)[-1]
    alone.close()
    return last


def shared_rows_equal_solo_rows(subject: ModelSubject) -> None:
    """Lanes with windows, lengths and settings of their own, in one launch."""
    limits = subject.model.limits
    if not limits.shares_rounds:
        return
    for seed in range(4 * subject.effort):
        rng = random.Random(seed)
        prompts = texts(subject, rng.randint(2, min(5, limits.max_streams)), seed)
        room = limits.batch_rows
        windows: list[Window] = []
        for index in range(len(prompts)):
            spare = room - (len(prompts) - 1 - index)
            width = rng.randint(1, max(1, min(subject.chain_width, spare)))
            (tokens,) = texts(subject, 1, 77 * seed + index, width, width)
            windows.append(chain(tokens[0], tokens[1:]))
            room -= width
        samplings = [rng.choice(SETTINGS) for _ in prompts]
        with driving(subject, *prompts) as drivers:
            alone = [d.look(w, s) for d, w, s in zip(drivers, windows, samplings, strict=True)]
            asked = tuple(d.window(w, s) for d, w, s in zip(drivers, windows, samplings, strict=True))
            for batch in (asked, asked[::-1]):
                ticket = subject.model.launch(RoundBatch(batch))
                assert ticket.rows == sum(len(w.tokens) for w in windows)
                together = rows_of(subject.model.collect(ticket))
                subject.model.discard(ticket)
                assert together == (alone if batch is asked else alone[::-1])


def a_launch_leaves_the_committed_state_alone(subject: ModelSubject) -> None:
    """Discarded rows, collected or not, and empty paths are as if they had never been."""
    for seed, prompt in enumerate(texts(subject, 4, 11)):
        sampling = SETTINGS[seed % len(SETTINGS)]
        (tokens,) = texts(subject, 1, 900 + seed, subject.chain_width, subject.chain_width)
        window = chain(tokens[0], tokens[1:])
        (reply,) = texts(subject, 1, 950 + seed, 5, 5)
        with driving(subject, prompt, prompt) as (driver, untouched):
            first = driver.look(window, sampling)
            subject.model.discard(subject.model.launch(RoundBatch((driver.window(window, sampling),))))
            driver.take(window, (), sampling)
            assert driver.look(window, sampling) == first
            assert driver.serial(reply, sampling) == untouched.serial(reply, sampling)


def a_kept_path_equals_absorbing_its_tokens_one_by_one(subject: ModelSubject) -> None:
    """At every length of a chain from none to all."""
    for kept in range(subject.chain_width + 1):
        for prompt in texts(subject, subject.effort, 500 + kept):
            (tokens,) = texts(subject, 1, 600 + kept, subject.chain_width, subject.chain_width)
            (reply,) = texts(subject, 1, 700 + kept, 4, 4)
            with driving(subject, prompt, prompt) as (driver, serial):
                driver.take(chain(tokens[0], tokens[1:]), range(kept))
                serial.serial(tokens[:kept])
                assert driver.serial(reply, SETTINGS[1]) == serial.serial(reply, SETTINGS[1]), kept


def any_window_behind_a_path_kept_in_part_reads_what_stayed_once(subject: ModelSubject) -> None:
    """Chains and trees of any size, the first of their size or not."""
    for seed, prompt in enumerate(texts(subject, 6 * subject.effort, 31)):
        chance = random.Random(seed)
        (tokens,) = texts(subject, 1, 640 + seed, subject.chain_width, subject.chain_width)
        kept = chance.randrange(subject.chain_width)
        window = chain(tokens[0], tokens[1 : chance.randint(1, subject.chain_width)])
        if seed % 2 and subject.tree_width > 2:
            window = random_tree(subject, chance.randint(3, subject.tree_width), seed)
        with driving(subject, prompt, prompt) as (driver, serial):
            driver.take(chain(tokens[0], tokens[1:]), range(kept))
            serial.serial(tokens[:kept])
            first = driver.look(window, SETTINGS[1])
            assert first == serial.look(window, SETTINGS[1])
            assert driver.look(window, SETTINGS[1]) == first


def a_kept_branch_equals_absorbing_its_tokens_one_by_one(subject: ModelSubject) -> None:
    """Any path of a tree, however its rows are scattered."""
    if subject.tree_width < 3:
        return
    for seed, prompt in enumerate(texts(subject, 4 * subject.effort, 21)):
        window = random_tree(subject, subject.tree_width, seed)
        path = window.path_to(random.Random(seed).randrange(len(window)))
        (reply,) = texts(subject, 1, 800 + seed, 4, 4)
        with driving(subject, prompt, prompt) as (driver, serial):
            driver.take(window, path)
            serial.serial([window.tokens[row] for row in path])
            assert driver.serial(reply, SETTINGS[2]) == serial.serial(reply, SETTINGS[2])


def lanes_of_one_launch_are_kept_each_by_its_own_path(subject: ModelSubject) -> None:
    """One lane keeps all, one some, one none."""
    if not subject.model.limits.shares_rounds or subject.model.limits.max_streams < 3:
        return
    width = min(subject.chain_width, subject.model.limits.batch_rows // 3)
    prompts, replies = texts(subject, 3, 31), texts(subject, 3, 32, 4, 4)
    drafts = texts(subject, 3, 33, width, width)
    paths = (tuple(range(width)), tuple(range(width // 2)), ())
    with driving(subject, *prompts, *prompts) as drivers:
        together, alone = drivers[:3], drivers[3:]
        batch = RoundBatch(tuple(d.window(chain(t[0], t[1:])) for d, t in zip(together, drafts, strict=True)))
        ticket = subject.model.launch(batch)
        subject.model.collect(ticket)
        subject.model.keep(ticket, paths)
        for driver, serial, tokens, path, reply in zip(together, alone, drafts, paths, replies, strict=True):
            driver.absorbed += len(path)
            serial.serial([tokens[row] for row in path])
            assert driver.serial(reply) == serial.serial(reply)


def forced_rows_are_fed_and_not_drawn(subject: ModelSubject) -> None:
    """Of the pending and forced rows the last alone draws, as it would after a serial feed; drafts below it too."""
    width = subject.chain_width
    for forced in range(1, width):
        drafts = min(2, width - 1 - forced)
        (tokens,) = texts(subject, 1, 40 + forced, 1 + forced + drafts, 1 + forced + drafts)
        (prompt,) = texts(subject, 1, 41 + forced)
        (reply,) = texts(subject, 1, 42 + forced, 3, 3)
        window = chain(tokens[0], tokens[1 + forced :], tokens[1 : 1 + forced])
        for sampling in SETTINGS[:2]:
            with driving(subject, prompt, prompt) as (driver, serial):
                rows = driver.take(window, range(1 + forced), sampling)
                expected = serial.serial(tokens[: 1 + forced], sampling)
                assert [row.draw for row in rows[:forced]] == [-1] * forced
                assert rows[forced] == expected[-1]
                behind = serial.forked().serial(tokens[1 + forced :], sampling)
                assert rows[1 + forced :] == behind
                assert driver.serial(reply, sampling) == serial.serial(reply, sampling)


def sampled_draws_use_the_noise_of_their_absolute_position(subject: ModelSubject) -> None:
    """With a flat distribution the noise alone decides: seed, position behind the row, and id."""
    flat = Sampling(seed=99, temperature=1e9)
    ids = np.arange(subject.model.limits.vocabulary, dtype=np.int64)
    width = subject.chain_width
    for prompt in texts(subject, 4, 61):
        (tokens,) = texts(subject, 1, 62, width, width)
        with driving(subject, prompt) as (driver,):
            greedy = driver.look(chain(tokens[0], tokens[1:]))
            rows = driver.look(chain(tokens[0], tokens[1:]), flat)
            assert driver.look(chain(tokens[0], tokens[1:])) == greedy
        for row in range(width):
            scores = noise(flat.seed, len(prompt) + row, ids)
            best, second = np.sort(scores)[:-3:-1]
            assert best - second < 1e-4 or rows[row].draw == int(scores.argmax()), row


def fingerprints_come_for_the_windows_that_ask(subject: ModelSubject) -> None:
    """One for each row of a window with `audit`, None for others; equal rows have equal ones, other rows others."""
    if not subject.model.limits.shares_rounds:
        return
    prompts = texts(subject, 2, 71, 3, 9)
    with driving(subject, *prompts) as (asking, silent):
        drafts = [4] if subject.chain_width > 1 else []
        batch = RoundBatch((asking.window(chain(2, drafts)), replace(silent.window(chain(3)), audit=False)))
        ticket = subject.model.launch(batch)
        draws = subject.model.collect(ticket)
        subject.model.discard(ticket)
        ticket = subject.model.launch(RoundBatch(batch.windows[1:]))
        assert not subject.model.collect(ticket).prints
        subject.model.discard(ticket)
        assert draws.prints and draws.prints[1] is None
        prints = draws.prints[0]
        assert prints is not None and len(prints) == len(batch.windows[0].window.tokens)
        assert len(set(prints)) == len(prints) and all(0 <= p < 2**64 for p in prints)
