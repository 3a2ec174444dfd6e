"""A crowd of clients of which most leave, at random points and in every manner, beside some that stay to the end.

Where a leaver stood is told by the server, not by the client: in the queue, while its prompt was read, or in its reply.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tensorfold.application.ports.target_model import ModelCosts, TargetModel
from tensorfold.application.settings import EngineSettings
from tests.end_to_end.clients import Client, Manner, ask, request_bytes
from tests.end_to_end.hash_server import Asked, Place, asked, hash_model, hash_server, until
from tests.end_to_end.residue import Held, held
from tests.fakes.faulty_model import Fault, FaultyModel, Site
from tests.fakes.hash_head import HashHead
from tests.fakes.paced_model import PacedModel

Moment = Literal["half", "sent", "wait", "events", "stay"]
LANES, RUSH, CALM = 8, 40, 6
"""Lanes, and clients at once: in the rush most wait in the queue, in the calm all have lanes and long prompts."""
ROUND_S, PREFILL_ROW_S = 0.003, 0.0003
COSTS = ModelCosts(((1, 3.0), (64, 5.0)), 0.3, (0.1, 0.2, 0.3))
MANNERS: tuple[Manner, ...] = ("close", "fin", "reset")
STORM: tuple[tuple[Site, int, bool], ...] = (
    ("launch", 41, False), ("launch", 59, True), ("collect", 47, False), ("collect", 67, True), ("keep", 401, False),
    ("keep", 577, True), ("discard", 7, False), ("propose", 13, False), ("prefill", 307, False), ("close", 53, False),
)  # fmt: skip
"""Faults of a stormy day: at a site, every so many calls, before or after the model's own."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What one client does: leave at a `moment` in a `manner`, or stay. `amount` is seconds, or events to see first."""

    asked: Asked
    moment: Moment
    manner: Manner = "close"
    amount: float = 0.0


class Recurring(Fault):
    """A fault that comes again every `every` calls of its site, whoever makes them."""

    every = 1

    def strikes(self, site: Site, lanes: Sequence[int], prompts: Sequence[tuple[int, ...]]) -> bool:
        """Whether this call is hit."""
        if site != self.site:
            return False
        self.calls += 1
        return self.calls % self.every == 0


def stormy(inner: TargetModel) -> FaultyModel:
    """A model with every fault of the storm."""
    faults = []
    for site, every, after in STORM:
        fault = Recurring(site, after=after)
        fault.every = every
        faults.append(fault)
    return FaultyModel(inner, faults)


@dataclass
class Crowd:
    """What became of everybody, and what the server still held afterwards."""

    left: int = 0
    left_silent: int = 0
    in_queue: int = 0
    in_prefill: int = 0
    in_reply: int = 0
    stayed: int = 0
    struck: int = 0
    failed: int = 0
    wrong: list[str] = field(default_factory=list)
    residue: list[str] = field(default_factory=list)
    lanes: int = 0
    loads: tuple[int, int, int] = (0, 0, 0)
    integrity_faults: int = 0
    shared_rounds: int = 0
    drafts_kept: int = 0
    seconds: float = 0.0

    def misses(self, least: int) -> list[str]:
        """What is wrong, or not proved; empty when it holds. `least` clients must have left at each point."""
        found = [*self.wrong[:5], *self.residue]
        for where, count in (("queue", self.in_queue), ("prefill", self.in_prefill), ("reply", self.in_reply)):
            if count < least:
                found.append(f"{count} clients left in the {where}, {least} are needed")
        if self.left_silent < least:
            found.append(f"{self.left_silent} clients left before their first byte, {least} are needed")
        for what, count in (("lanes open", self.lanes), ("integrity faults", self.integrity_faults)):
            if count:
                found.append(f"{count} {what}")
        if self.failed and not self.struck:
            found.append(f"{self.failed} replies ended in an error without a fault")
        if any(self.loads):
            found.append(f"loads {self.loads}")
        if not self.shared_rounds or not self.drafts_kept:
            found.append("no round was shared or no draft was kept")
        return found

    def figures(self) -> str:
        """One line."""
        return (
            f"{self.left} clients left ({self.in_queue} in the queue, {self.in_prefill} in prefill, {self.in_reply} in "
            f"the reply; {self.left_silent} before their first byte), {self.stayed} stayed, {len(self.wrong)} replies "
            f"changed, left behind: {self.lanes} lanes, {len(self.residue)} threads, descriptors or processes, "
            f"{self.integrity_faults} integrity faults, loads {self.loads}, {self.shared_rounds} rounds shared, "
            f"{self.drafts_kept} drafts kept, {self.seconds:.0f} s"
        )


