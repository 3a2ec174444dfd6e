"""A small part of the proof of gates, and that it notices what it is there to notice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from tensorfold.application.lanes import Lanes
from tensorfold.application.live import Live
from tensorfold.domain.gates.constraint import Constraint, Mask
from tensorfold.domain.sampling import draw_rows
from tensorfold.domain.windows import Window
from tests.fakes.hash_launch import DrawnRows, HashLaunch
from tests.fakes.hash_model import HashModel
from tests.libraries import needs
from tests.prove.gate_bench import Tally
from tests.prove.grammar import CELLS, GIVEN_UP, bench_of, cell, schemas
from tests.prove.schemas import Listed

pytestmark = [pytest.mark.slow, needs("llguidance")]

OWN = (
    {"type": "object", "properties": {"a": {"type": "string", "format": "date"}}, "required": ["a"]},
    {"type": "array", "prefixItems": [{"type": "integer"}], "items": False, "minItems": 1},
    {"anyOf": [{"const": {"b": [1, None]}}, {"type": "boolean"}]},
    {"$ref": "#/$defs/n", "$defs": {"n": {"type": "number", "minimum": -1.5, "maximum": 20}}},
    {"type": "string", "pattern": "^[a-f]{2,5}$"},
    {"type": "object", "additionalProperties": {"type": "integer", "multipleOf": 3}, "maxProperties": 2},
)


@pytest.mark.parametrize("name", sorted(CELLS))
def test_drafted_replies_of_every_gate_are_the_serial_ones(name: str) -> None:
    tally = cell(name, 300, 11, batch=5)
    assert tally.tokens >= 300 and not tally.differences, tally.first


def test_replies_under_gates_whose_lanes_are_given_up_are_the_serial_ones() -> None:
    tally = cell(GIVEN_UP, 300, 11, batch=16)
    assert tally.dropped and not tally.differences, tally.first


def masks_forgotten(live: Live) -> None:
    """A reply is read again without its masks."""
    live.again = None


def masks_of_its_end(live: Live) -> None:
    """A reply is read again with the masks of where it had come to."""
    live.again = live.stream.constraint


@pytest.mark.parametrize("plant", [masks_forgotten, masks_of_its_end])
def test_a_reply_that_is_read_again_with_other_masks_is_noticed(
    plant: Callable[[Live], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    drop = Lanes.drop

    def planted(self: Lanes, live: Live, *, keep: bool = False) -> None:
        drop(self, live, keep=keep)
        plant(live)

    monkeypatch.setattr(Lanes, "drop", planted)
    assert cell(GIVEN_UP, 3000, 11, batch=16).differences


def test_replies_under_schemas_are_valid() -> None:
    pytest.importorskip("jsonschema", reason="jsonschema, a test dependency, is not installed here")
    tally = Tally()
    listed = [Listed("draft2020-12", f"own {number}", schema) for number, schema in enumerate(OWN)]
    figures = schemas([*listed, Listed("draft2020-12", "unheld", {"not": {}})], tally)
    assert (figures.held, figures.refused, figures.valid) == (len(OWN), 1, len(OWN)), figures.wrong
    assert not tally.differences, tally.first


def test_a_mask_of_the_wrong_row_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    masks = Constraint.masks

    def of_the_first_row(self: Constraint, window: Window) -> Sequence[Mask | None]:
        made = masks(self, window)
        return tuple(made[window.forced] if mask is not None else None for mask in made)

    monkeypatch.setattr(Constraint, "masks", of_the_first_row)
    assert cell("grammar", 3000, 11, batch=5).differences


def test_a_mask_that_comes_after_the_draw_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    gathered = HashModel._gathered

    def drawn_first(self: HashModel, launch: HashLaunch) -> DrawnRows:
        """Rows whose masks leave the token alone that is drawn without them, or the first where that is not allowed."""
        rows = gathered(self, launch)
        free = draw_rows(self._logits(rows), rows.draw_positions, rows.samplings)
        late = []
        for row, mask in rows.masks:
            allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()
            token = free[row] if free[row] in allowed else allowed[0]
            only = np.zeros_like(mask)
            only[token // 32] = np.uint32(1 << token % 32)
            late.append((row, only))
        return replace(rows, masks=late)

    monkeypatch.setattr(HashModel, "_gathered", drawn_first)
    assert cell("grammar", 3000, 11, batch=5).differences


def test_a_budget_of_one_token_less_is_noticed() -> None:
    bench, tally = bench_of("budget", 3), Tally()
    case = CELLS["budget"](bench)
    bench.expect(case)
    case.request = replace(case.request, thinking_budget=case.request.thinking_budget + 1)
    bench.compare([case], tally)
    assert tally.differences
