"""Memory that cannot be had, at every call into the model that may need some: one request ends at most, and alone.

Prompts resume from kept states, share their beginnings, are drafted by a head and run short of memory, so that each
kind of call is made; the nth of them fails, before it did anything or after.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tensorfold.application.replies import Ended, Failed
from tensorfold.application.scheduler import OUT_OF_MEMORY
from tensorfold.application.settings import EngineSettings
from tests.application.house import Read, idle, law, read
from tests.application.memory_house import WEIGHTS, within
from tests.application.prompt_house import Kept, fresh, keeping, request, system, turn
from tests.fakes.chunky_model import ChunkyModel
from tests.fakes.faulty_model import SITES, Fault, FaultyModel, Site
from tests.fakes.hash_head import HashHead
from tests.fakes.hash_model import DEFAULT_COSTS

TOKENS = 24
COSTS = replace(DEFAULT_COSTS, head_ms=(0.01, 0.02, 0.03))
ABSORBED: tuple[Site, ...] = ("discard", "propose", "export", "restore", "close")
"""Sites whose faults end nobody: what they were for is done without, or done anew."""
UNUSED: tuple[Site, ...] = ("fork",)
"""Kept states of this model are images, so nothing forks its lanes."""


def prompts() -> list[list[int]]:
    """Two conversations with one system prompt, each of two turns, and a stranger's prompt."""
    random_ = random.Random(41)
    shared = system(random_)
    first = [turn(shared, random_) for _ in range(2)]
    return [*first, *(turn([*prompt, 7, 8, 9], random_) for prompt in first), turn(system(random_, 20), random_)]


PROMPTS = prompts()
WANTED = [one.ids for one in fresh(PROMPTS, 1, TOKENS)]


@contextmanager
def house(faults: Sequence[Fault]) -> Iterator[tuple[Kept, FaultyModel]]:
    """A server with room for two lanes or so, whose books are closed at the end."""
    inner = ChunkyModel(law(1), prefill_slice=0, chain_width=4, head=HashHead(), costs=COSTS)
    metered, admission = within(inner, 260)
    model = FaultyModel(metered, faults)
    with keeping(model, settings=EngineSettings(parallel=3), admission=admission) as server:
        yield server, model
        idle(server.scheduler)
        strays = server.scheduler.check_integrity()
        assert len(strays) <= sum(fault.struck for fault in faults if fault.site == "close")
    memory = admission.figures([])
    assert memory is not None and memory.active == WEIGHTS
    assert inner.lanes() == () and not inner.misuses


def asked(server: Kept) -> list[Read]:
    """The first turns, one after another, then everything at once."""
    got = [server.ask(prompt, TOKENS) for prompt in PROMPTS[:2]]
    going = [server.scheduler.submit(request(prompt, TOKENS)) for prompt in PROMPTS[2:]]
    return [*got, *(read(generation) for generation in going)]


def test_without_a_fault_every_kind_of_call_is_made_and_the_replies_are_the_fresh_ones() -> None:
    seen = [Fault(site, error=None) for site in SITES]
    with house(seen) as (server, _):
        assert [one.ids for one in asked(server)] == WANTED
        assert server.scheduler.counters.cached_tokens > 0
    made = {fault.site for fault in seen if fault.struck}
    assert made == set(SITES) - {*UNUSED, "discard"}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("site", [site for site in SITES if site not in UNUSED])
@pytest.mark.slow
def test_an_allocation_that_fails_ends_one_request_at_most_and_nothing_else(site: Site, after: bool) -> None:
    struck = 0
    for nth in (1, 2, 3, 5, 8, 13):
        # A launch is only discarded where its draws did not come.
        faults = [Fault("collect", nth=nth, after=True)] if site == "discard" else []
        fault = Fault(site, nth=1 if faults else nth, after=after, error=lambda: MemoryError("no bytes"))
        with house([*faults, fault]) as (server, model):
            got = asked(server)
            failed = [one for one in got if not isinstance(one.end, Ended)]
            assert len(failed) <= (0 if site in ABSORBED else 1), [one.end for one in failed]
            assert all(one.end == Failed(OUT_OF_MEMORY) for one in failed)
            for one, wanted in zip(got, WANTED, strict=True):
                assert one.ids == (wanted[: len(one.ids)] if one in failed else wanted)
            model.faults.clear()
            assert [one.ids for one in asked(server)] == WANTED
        struck += fault.struck
    assert struck, f"{site} was never called so often"