def run(leavers: int, stayers: int, seed: int, *, storm: bool = False) -> Crowd:
    """Let the crowd at a server of `LANES` lanes, and count. In a storm a reply may end in an error, in good form."""
    plans = list(planned(leavers - leavers // 4, stayers - stayers // 4, seed, rush=True))
    calm = list(planned(leavers // 4, stayers // 4, seed + 1, rush=False))
    inner = hash_model(head=HashHead(), costs=COSTS)
    faulty = stormy(inner) if storm else FaultyModel(inner)
    model = PacedModel(faulty, time.sleep, ROUND_S, PREFILL_ROW_S)
    crowd = Crowd()
    outside = held()
    with hash_server(model, EngineSettings(parallel=LANES, queue=4 * RUSH)) as place:
        warm = ask(place.port, plans[0].asked)
        crowd.wrong += [] if warm.equals(plans[0].asked) else [f"the first reply of all: {warm}"]
        place.until_empty()
        before, already = held(), len(place.ended)
        began = time.monotonic()
        _let_loose(place, plans, RUSH, crowd)
        _let_loose(place, calm, CALM, crowd)
        place.until_empty()
        crowd.seconds = time.monotonic() - began
        crowd.struck = sum(fault.struck for fault in faulty.faults)
        # A lane that would not close is found when the engine is idle: that is no fault of the books.
        strays = sum(fault.struck for fault in faulty.faults if fault.site == "close")
        faulty.faults.clear()
        after = ask(place.port, plans[0].asked)
        crowd.wrong += [] if after.equals(plans[0].asked) else [f"the first reply afterwards: {after}"]
        place.until_empty()
        crowd.residue = residue(before)
        crowd.lanes = len(inner.lanes()) + len(inner.unsettled())
        crowd.loads = place.scheduler.loads()
        for _, stats, reason in place.ended[already:]:
            if reason == "cancelled":
                crowd.in_queue += stats is None
                crowd.in_prefill += stats is not None and stats.completion_tokens == 0
                crowd.in_reply += stats is not None and stats.completion_tokens > 0
        counters = place.counters
        crowd.integrity_faults = max(0, counters.integrity_faults - strays)
        crowd.shared_rounds, crowd.drafts_kept = counters.shared_launches, counters.kept_total
        ended = counters.finished + counters.cancelled + counters.failed
        if ended != counters.requests or (counters.failed and not storm):
            crowd.wrong.append(f"{counters.requests} requests, {ended} ended, {counters.failed} failed")
        crowd.wrong += [f"a fault in {where}: {fault!r}" for where, fault in place.faults]
    crowd.residue += [f"after the end: {line}" for line in residue(outside)]
    return crowd


def residue(before: Held) -> list[str]:
    """What is held beyond `before` once everything had time to go."""
    try:
        until(lambda: not held().beyond(before), "nothing left")
    except AssertionError:
        return held().beyond(before)
    return []


def planned(leavers: int, stayers: int, seed: int, *, rush: bool) -> Iterator[Plan]:
    """Everybody in a random order; the first one stays."""
    chance = random.Random(seed)
    requests = asked([_case(chance, number, rush) for number in range(leavers + stayers)])
    stays = [False] * leavers + [True] * (stayers - 1)
    chance.shuffle(stays)
    for one, stay in zip(requests, [True, *stays], strict=True):
        yield Plan(one, "stay") if stay else _leaver(chance, one, rush)


def _case(chance: random.Random, number: int, rush: bool) -> dict[str, Any]:
    """A chat or a raw prompt, greedy or sampled, streamed or whole."""
    length = chance.choice((5, 20, 100)) if rush else chance.randrange(300, 600)
    case: dict[str, Any] = {"max_tokens": chance.randrange(20, 120), "stream": chance.random() < 0.6}
    case |= {"temperature": chance.choice((0, 0, 1, 0.7)), "seed": number}
    if chance.random() < 0.5:
        return case | {"prompt": [chance.randrange(256) for _ in range(length)]}
    return case | {"content": f"{number} " + "ab " * (length // 3)}


def _leaver(chance: random.Random, one: Asked, rush: bool) -> Plan:
    moments: tuple[Moment, ...] = ("half", "sent", "wait", "wait", "wait", "events", "events") if rush else ("wait",)
    moment = chance.choice(moments)
    if moment == "events":
        # One event is the opening, sent while the request still waits.
        one = replace(one, body=one.body | {"stream": True})
        return Plan(one, moment, chance.choice(MANNERS), chance.choice((1, 2, 4, 10)))
    return Plan(one, moment, chance.choice(MANNERS), chance.random() * (0.6 if rush else 0.4))


def _let_loose(place: Place, plans: Iterable[Plan], at_once: int, crowd: Crowd) -> None:
    """Run every plan, `at_once` clients at a time."""
    todo, lock = iter(plans), threading.Lock()

    def work() -> None:
        while True:
            with lock:
                plan = next(todo, None)
            if plan is None:
                return
            try:
                _follow(place.port, plan, crowd, lock)
            except Exception as fault:
                with lock:
                    crowd.wrong.append(f"a client that would {plan.moment} ({plan.manner}) saw {fault!r}")

    workers = [threading.Thread(target=work) for _ in range(at_once)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def _follow(port: int, plan: Plan, crowd: Crowd, lock: threading.Lock) -> None:
    if plan.moment == "stay":
        answer = ask(port, plan.asked)
        with lock:
            crowd.stayed += 1
            if answer.failed_well and plan.asked.text.startswith(answer.text.rstrip("\ufffd")):
                crowd.failed += 1
            elif not answer.equals(plan.asked):
                crowd.wrong.append(f"a reply changed: {answer} in place of {plan.asked}")
        return
    client = Client(port)
    raw = request_bytes(plan.asked)
    client.send(raw[: len(raw) // 2] if plan.moment == "half" else raw)
    if plan.moment == "wait":
        time.sleep(plan.amount)
    elif plan.moment == "events":
        client.receive_events(int(plan.amount))
    silent = not client.heard()
    client.leave(plan.manner)
    with lock:
        crowd.left += 1
        crowd.left_silent += silent and plan.moment != "half"
