"""The whole server over a card's lanes, without a card: conversations that resume, share rounds and lack memory."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

from tensorfold.application.kept_states import ForkSizes
from tensorfold.application.replies import Ended
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.memory.cuda_holding import PAGE
from tensorfold.domain.sampling import Sampling
from tests.adapters.cuda.listed_model import expected, listed
from tests.application.house import idle, read, serving
from tests.application.prompt_house import SAMPLED, cached, keeping, request, system, turn, words
from tests.fakes.head_profiles import Profile
from tests.fakes.planted_heads import PlantedHeads

SIZES = ForkSizes(page=PAGE, state=64, positions=PAGE)
TOKENS = 10


def conversations(seed: int, count: int, turns: int) -> list[list[list[int]]]:
    """Prompts of some conversations that begin alike and cross pages."""
    chance = random.Random(seed)
    start, made = system(chance, 40), []
    for _ in range(count):
        prompts, history = [], start
        for _ in range(turns):
            prompts.append(turn(history, chance, chance.choice([20, 150, 230])))
            history = [*prompts[-1], *words(chance, TOKENS)]
        made.append(prompts)
    return made


def serial(prompt: Sequence[int]) -> list[int]:
    """The reply, one row after another."""
    history = list(prompt)
    for _ in range(TOKENS):
        history.append(expected(history, SAMPLED))
    return history[len(prompt) :]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_replies_of_conversations_that_share_small_pools_are_the_serial_ones(seed: int) -> None:
    made = listed(graphs=seed % 2 == 0, head=True, streams=3, kept=2 + seed, pages=9 + seed)
    told = conversations(seed, 3, 3)
    counted = made.model.parts.book
    settings = EngineSettings(parallel=3)
    with keeping(made.model, 1 << 20, slots=8, settings=settings, sizes=SIZES) as server:
        resumed = 0
        for prompts in zip(*told, strict=True):
            asked = [server.scheduler.submit(request(prompt, TOKENS)) for prompt in prompts]
            for prompt, generation in zip(prompts, asked, strict=True):
                got = read(generation)
                assert got.ids == serial(prompt)
                resumed += cached(got)
        idle(server.scheduler)
        assert resumed > 0 and not server.scheduler.counters.integrity_faults
        server.cache.clear()
        assert made.model.lanes() == ()
        assert (counted.free_slots, counted.free_kept) == (3, 2 + seed) and counted.free_pages == 8 + seed


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_memory_that_lacks_now_and_then_ends_a_reply_or_changes_nothing_of_it(seed: int) -> None:
    made = listed(graphs=seed % 2 == 1, head=True, streams=3, kept=3)
    told = conversations(seed + 50, 3, 2)
    free, chance = made.held, random.Random(seed)

    def reach(name: str = "") -> None:
        if chance.random() < 0.004:
            raise MemoryError("no memory now")

    right = 0
    with keeping(made.model, 1 << 20, slots=8, settings=EngineSettings(parallel=3), sizes=SIZES) as server:
        made.tape.reach = reach
        assert made.head is not None
        made.head.reach = reach
        for prompts in zip(*told, strict=True):
            asked = [server.scheduler.submit(request(prompt, TOKENS)) for prompt in prompts]
            for prompt, generation in zip(prompts, asked, strict=True):
                got = read(generation)
                if isinstance(got.end, Ended):
                    assert got.ids == serial(prompt)
                    right += 1
                else:
                    assert got.ids == serial(prompt)[: len(got.ids)]
        idle(server.scheduler)
        made.tape.reach = lambda: None
        made.head.reach = lambda name: None
        server.cache.clear()
        assert made.model.lanes() == () and made.held == free
    assert right


@pytest.mark.slow
@pytest.mark.parametrize("graphs", [False, True], ids=["layer by layer", "graphs"])
def test_streams_whose_drafts_are_queued_ahead_get_the_serial_replies(graphs: bool) -> None:
    made, chance = listed(graphs=graphs, head=True, streams=3), random.Random(5)
    prompts = [tuple(words(chance, 20 + 9 * at)) for at in range(4)]
    samplings = [SAMPLED if at % 2 else Sampling() for at in range(4)]
    replies = {}
    for prompt, sampling in zip(prompts, samplings, strict=True):
        history = list(prompt)
        for _ in range(30):
            history.append(expected(history, sampling))
        replies[prompt, sampling] = tuple(history[len(prompt) :])
    planted = PlantedHeads(
        made.model, lambda prompt, sampling: replies.get((prompt, sampling)), Profile(((0.8,), (0.6,)))
    )
    with serving(planted, settings=EngineSettings(parallel=3, force_windows=True)) as scheduler:
        asked = [
            scheduler.submit(request(prompt, 30, sampling=sampling))
            for prompt, sampling in zip(prompts, samplings, strict=True)
        ]
        assert [tuple(read(each).ids) for each in asked] == list(replies.values())
        assert scheduler.counters.kept_total > 40
        idle(scheduler)
    ahead = made.model.drafts_ahead
    assert ahead.used > 30 > 3 * ahead.missed and ahead.faults == 0
