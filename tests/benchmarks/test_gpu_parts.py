"""Parts of the GPU benchmark that load models or start processes, over stand-ins: what they ask, say and judge."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.benchmarks import (
    gpu_beside,
    gpu_compile,
    gpu_memory_start,
    gpu_model,
    gpu_parts,
    gpu_proof_runs,
    gpu_serving,
    gpu_verify,
)
from tests.benchmarks.gpu_beside import FailedError
from tests.benchmarks.gpu_memory import BOUNDS
from tests.benchmarks.gpu_memory_start import Started
from tests.benchmarks.gpu_model import Measures
from tests.benchmarks.gpu_parts import PARTS, Found
from tests.benchmarks.gpu_proof import FAULTS, Proved
from tests.benchmarks.gpu_proof_runs import Done, Task
from tests.benchmarks.gpu_verify import Verified


class Planted:
    """Stands in for `gpu_planting`, which needs torch; `wanted` is what was loaded."""

    Wanted = SimpleNamespace

    def __init__(self) -> None:
        self.wanted: list[Any] = []

    @contextmanager
    def true(self, name: str, wanted: Any, folder: Path, say: Callable[[str], None]) -> Iterator[Any]:
        self.wanted.append(wanted)
        limits = SimpleNamespace(notes=("narrow",), head="one")
        yield SimpleNamespace(identity=SimpleNamespace(name=f"true {name}"), limits=limits)

    def headless(self, model: Any) -> str:
        return f"{model.identity.name} without its head"

    def timed(self, run: Callable[[], Any]) -> tuple[Any, float]:
        return run(), 1.0


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Planted:
    made = Planted()
    monkeypatch.setattr(gpu_compile, "compile_all", lambda folder, say, names: {})
    monkeypatch.setitem(sys.modules, "tests.benchmarks.gpu_planting", made)
    return made


def reached(bounds: Sequence[Any], **changes: float) -> Measures:
    """Measures at every bound."""
    values = {bound.name: float(bound.least or bound.most or 0.0) for bound in bounds}
    return Measures(values=values | changes, compared=7)


@pytest.mark.parametrize("name", gpu_parts.NAMES)
def test_a_models_part_asks_for_its_prompts_and_is_met_where_every_bound_is(
    name: str, planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def measure(model: Any, named: str, timed: Any, say: Any, **how: Any) -> Measures:
        asked.update(how, named=named)
        return reached(gpu_model.BOUNDS[name])

    monkeypatch.setattr(gpu_model, "measure", measure)
    found = PARTS[name](Path("/cubins"))
    assert found.met, found.words
    assert planted.wanted[0].context > max(gpu_model.PROMPTS)
    assert asked["named"] == name
    assert asked["until"] > 0
    assert callable(asked["profile"])
    assert asked["plain"] == f"true {name} without its head"
    assert "7 tokens compared; narrow" in found.words
    assert found.figures["model"] == f"true {name}"


def test_a_step_that_failed_misses_whatever_the_others_reached(
    planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = reached(gpu_serving.BOUNDS["qwen"])
    monkeypatch.setattr(gpu_serving, "measure", lambda model, say, **how: made)
    assert PARTS["qwen-serving"](Path("/cubins")).met
    assert (planted.wanted[0].streams, planted.wanted[0].head) == (32, False)
    made.failed["http"] = "a traceback"
    found = PARTS["qwen-serving"](Path("/cubins"))
    assert not found.met
    assert "FAILED: http" in found.words


def ran(results: dict[str, Any]) -> Callable[..., Iterator[tuple[Any, Any]]]:
    """Stands in for `beside`: results by the name that a task begins with."""

    def beside(work: Any, tasks: Sequence[Any], seconds: float) -> Iterator[tuple[Any, Any]]:
        for task in tasks:
            name = task.name if isinstance(task, Task) else task[0]
            yield task, results.get(name, FailedError("ValueError: no card"))

    return beside


def test_the_memory_part_judges_each_model_and_goes_on_where_one_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    near = {bound.name: 1.0 for bound in BOUNDS}
    one = {"values": near, "windows": {"default": 5, "0": 6}, "native": 7}
    started = Started(refused="...", fits=9, replied=True)
    monkeypatch.setattr(gpu_compile, "compile_all", lambda folder, say: {})
    monkeypatch.setattr(gpu_memory_start, "starts", lambda home, backend: started)
    monkeypatch.setattr(gpu_beside, "beside", ran({"qwen": one, "llama": one, "nemotron": one}))
    found = gpu_parts.memory(Path("/cubins"))
    assert found.met, found.words
    assert "default 5 of 7 tokens, 0 6" in found.words
    assert "a refused window names 9, which serves" in found.words
    monkeypatch.setattr(
        gpu_beside, "beside", ran({"qwen": one, "llama": one | {"values": near | {BOUNDS[0].name: 0.9}}})
    )
    found = gpu_parts.memory(Path("/cubins"))
    assert not found.met
    assert "nemotron FAILED: ValueError: no card" in found.words
    assert "MISSED" in found.words
    assert set(found.figures) == {"record", "qwen", "llama", "starts"}


def test_compiling_tells_the_seconds_of_each_model_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_compile, "beside", ran({"qwen": 50.0, "llama": 20.0}))
    found = gpu_parts.compiled(tmp_path)
    assert not found.met
    assert found.words == "compiled side by side: qwen 50 s, nemotron drafts ValueError: no card, llama 20 s"
    monkeypatch.setattr(gpu_compile, "beside", ran({"nemotron": 40.0}))
    assert gpu_parts.compiled(tmp_path).words == "compiled side by side: nemotron 40 s"
    assert gpu_parts.compiled(tmp_path).words == "compiled side by side: nothing was left to compile"


@pytest.mark.parametrize(("part", "names"), [("proof-tiny", gpu_proof_runs.TINY), ("proof-true", gpu_proof_runs.TRUE)])
def test_a_proof_runs_every_model_and_is_one_where_enough_was_compared(
    part: str, names: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def proved(compared: int) -> dict[str, Done]:
        return {
            name: Done(Proved(compared, 0, 50, 50, 9, 9), dict.fromkeys(FAULTS, True), eager=9) for name in names
        }  # fmt: skip

    monkeypatch.setattr(gpu_compile, "compile_all", lambda folder, say: {})
    monkeypatch.setattr(gpu_proof_runs, "processes", lambda: 2)
    monkeypatch.setattr(gpu_proof_runs, "beside", ran(proved(100_000)))
    found = PARTS[part](Path("/cubins"))
    assert found.met, found.words
    assert set(found.figures["models"]) == set(names)
    monkeypatch.setattr(gpu_proof_runs, "beside", ran(proved(1_000)))
    assert not PARTS[part](Path("/cubins")).met


def test_tasks_of_tiny_families_differ_and_the_first_of_each_plants_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Task] = []

    def beside(work: Any, tasks: Sequence[Task], seconds: float) -> Iterator[tuple[Task, Done]]:
        seen.extend(tasks)
        return iter(())

    monkeypatch.setattr(gpu_proof_runs, "processes", lambda: 4)
    monkeypatch.setattr(gpu_proof_runs, "beside", beside)
    gpu_proof_runs.tiny(Path("/cubins"), 20_261_130, 300_000, lambda line: None)
    assert len({(task.name, task.seed) for task in seen}) == 12
    assert sum(task.tokens for task in seen) >= 300_000
    assert sorted(task.name for task in seen if task.faults) == sorted(gpu_proof_runs.TINY)
    # Weights of both kinds of every family, plain ones and codes.
    assert {(task.name, task.seed // 1000 % 2) for task in seen} == {
        (name, odd) for name in gpu_proof_runs.TINY for odd in (0, 1)
    }  # fmt: skip


def test_verify_passes_where_every_family_does(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = Verified(passed=True, compared=9, replies=8, drafted=4)
    for more, met in (({}, True), ({"qwen3_5": Verified(said=["Traceback"])}, False)):
        families = dict.fromkeys(gpu_verify.FAMILIES, sound) | more
        monkeypatch.setattr(gpu_verify, "verify_all", lambda home, backend, families=families: families)
        found: Found = gpu_parts.verify(Path("/cubins"))
        assert found.met is met
        assert found.figures["record"].startswith("on while proving")
