"""Faults planted at every point of a round under sixteen streams over HTTP, and what each may cost.

A scene is one site, before or after the model's own call, from the victim's n-th call there on. The victim is one of
the sixteen; where a site belongs to nobody yet (opening a lane), it is whoever was hit.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from tensorfold.application.ports.target_model import ModelCosts, Ticket
from tensorfold.application.settings import EngineSettings
from tests.end_to_end.clients import Answer, ask
from tests.end_to_end.hash_server import Asked, Place, asked, hash_model, hash_server
from tests.fakes.faulty_model import Fault, FaultyModel, Site
from tests.fakes.hash_head import HashHead
from tests.fakes.hash_model import HashModel

STREAMS, VICTIM = 16, 6
COSTS = ModelCosts(((1, 1.0), (64, 2.0)), 0.05, (0.1, 0.2, 0.3))
ENDS_ONE: tuple[Site, ...] = ("open", "prefill", "collect_prefill", "launch", "collect", "discard", "keep")
ENDS_NONE: tuple[Site, ...] = ("propose", "close")
"""A draft head's fault costs drafts, a lane that will not close costs the lane until the server is idle: no reply."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A lasting fault at `site` from the `first`-th matching call on; `streamed` is how the victim's reply comes."""

    site: Site
    after: bool
    first: int
    streamed: bool

    @property
    def ends(self) -> int:
        """Requests that must end in an error."""
        return int(self.site in ENDS_ONE)

    def __str__(self) -> str:
        when = "after" if self.after else "before"
        return f"{self.site}-{when}-from-{self.first}-{'streamed' if self.streamed else 'whole'}"


def scenes() -> Iterator[Scene]:
    """All of them."""
    for site in (*ENDS_ONE, *ENDS_NONE):
        for after in (False, True):
            for streamed in (False, True):
                # A lane is opened and closed once; the other sites are passed again and again.
                for first in (1,) if site in ("open", "close") else (1, 3):
                    yield Scene(site, after, first, streamed)


@dataclass
class Outcome:
    """What a scene did."""

    scene: Scene
    failed: int = 0
    struck: int = 0
    wrong: list[str] = field(default_factory=list)

    def misses(self) -> list[str]:
        """Why the scene fails; empty when it holds."""
        found = list(self.wrong)
        if self.failed != self.scene.ends:
            found.append(f"{self.failed} requests ended in an error, {self.scene.ends} should")
        if not self.struck:
            found.append("the fault never struck")
        return [f"{self.scene}: {line}" for line in found]


@cache
def requests(streamed: bool) -> tuple[Asked, ...]:
    """Sixteen requests, greedy and sampled, streamed and whole; the victim's reply comes as asked."""
    return tuple(
        asked(
            [
                {
                    "prompt": [*range(i, i + 60), i],
                    "max_tokens": 32,
                    "ignore_eos": True,
                    "stream": streamed if i == VICTIM else i % 2 == 0,
                    "temperature": i % 3 / 2,
                    "seed": i,
                }
                for i in range(STREAMS)
            ]
        )
    )


def faults_of(scene: Scene, victim: tuple[int, ...]) -> list[Fault]:
    """The scene's faults. Discarding happens only after a collect that failed, so that one is planted too."""
    if scene.site == "open":
        return [Fault("open", nth=VICTIM + 1, after=scene.after)]
    hits = _FromCall(scene.first, victim) if scene.site != "close" else lambda prompt: prompt == victim
    if scene.site != "discard":
        return [Fault(scene.site, prompt=hits, after=scene.after)]
    return [Fault("collect", prompt=hits), Fault("discard", prompt=lambda prompt: prompt == victim, after=scene.after)]


class _FromCall:
    """Whether a prompt is the victim's, from its n-th call on."""

    def __init__(self, first: int, victim: tuple[int, ...]) -> None:
        self._left, self._victim = first, victim

    def __call__(self, prompt: tuple[int, ...]) -> bool:
        if prompt != self._victim:
            return False
        self._left -= 1
        return self._left <= 0


class Forgetless(FaultyModel):
    """A model that, when collecting fails, still holds the launch: only discarding it, or closing its lane, forgets."""

    def _undo(self, ticket: Ticket) -> None:
        return None


def play(scene: Scene) -> Outcome:
    """Sixteen streams at a fresh server with the scene's faults; then the victim's request once more, without."""
    outcome = Outcome(scene)
    wanted = requests(scene.streamed)
    inner = hash_model(head=HashHead(), costs=COSTS)
    kind = Forgetless if scene.site == "discard" else FaultyModel
    model = kind(inner, faults_of(scene, wanted[VICTIM].prompt))
    with hash_server(model, EngineSettings(parallel=STREAMS, queue=STREAMS)) as place:
        answers = all_at_once(place, wanted)
        for index, (answer, want) in enumerate(zip(answers, wanted, strict=True)):
            _judge(outcome, scene, index, answer, want)
        place.until_empty()
        outcome.struck = model.faults[-1].struck
        model.faults.clear()
        again = ask(place.port, wanted[VICTIM])
        if not again.equals(wanted[VICTIM]):
            outcome.wrong.append(f"the next request got {again}")
        place.until_empty()
        _judge_books(outcome, place, inner)
    return outcome


def all_at_once(place: Place, wanted: tuple[Asked, ...]) -> list[Answer]:
    """Ask for everything from a thread each."""
    answers: list[Answer | None] = [None] * len(wanted)

    def fetch(index: int) -> None:
        answers[index] = ask(place.port, wanted[index])

    threads = [threading.Thread(target=fetch, args=(index,)) for index in range(len(wanted))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [answer if answer is not None else Answer(0, {}, faults=["no answer"]) for answer in answers]


def _judge(outcome: Outcome, scene: Scene, index: int, answer: Answer, want: Asked) -> None:
    if answer.equals(want):
        return
    if scene.site != "open" and index != VICTIM:
        outcome.wrong.append(f"stream {index} is no victim and got {answer}")
    elif not answer.failed_well or answer.status != (200 if want.streamed else 500):
        outcome.wrong.append(f"not a well-formed error: {answer}")
    elif not want.text.startswith(answer.text.rstrip("\ufffd")):
        outcome.wrong.append(f"the victim's text before its error is not its reply's: {answer.text!r}")
    else:
        outcome.failed += 1


def _judge_books(outcome: Outcome, place: Place, inner: HashModel) -> None:
    counters = place.counters
    if counters.failed != outcome.failed or counters.finished != STREAMS + 1 - outcome.failed:
        outcome.wrong.append(f"{counters.failed} failed and {counters.finished} finished by the engine's count")
    if inner.lanes() or inner.unsettled():
        outcome.wrong.append(f"lanes {inner.lanes()} and launches {inner.unsettled()} are left")
    if place.faults:
        outcome.wrong.append(f"the server's own faults: {place.faults}")
