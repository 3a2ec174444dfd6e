"""What the memory part prints before it loads anything, and what it makes of a load, here one of a hash model."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tensorfold.adapters.cuda import memory
from tensorfold.domain.families import nemotron_h, qwen3_5
from tensorfold.domain.memory.budgets import Card, Machine
from tests.benchmarks import gpu_memory
from tests.benchmarks.gpu_compile import shortest
from tests.benchmarks.gpu_memory import (
    BOUNDS,
    GIB,
    Reads,
    Watch,
    estimated,
    footprint,
    host_now,
    planned,
    terms,
    windows,
)
from tests.benchmarks.gpu_memory_start import starts
from tests.fakes.hash_law import HashLaw
from tests.fakes.hash_model import HashModel
from tests.synthetic.true_models import LLAMA_8B, NAMES, true_model

CARD = Card(total=150_754_820_096, free=149_000_000_000, available=120 * GIB, unified=False)
"""An H200's bytes."""


class Counted:
    """Torch's allocator and a card, as numbers; what is cached goes with `empty_cache`."""

    def __init__(self) -> None:
        self.allocated, self.most, self.cached, self.others = 10 * GIB, 12 * GIB, 3 * GIB, GIB

    def memory_allocated(self) -> int:
        return self.allocated

    def max_memory_allocated(self) -> int:
        return self.most

    def memory_reserved(self) -> int:
        return self.allocated + self.cached

    def mem_get_info(self) -> tuple[int, int]:
        return CARD.total - self.allocated - self.cached - self.others, CARD.total

    def empty_cache(self) -> None:
        self.cached = 0

    def reset_peak_memory_stats(self) -> None:
        self.most = self.allocated

    def synchronize(self) -> None: ...


def silent(line: str) -> None: ...


@pytest.mark.parametrize("name", NAMES)
def test_every_models_windows_fit_its_card_and_a_refusal_names_one_that_does(name: str) -> None:
    lines: list[str] = []
    made = windows(true_model(name), CARD, lines.append)
    assert made.chosen["8192"] == 8192
    assert made.chosen["default"] <= made.chosen["0"] <= made.native
    assert made.estimate["0"] * GIB < CARD.free
    assert 2 <= made.after_refusal < made.native
    assert f"--context {made.after_refusal} fits" in made.refused
    assert any("--context 0:" in line for line in lines)


def test_the_default_of_nemotron_is_at_most_16384_tokens() -> None:
    model = true_model("nemotron")
    assert planned(model, footprint(model), CARD, None).window.tokens == 16_384


@pytest.mark.parametrize("name", NAMES)
def test_the_parts_of_an_estimate_add_up_to_it(name: str) -> None:
    model = true_model(name)
    plan = planned(model, footprint(model), CARD, 32_768, kept=4)
    assert sum(terms(model, plan).values()) == estimated(plan)
    assert terms(model, plan)["weights"] == footprint(model).weights


def test_an_estimate_counts_weights_and_every_page() -> None:
    model = true_model("llama")
    found = footprint(model)
    small, large = (planned(model, found, CARD, tokens) for tokens in (4096, 8192))
    pages = large.pools.pages - small.pools.pages
    assert found.pools is not None
    assert estimated(large) - estimated(small) == pytest.approx(pages * found.pools.page, rel=0.05)
    assert estimated(small) > found.weights


def test_what_is_held_is_what_is_there_at_rest_and_the_most_that_tensors_took_beyond_that() -> None:
    cuda = Counted()
    watch = Watch(cuda, silent)
    cuda.allocated, cuda.most, cuda.others = 30 * GIB, 31 * GIB, 2 * GIB
    watch("a line")
    assert watch.moments[0].line == "a line"
    assert watch.moments[0].card == 21 * GIB
    # 20 more in tensors and one elsewhere; three that were only kept before are handed back; one more for a while.
    assert watch.held() == (20 + 1 - 3 + 1) * GIB


def test_a_process_tells_what_it_holds_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("Name:\tany\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\n")
    assert host_now(status=tmp_path / "status") == 1 << 20
    assert host_now("VmHWM", tmp_path / "status") == 2 << 20


def test_a_load_and_its_use_become_figures_of_card_and_host(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, cuda = dict[str, Any](), Counted()

    @contextmanager
    def loaded(stored: Any, title: str, wanted: Any, folder: Path, say: Any) -> Iterator[Any]:
        seen.update(wanted=wanted, folder=folder)
        say("checking rows")
        cuda.allocated, cuda.most = cuda.allocated + 5 * GIB, cuda.allocated + 6 * GIB
        yield HashModel(HashLaw(vocabulary=512, salt=7), one_thread=False, context=512, chain_width=16)

    planting = SimpleNamespace(Wanted=SimpleNamespace, loaded=loaded, of=lambda model, wanted: model)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setitem(sys.modules, "tests.benchmarks.gpu_planting", planting)
    monkeypatch.setattr(memory, "machine", lambda: Machine(128 * GIB, card=CARD))
    found = gpu_memory.measure(("llama", "/nowhere"))
    assert set(found["values"]) == {bound.name for bound in BOUNDS}
    assert seen["wanted"].pools.kept == 4
    assert seen["folder"] == Path("/nowhere")
    assert [moment["line"] for moment in found["moments"]] == ["checking rows", "loaded", "used"]
    assert found["card"]["at load"] == (5 + 1 - 3) * GIB
    assert found["card"]["in use"] == (5 - 3) * GIB
    assert found["record"] == "off"


def test_reading_a_large_slot_is_a_line_of_a_load_and_nothing_else_changes() -> None:
    lines: list[str] = []
    shapes = {"head": (1 << 16, 1 << 12), "norm": (8, 8)}
    weights = SimpleNamespace(matrix=lambda path: SimpleNamespace(shape=shapes[path]), floats=lambda path: f"of {path}")
    reads = Reads(weights, lines.append)
    assert [reads.matrix(path).shape for path in shapes] == list(shapes.values())
    assert lines == ["read head"] and reads.floats("norm") == "of norm"


def test_a_model_is_cut_to_the_fewest_layers_that_have_every_op() -> None:
    assert shortest(qwen3_5.plan(qwen3_5.CONFIG)) == 4
    plan = nemotron_h.plan(nemotron_h.CONFIG)
    kinds = {type(layer[0].op) for layer in plan.layers}
    count = shortest(plan)
    assert {type(layer[0].op) for layer in plan.layers[:count]} == kinds
    assert {type(layer[0].op) for layer in plan.layers[: count - 1]} < kinds
    assert shortest(true_model("llama").plan) == 1 < LLAMA_8B["num_hidden_layers"]


@pytest.mark.slow
def test_a_window_that_is_refused_names_one_that_then_starts(tmp_path: Path) -> None:
    made = starts(tmp_path, "mlx", "TENSORFOLD_MEMORY_LIMIT_GB", "3.3")
    assert made.lacks == []
    assert made.replied
    assert f"--context {made.fits} fits" in made.refused


@pytest.mark.slow
def test_a_window_that_starts_where_it_should_not_is_told(tmp_path: Path) -> None:
    made = starts(tmp_path, "mlx", "TENSORFOLD_MEMORY_LIMIT_GB", "900")
    assert not made.replied
    assert len(made.lacks) == 1
