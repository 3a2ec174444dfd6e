"""From a loaded model to what is kept of its prompts: bytes by the memory plan, the family's chunk, the disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tensorfold.application.engine import Engine
from tensorfold.application.memory_planning import PlannedMemory
from tensorfold.application.ports.stores import SnapshotStore
from tensorfold.application.prompt_keeping import KeepingPlan, PromptKeeping, identity_words
from tensorfold.application.settings import EngineSettings, PromptSettings
from tensorfold.domain.memory.windows import ContextWindow
from tensorfold.domain.prompts.chunks import ChunkRule
from tensorfold.domain.prompts.markers import NO_MARKERS, Markers
from tests.application.house import MachineClock
from tests.application.prompt_house import model
from tests.domain.memory.plans import memory_plan
from tests.fakes.stores import FakeSnapshotStore

MARKERS = Markers(frozenset({1}), (1, 3))
ROOM, WINDOW = 10_000, 100
Accepts = Callable[[int, Sequence[tuple[str, int]]], bool]


class Opened:
    """Notes what stores were asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.accepts: Accepts | None = None

    def __call__(self, weights: str, identity: str, accepts: Accepts) -> SnapshotStore:
        self.asked.append((weights, identity))
        self.accepts = accepts
        return FakeSnapshotStore()


class Remembered:
    """Chunks of earlier starts, in a dictionary."""

    def __init__(self, known: dict[str, int]) -> None:
        self.known = known

    def read(self, key: str) -> int | None:
        return self.known.get(key)

    def write(self, key: str, chunk: int) -> None:
        self.known[key] = chunk


def kept(
    settings: PromptSettings | None = None,
    *,
    markers: Markers = MARKERS,
    chunks: tuple[int, ...] = (2048,),
    opened: Opened | None = None,
    room: int = ROOM,
    known: dict[str, int] | None = None,
) -> tuple[PromptKeeping, Engine]:
    plan = KeepingPlan(settings or PromptSettings(), markers, (), chunks)
    keeping = PromptKeeping(plan, opened, lambda line: None, None if known is None else Remembered(known))
    engine = Engine(model(), EngineSettings(), MachineClock())
    described: Any = SimpleNamespace(plan=SimpleNamespace(context=WINDOW))
    memory = PlannedMemory(cast(Any, described), memory_plan(room), ContextWindow(WINDOW, "memory", True), None)
    keeping.plan(engine, memory)
    keeping.keep(engine, memory)
    return keeping, engine


def idle() -> int:
    plan = memory_plan(ROOM)
    return plan.room - plan.request(WINDOW)


def test_by_default_what_a_full_window_leaves_idle_may_be_kept() -> None:
    keeping, engine = kept()
    assert engine.prompts is keeping.cache and engine.prompts.budget == idle() > 0
    assert engine.prompts.rule == ChunkRule(2048, MARKERS)
    assert any("no snapshots on disk" in line for line in keeping.lines())


def test_a_budget_that_was_asked_for_holds_as_far_as_a_full_window_leaves_it() -> None:
    assert kept(PromptSettings(budget=50))[1].prompts.budget == 50
    keeping, engine = kept(PromptSettings(budget=1 << 40))
    assert engine.prompts.budget == idle()
    assert any("--prompt-cache-gib asks for 1024.00 GiB" in line for line in keeping.lines())


@pytest.mark.parametrize(("settings", "room"), [(PromptSettings(budget=0), ROOM), (PromptSettings(), 0)])
def test_a_budget_of_nothing_opens_nothing_on_the_disk(settings: PromptSettings, room: int) -> None:
    opened = Opened()
    keeping, engine = kept(settings, opened=opened, room=room)
    assert not opened.asked and engine.prompts.budget == 0
    assert keeping.lines()[-1] == "prompt cache: off"
    keeping.close()


def test_a_store_is_opened_for_everything_that_shapes_a_state() -> None:
    opened = Opened()
    keeping, engine = kept(opened=opened)
    ((weights, identity),) = opened.asked
    assert weights == engine.model.identity.weights
    assert identity == identity_words(engine.model.identity, engine.prompts.rule, engine.model.limits)
    assert identity.startswith(weights) and "grid2048+msg256:1:1,3" in identity and "slices of 0" in identity
    assert opened.accepts is not None and opened.accepts(1, []) and not opened.accepts(1, [("class", 1)])
    assert any("0 on disk" in line for line in keeping.lines())
    keeping.close()


def test_the_report_says_how_prompts_are_cut() -> None:
    assert "cut at assistant messages" in kept()[0].lines()[0]
    assert "on a plain grid" in kept(markers=NO_MARKERS)[0].lines()[0]


def test_of_several_chunks_the_largest_that_fits_is_taken() -> None:
    # On a processor there are no tensor units, so the largest of all is not among them.
    assert kept(chunks=(8192, 4096, 2048), room=1 << 50)[1].prompts.rule.step == 4096
    assert kept(chunks=(8192, 4096, 2048), room=0)[1].prompts.rule.step == 2048


def test_a_chunk_that_was_chosen_before_stands_while_it_fits_is_printed_and_names_the_kept_states() -> None:
    sizes, known, opened = (8192, 4096, 2048), dict[str, int](), Opened()
    kept(chunks=sizes, room=0, known=known)
    assert list(known.values()) == [2048] and next(iter(known)).startswith(model().identity.weights)
    keeping, engine = kept(chunks=sizes, room=1 << 50, known=known, opened=opened)
    assert engine.prompts.rule.step == 2048 and list(known.values()) == [2048]
    assert keeping.lines()[0].startswith("prompts: chunks of up to 2048 tokens as on an earlier start (4096 would fit")
    assert "grid2048" in opened.asked[0][1]
    keeping.close()
    known.update(dict.fromkeys(known, 4096))
    keeping, engine = kept(chunks=sizes, room=0, known=known)
    assert engine.prompts.rule.step == 2048 and list(known.values()) == [2048]
    assert "earlier" not in keeping.lines()[0]


def test_of_a_family_with_one_chunk_nothing_is_remembered() -> None:
    known: dict[str, int] = {}
    kept(known=known)
    assert not known


def test_nothing_is_said_before_a_model_is_there() -> None:
    plan = KeepingPlan(PromptSettings(), MARKERS, (), (2048,))
    assert PromptKeeping(plan, None, lambda line: None).lines() == []
