"""The memory classes: every budget and every computed window, reckoned here once more from the plans alone."""

from __future__ import annotations

import re

import pytest

from tensorfold.application.memory_classes import CLASSES, Column, classes, columns
from tensorfold.domain.families.facts import drafter_parameters, facts
from tensorfold.domain.families.state import lane_bytes, state_spec
from tensorfold.entrypoints.cli.bench_memory import memory_classes
from tensorfold.entrypoints.cli.parser import parse

GIB = 1 << 30
BUDGETS = {36: 25.2, 48: 33.6, 64: 44.8, 96: 67.2, 128: 89.6, 192: 134.4, 256: 179.2}
"""The README's ceilings."""
TITLES = ("Qwen3.8-27B + DFlash2", "Qwen3.8-27B, --drafter none", "Nemotron 3.5 Lightning", "Qwen3.8 Flash Next")


@pytest.fixture(scope="module")
def models() -> tuple[Column, ...]:
    return columns()


@pytest.fixture(scope="module")
def printed() -> list[str]:
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert memory_classes(parse(["bench", "--memory-classes"])) == 0
    return out.getvalue().splitlines()


def cells(lines: list[str]) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if re.match(r"\| \w", line)]


def weights(model: Column) -> float:
    """Bytes by counts alone: 4 bits a value, and a scale and a bias of two bytes for each group."""
    told = facts(model.plan)
    count = told.parameters + (told.head if model.plan.mtp is not None else 0)
    own = count * (model.layout.bits / 8 + 4 / model.layout.group)
    return own + (0 if model.drafter is None else drafter_parameters(model.drafter) * (0.5 + 8 / 64))


def test_both_tables_are_printed_with_seven_budgets_and_four_models(printed: list[str]) -> None:
    rows = cells(printed)
    heads, half = ["Nominal RAM class", "Budget ceiling", *TITLES], len(rows) // 2
    assert rows[0] == rows[half] == heads and len(rows) == 2 * 8
    for table in (rows[1:half], rows[half + 1 :]):
        assert [row[0] for row in table] == [f"{nominal} GB" for nominal in BUDGETS]
        assert [row[1] for row in table] == [f"{ceiling} GiB" for ceiling in BUDGETS.values()]
    assert "Computed contexts" in "\n".join(printed) and "not measured" in "\n".join(printed)
    assert printed[-1] == "7 budgets, 4 models, 24 computed contexts, 0 measured"


def test_the_public_cells_are_open(printed: list[str]) -> None:
    assert all(row[2:] == ["TBD"] * 4 for row in cells(printed)[1:8])


def test_every_budget_is_seventy_percent_of_nominal_ram(models: tuple[Column, ...]) -> None:
    made = classes(models)
    assert [each.nominal for each in made] == list(CLASSES) == list(BUDGETS)
    for each in made:
        assert each.budget.process == pytest.approx(BUDGETS[each.nominal] * GIB, rel=1e-9)
        assert each.budget.allocator == each.budget.process - 3 * GIB


def test_every_computed_window_follows_from_the_plan(models: tuple[Column, ...], printed: list[str]) -> None:
    for column, model in enumerate(models):
        entries = state_spec(model.plan, model.drafter)
        took, held = model.footprint, weights(model)
        # Norms, biases and tables of draft ids, which counts alone do not tell, are less than three percent.
        assert took.weights == pytest.approx(held, rel=0.03), model.title
        for row, nominal in zip(cells(printed)[9:], BUDGETS, strict=True):
            said, room = row[2 + column], BUDGETS[nominal] * GIB - 3 * GIB - took.weights
            if said == "does not fit":
                assert room < 2 * lane_bytes(entries, 1024) + (256 << 20)
                continue
            found = re.fullmatch(r"(\d+)", said)
            assert found is not None, said
            window = int(found[1])
            work = took.work.bytes_for(took.rows, window)
            assert 2 * lane_bytes(entries, window) + work <= room
            if window < model.plan.context:
                # The next step does not fit: what buffers round up and take twice is all that may lie between.
                more = 2 * took.state.held(window + 1024, window + 1024) + took.state.growth(window + 1024)
                assert window % 1024 == 0 and more + took.work.bytes_for(took.rows, window + 1024) > room
                assert more <= 2.2 * lane_bytes(entries, window + 1024) + (1 << 30)
            else:
                assert window == model.plan.context
