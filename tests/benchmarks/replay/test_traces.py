"""Traces are what they say: edits, conversations, agents, noise, and records made to mislead."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from tests.benchmarks.replay.dialogues import dialogues
from tests.benchmarks.replay.edits import MOST_IDS, edited
from tests.benchmarks.replay.hostile import KEY, hostile
from tests.benchmarks.replay.samples import ids
from tests.benchmarks.replay.speech import word_speech
from tests.benchmarks.replay.traces import agent_loop, file_edit, noise
from tests.benchmarks.replay.workload import Request


def test_edits_are_small_and_as_far_apart_as_stated() -> None:
    text = ids(2, 20000)
    new = edited(text, 100, random.Random(1))
    assert new == edited(text, 100, random.Random(1))
    runs = _common_runs(text, new)
    assert 70 < len(text) / len(runs) < 140
    assert sum(runs) > 0.95 * len(text)


def test_an_edit_changes_at_most_four_ids() -> None:
    text = list(range(200))
    for seed in range(50):
        new = edited(text, 50, random.Random(seed))
        gone = [b - a - 1 for a, b in _neighbours([token for token in new if text[token] == token])]
        assert max(gone, default=0) <= 2 * MOST_IDS


def test_a_text_of_one_id_is_refused() -> None:
    with pytest.raises(ValueError, match="one id"):
        edited([3, 3, 3], 2, random.Random(1))


def test_messages_of_a_dialogue_alternate_and_begin_with_the_user() -> None:
    talks = dialogues()
    assert len({talk.title for talk in talks}) == len(talks) >= 18
    for talk in talks:
        assert len(talk.messages) % 2 == 0
        assert all(message.strip() for message in talk.messages)
        assert not any(message.startswith(("> ", "< ")) for message in talk.messages)


def test_a_request_hands_on_what_was_not_read_before_and_a_lead_in() -> None:
    assert Request(ids(1, 100), (1, 2), 90).run == (*ids(1, 100)[26:], 1, 2)
    assert Request(ids(1, 100), (1, 2)).run == (*ids(1, 100), 1, 2)


@pytest.mark.slow
def test_an_agents_prompt_is_the_conversation_so_far() -> None:
    loop = agent_loop(word_speech())
    grown = [(a, b) for a, b in _pairs(loop.streams) if b.resumed]
    assert len(grown) > 0.9 * len(loop.streams)
    for before, now in grown:
        assert now.resumed == len(before.prompt) + len(before.reply)
        assert now.prompt[: now.resumed] == (*before.prompt, *before.reply)


def test_the_old_text_of_an_edited_file_is_in_the_record_and_not_in_the_prompt() -> None:
    work = file_edit(word_speech(), 200)
    for old, new in zip(work.before, work.streams, strict=True):
        assert set(_grams(old.reply)) & set(_grams(new.reply))
        assert not set(_grams(new.prompt)) & set(_grams(new.reply))


@pytest.mark.slow
def test_random_ids_share_nothing_with_the_record() -> None:
    work = noise(word_speech())
    held = {gram for recorded in work.before for gram in _grams(recorded.run)}
    assert not any(gram in held for stream in work.streams for gram in _grams(stream.reply[:-1]))


@pytest.mark.slow
def test_wherever_a_hostile_record_of_keys_matches_it_goes_on_wrongly() -> None:
    work = next(work for work in hostile(word_speech()) if work.name == "hostile keys")
    following: dict[tuple[int, ...], set[int]] = {}
    for run in work.foreign:
        for at in range(KEY, len(run)):
            following.setdefault(run[at - KEY : at], set()).add(run[at])
    stream = work.streams[0]
    text = (*stream.prompt, *stream.reply)
    met = [following.get(text[at - KEY : at], set()) for at in range(len(stream.prompt), len(text))]
    assert all(met)
    wrong = [text[at] not in found for at, found in enumerate(met, start=len(stream.prompt))]
    assert sum(wrong) > 0.9 * len(wrong)


def _common_runs(old: Sequence[int], new: Sequence[int]) -> list[int]:
    """Lengths of the runs that two texts share, found greedily: after a difference both are looked for 8 ids ahead."""
    runs, a, b = [0], 0, 0
    while a < len(old) and b < len(new):
        if old[a] == new[b]:
            a, b, runs[-1] = a + 1, b + 1, runs[-1] + 1
            continue
        steps = [(x, y) for x in range(9) for y in range(9) if old[a + x : a + x + 3] == tuple(new[b + y : b + y + 3])]
        if not steps:
            break
        x, y = min(steps, key=sum)
        a, b = a + x, b + y
        runs.append(0)
    return runs


def _neighbours(numbers: Sequence[int]) -> list[tuple[int, int]]:
    kept = sorted(set(numbers))
    return list(pairwise(kept))


def _pairs(requests: Sequence[Request]) -> list[tuple[Request, Request]]:
    return list(pairwise(requests))


def _grams(text: Sequence[int]) -> list[tuple[int, ...]]:
    return [tuple(text[at : at + 16]) for at in range(len(text) - 15)]
