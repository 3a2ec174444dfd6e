"""`serve` opens a record before anything is loaded, shows it at once, and closes it when nothing adds to it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.entrypoints.cli import serve
from tensorfold.entrypoints.cli.parser import parse
from tensorfold.entrypoints.settings import run_settings


class LeftError(Exception):
    """The process would end here."""


class Scene:
    """A `serve` whose every step is told; `load` and `stopped` say how the engine fares."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.steps: list[str] = []
        self.scheduled: dict[str, Any] = {}
        self.refusal: Exception | None = None
        self.load: Callable[[], bool] = lambda: True
        self.stopped = True
        self.recall = SimpleNamespace(factory="copies", close=self.step("record closed"))
        self.scheduler = SimpleNamespace(
            start=self.step("load"), wait_ready=lambda timeout: self.load(), stop=self.stop
        )
        steps: dict[str, Any] = {
            "check": self.step("check", SimpleNamespace()),
            "loading_line": lambda checked: "loading",
            "_template": self.step("template", SimpleNamespace(close=self.step("template closed"))),
            "open_record": self.open_record,
            "keeping": lambda *given: SimpleNamespace(close=self.step("states written")),
            "schedule": self.schedule,
            "Watchdog": lambda *given: SimpleNamespace(start=lambda: None, stop=lambda: None),
            "_leave": self.leave,
            **dict.fromkeys(("sampling_defaults", "_open", "_report", "say_first_serve", "say"), lambda *given: None),
        }
        for name, does in steps.items():
            patch.setattr(serve, name, does)

    def step(self, told: str, result: Any = None) -> Callable[..., Any]:
        def does(*given: Any, **named: Any) -> Any:
            self.steps.append(told)
            return result

        return does

    def schedule(self, *given: Any, **named: Any) -> Any:
        self.scheduled = named
        return self.scheduler

    def open_record(self, *given: Any) -> Any:
        self.steps.append("record opened")
        if self.refusal is not None:
            raise self.refusal
        return self.recall

    def stop(self, patience: float) -> bool:
        self.steps.append("engine ended" if self.stopped else "engine stuck")
        return self.stopped

    def leave(self, *given: Any) -> None:
        self.steps.append("left")
        raise LeftError

    def run(self) -> int:
        settings = run_settings(parse(["serve", "demo", "--recall"]), {})
        server: Any = SimpleNamespace(keep=self.step("record shown"), stop=self.step("http ended"), hurry=lambda: None)
        told: Any = SimpleNamespace(asked=False, again=False, interrupting=nullcontext, wait=self.step("served"))
        container: Any = None
        return serve._run(settings, container, server, told)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


BEGUN = ["check", "template", "record opened", "record shown", "load"]


def test_a_record_is_opened_before_the_load_and_closed_after_the_engine(scene: Scene) -> None:
    assert scene.run() == 0
    assert scene.steps == [
        *BEGUN,
        "served",
        "http ended",
        "engine ended",
        "states written",
        "record closed",
        "template closed",
    ]
    assert scene.scheduled["more_sources"] == ("copies",)
    assert scene.scheduled["recorder"] is scene.recall and scene.scheduled["keeping"] is not None


def test_a_record_that_refuses_ends_the_start_before_the_load(scene: Scene) -> None:
    scene.refusal = RefusedError("Another tokenizer wrote it.")
    with pytest.raises(RefusedError):
        scene.run()
    assert scene.steps == ["check", "template", "record opened", "template closed"]


def test_a_load_that_fails_closes_the_record(scene: Scene) -> None:
    def fails() -> bool:
        raise RuntimeError("no memory")

    scene.load = fails
    with pytest.raises(RuntimeError, match="no memory"):
        scene.run()
    assert scene.steps == [*BEGUN, "engine ended", "states written", "record closed", "template closed"]


def test_an_engine_that_does_not_end_is_left_behind_a_closed_record(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.stopped = False
    with pytest.raises(LeftError):
        scene.run()
    assert scene.steps[-5:] == ["engine stuck", "states written", "record closed", "template closed", "left"]
    assert "the engine did not end in time" in capsys.readouterr().err
