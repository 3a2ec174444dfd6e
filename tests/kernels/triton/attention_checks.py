"""What decode attention and the placing of rows must hold, on a card ("cuda") or in the interpreter ("cpu").

`TRITON_INTERPRET=1 python -m tests.kernels.triton.attention_checks` runs the checks named, or all of them, in float32:
the interpreter's products of bf16 are wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]
from numpy.typing import NDArray

from tensorfold.kernels.reference.attention import attend, output_gated
from tensorfold.kernels.reference.norm import rms_norm
from tensorfold.kernels.reference.rope import rotate
from tensorfold.kernels.triton.attention import Form, attend_rows, form_of, launched, plan, scratch_for
from tensorfold.kernels.triton.move_keys import move_keys
from tensorfold.kernels.triton.place_rows import HeadForm, place_rows, place_span
from tensorfold.kernels.triton.prompt_attention import PromptForm, attend_span
from tests.kernels.triton.quick import quicken

Tensor = Any
PAGE = 512
# Several tiles a run, several partitions within few keys, and fewer programs than units.
SMALL = Form(6, 2, 32, tile=16, parts=4, stages=2)
PROGRAMS = 7


def kind(device: str) -> Any:
    return torch.bfloat16 if device == "cuda" else torch.float32


def exact(tensor: Tensor) -> NDArray[np.float64]:
    numbers: NDArray[np.float64] = tensor.double().cpu().numpy()
    return numbers


def noise(device: str, *shape: int) -> Tensor:
    return torch.randn(shape, device=device).to(kind(device))


def ints(device: str, values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)


def near(result: Tensor, true: NDArray[np.float64], most: float = 8e-3) -> None:
    difference = np.linalg.norm(exact(result) - true) / np.linalg.norm(true)
    assert difference < most, difference


class Lanes:
    """Pools of keys and values whose lanes have their pages out of order; unused slots hold NaN."""

    def __init__(self, device: str, lengths: Sequence[int], groups: int, width: int) -> None:
        self.device, self.lengths = device, lengths
        each = max(-(-length // PAGE) for length in lengths)
        pages = each * len(lengths)
        order = torch.randperm(pages).reshape(len(lengths), each)
        self.table = order.to(torch.int32).to(device)
        shape = (pages, PAGE, groups, width)
        self.keys = torch.full(shape, float("nan"), device=device, dtype=kind(device))
        self.values = self.keys.clone()
        for lane, length in enumerate(lengths):
            self.write(lane, range(length), noise(device, length, groups, width), noise(device, length, groups, width))

    def at(self, lane: int, slots: Sequence[int]) -> tuple[Tensor, Tensor]:
        places = torch.tensor(list(slots), device=self.device)
        return self.table[lane].long()[places // PAGE], places % PAGE

    def write(self, lane: int, slots: Sequence[int], keys: Tensor, values: Tensor) -> None:
        self.keys[self.at(lane, slots)], self.values[self.at(lane, slots)] = keys, values

    def straight(self, lane: int, slots: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return exact(self.keys[self.at(lane, slots)]), exact(self.values[self.at(lane, slots)])


class Launch:
    """Rows as (lane, committed, path of the row's own slots behind the committed keys)."""

    def __init__(self, lanes: Lanes, rows: Sequence[tuple[int, int, Sequence[int]]]) -> None:
        self.lanes, self.rows = lanes, list(rows)

    def run(
        self, form: Form, query: Tensor, gate: Tensor | None = None, programs: int = PROGRAMS, width: int = 0
    ) -> Tensor:
        device = self.lanes.device
        lane = ints(device, [row[0] for row in self.rows])
        committed = ints(device, [row[1] for row in self.rows])
        lengths = ints(device, [row[1] + len(row[2]) for row in self.rows])
        most = width or max(1, *(len(row[2]) for row in self.rows))
        path = ints(device, [[*row[2], *[0] * (most - len(row[2]))] for row in self.rows])
        # What is filled lies between the plan and attention, which reads it before it waits for its predecessor.
        scratch = scratch_for(form, plan(form, lane, lengths, committed, path), query)
        for part in (scratch.most, scratch.total, scratch.mixed):
            part.fill_(float("nan"))
        out = torch.full_like(query, float("nan"))
        gate_at = (form.heads * form.width, form.width)
        attend_rows(
            form, query, self.lanes.keys, self.lanes.values, self.lanes.table, lane, lengths, committed, path, scratch,
            out, form.width**-0.5, programs, gate, gate_at,
        )  # fmt: skip
        return out

    def truth(self, form: Form, query: Tensor) -> NDArray[np.float64]:
        made = []
        for row, (lane, committed, path) in enumerate(self.rows):
            slots = [*range(committed), *path]
            keys, values = self.lanes.straight(lane, slots)
            first = max(0, len(slots) - form.window) if form.window else 0
            reads = [list(range(first, len(slots)))]
            made.append(attend(exact(query[row : row + 1]), keys, values, reads, form.width**-0.5)[0])
        return np.stack(made)

    def alone(self, form: Form, query: Tensor, rows: Sequence[int], width: int = 0) -> Tensor:
        """The results of some rows, each in a launch of its own."""
        single = [Launch(self.lanes, [self.rows[at]]).run(form, query[at : at + 1], width=width) for at in rows]
        return torch.cat(single)


def chain(lane: int, committed: int, count: int) -> list[tuple[int, int, Sequence[int]]]:
    return [(lane, committed, range(committed, committed + row + 1)) for row in range(count)]


def check_rows_of_a_chain(device: str) -> None:
    for length in (1, 250, 505):
        lanes = Lanes(device, [length + 8], 2, 32)
        query = noise(device, 9, 6, 32)
        launch = Launch(lanes, chain(0, length - 1, 9))
        out = launch.run(SMALL, query)
        near(out, launch.truth(SMALL, query))
        assert torch.equal(launch.run(SMALL, query, programs=1), out)
        # One after another, as without drafts: every earlier row has been committed.
        serial = [(0, length - 1 + row, [length - 1 + row]) for row in range(9)]
        for row in (0, 6, 7):
            assert torch.equal(Launch(lanes, [serial[row]]).run(SMALL, query[row : row + 1], width=16)[0], out[row])


def check_forms(device: str) -> None:
    for heads, groups, width in ((24, 4, 64), (32, 2, 32), (9, 3, 40)):
        form = form_of(heads, groups, width)
        lanes = Lanes(device, [150], groups, width)
        query = noise(device, 3, heads, width)
        launch = Launch(lanes, chain(0, 147, 3))
        out = launch.run(form, query)
        near(out, launch.truth(form, query))
        assert torch.equal(launch.alone(form, query, (0, 2)), out[[0, 2]])
        assert torch.equal(launch.run(replace(form, stages=4, resident=2), query, programs=40), out)


def check_few_rows(device: str) -> None:
    """Launches whose pairs fit into a smaller tile have the bits of the larger one."""
    for heads, groups, width, rows in ((24, 4, 64, 2), (32, 8, 32, 4)):
        form = form_of(heads, groups, width)
        few = launched(form, rows)
        assert few.tile < form.tile == launched(form, rows + 1).tile
        assert launched(form, 8 * rows, 8) == few and launched(form, 8 * rows + 1, 8).tile == form.tile
        lanes = Lanes(device, [700], groups, width)
        query = noise(device, 9, heads, width)
        launch = Launch(lanes, chain(0, 690, 9))
        out = launch.run(form, query)
        near(out, launch.truth(form, query))
        beside = Launch(lanes, launch.rows[9 - rows :]).run(few, query[9 - rows :])
        if device == "cuda":
            assert torch.equal(beside, out[9 - rows :])
        else:  # the interpreter's products add in an order of their own for each size
            near(beside, exact(out[9 - rows :]), 1e-6)


def check_large_tiles(device: str) -> None:
    """Launches whose rows do not fit into one tile have the bits of the smaller tile in a larger one."""
    for form, committed in (
        (replace(form_of(24, 4, 64), large=128), 254),
        (replace(SMALL, large=64), 505),
        (replace(SMALL, large=32, window=200), 510),
        (replace(SMALL, large=64, window=130, least=2), 315),
    ):
        lanes = Lanes(device, [committed + 9, 70], form.groups, form.width)
        rows = [*tree(committed), *chain(1, 61, 7), *chain(0, max(3, committed - 130), 5)]
        query = noise(device, len(rows), form.heads, form.width)
        launch, large = Launch(lanes, rows), launched(form, len(rows))
        assert large.tile == form.large > launched(form, form.per_tile).tile
        out = launch.run(large, query)
        near(out, launch.truth(form, query))
        picked = [0, 2, 6, 8, 9, 15, 20]
        assert torch.equal(launch.alone(large, query, picked, width=9), out[picked])
        small = launch.alone(form, query, picked, width=9)
        if device == "cuda":
            assert torch.equal(small, out[picked])
        else:  # the interpreter's products add in an order of their own for each size
            near(small, exact(out[picked]), 1e-6)


def check_shares_of_heads(device: str) -> None:
    """Rows that fill one tile too many by whole rows share their tiles by heads, and keep their bits."""
    for form in (replace(SMALL, large=32), replace(SMALL, large=32, window=130)):
        lanes = Lanes(device, [520, 90], form.groups, form.width)
        rows = [*tree(505), *chain(1, 60, 23)]
        query = noise(device, len(rows), form.heads, form.width)
        launch, split = Launch(lanes, rows), launched(form, len(rows))
        assert (split.split, split.per_tile) == (3, 32) and launched(form, len(rows) - 2).split == 1
        out = launch.run(split, query)
        near(out, launch.truth(form, query))
        picked = [0, 3, 8, 9, 30, 31]
        assert torch.equal(launch.alone(split, query, picked, width=23), out[picked])
        whole = launch.run(replace(split, split=1), query)
        if device == "cuda":
            assert torch.equal(whole, out)
        else:  # the interpreter's products add in an order of their own for each size
            near(whole, exact(out), 1e-6)


def check_windows(device: str) -> None:
    for window, length in ((64, 64), (200, 513), (1, 300)):
        form = replace(SMALL, window=window)
        lanes = Lanes(device, [length + 7], 2, 32)
        query = noise(device, 8, 6, 32)
        launch = Launch(lanes, chain(0, length - 1, 8))
        out = launch.run(form, query)
        near(out, launch.truth(form, query))
        assert torch.equal(launch.alone(form, query, (0, 3, 7)), out[[0, 3, 7]])


def check_lanes_of_different_lengths(device: str) -> None:
    lanes = Lanes(device, [700, 3, 1100, 90], 2, 32)
    rows = [*chain(0, 697, 3), *chain(1, 0, 1), *chain(2, 1090, 7), *chain(3, 70, 6)]
    query = noise(device, len(rows), 6, 32)
    launch = Launch(lanes, rows)
    out = launch.run(SMALL, query)
    near(out, launch.truth(SMALL, query))
    assert torch.equal(launch.alone(SMALL, query, (0, 2, 3, 9, 16)), out[[0, 2, 3, 9, 16]])
    order = [14, 15, 16, 3, 0, 1, 2]
    other = Launch(lanes, [rows[at] for at in order]).run(SMALL, query[order])
    assert torch.equal(other, out[order])


TREE = (-1, 0, 0, 1, 2, 4, 4, 3, 2)


def tree(committed: int) -> list[tuple[int, int, Sequence[int]]]:
    rows: list[tuple[int, int, Sequence[int]]] = []
    for row, parent in enumerate(TREE):
        before = rows[parent][2] if parent >= 0 else []
        rows.append((0, committed, [*before, committed + row]))
    return rows


def check_a_tree_across_edges(device: str) -> None:
    for committed, others in ((61, (replace(SMALL, tile=64), replace(SMALL, window=50))), (254, ()), (510, ())):
        lanes = Lanes(device, [committed + 9], 2, 32)
        query = noise(device, 9, 6, 32)
        launch = Launch(lanes, tree(committed))
        for form in (SMALL, *others):
            out = launch.run(form, query)
            near(out, launch.truth(form, query))
            assert torch.equal(launch.alone(form, query, (2, 6, 8), width=5), out[[2, 6, 8]])
            # A row whose path was written one after another and committed.
            straight = Lanes(device, [committed + 9], 2, 32)
            for row in (5, 7):
                slots = [*range(committed), *launch.rows[row][2]]
                straight.write(0, range(len(slots)), lanes.keys[lanes.at(0, slots)], lanes.values[lanes.at(0, slots)])
                one = [(0, len(slots) - 1, [len(slots) - 1])]
                assert torch.equal(Launch(straight, one).run(form, query[row : row + 1])[0], out[row])


def check_the_output_gate(device: str) -> None:
    lanes = Lanes(device, [200], 2, 32)
    query, gate = noise(device, 4, 6, 32), noise(device, 4, 6, 32)
    launch = Launch(lanes, chain(0, 196, 4))
    out = launch.run(SMALL, query, gate)
    near(out, output_gated(launch.truth(SMALL, query), exact(gate)))


def check_many_rows(device: str) -> None:
    lanes = Lanes(device, [200, 130], 2, 32)
    rows = [*chain(0, 150, 24), *chain(1, 100, 20)]
    query = noise(device, 44, 6, 32)
    launch = Launch(lanes, rows)
    out = launch.run(SMALL, query)
    near(out, launch.truth(SMALL, query))
    picked = [0, 23, 24, 43]
    assert torch.equal(launch.alone(SMALL, query, picked), out[picked])


def placed(
    device: str, form: Form, head: HeadForm, projected: Tensor, lanes: Lanes, rows: Sequence[tuple[int, int, int]]
) -> Tensor:
    """Queries of rows given as (lane, position, slot)."""
    query = torch.full((len(rows), form.heads, form.width), float("nan"), device=device, dtype=kind(device))
    lane, position, slot = (ints(device, list(part)) for part in zip(*rows, strict=True))
    place_rows(form, head, projected, position, lane, slot, lanes.table, lanes.keys, lanes.values, query)
    return query


HEADS: dict[str, Callable[[str], HeadForm]] = {
    "bare": lambda device: HeadForm(),
    "whole": lambda device: HeadForm(turns=turns(device, 16), factor=1.1),
    "partial": lambda device: HeadForm(noise(device, 32), noise(device, 32), 1e-6, 1e-5, turns(device, 4), gated=True),
    "interleaved": lambda device: HeadForm(None, noise(device, 32), 0.0, 1e-6, turns(device, 8), interleaved=True),
}


def turns(device: str, pairs: int) -> Tensor:
    frequencies = 1e7 ** (-np.arange(pairs) / pairs)
    return torch.from_numpy(frequencies / (2 * np.pi)).to(device)


def true_heads(
    values: Tensor, weight: Tensor | None, eps: float, head: HeadForm, positions: Sequence[int]
) -> NDArray[np.float64]:
    made = exact(values)
    if weight is not None:
        made = rms_norm(made, exact(weight), eps)
    if head.turns is None:
        return made
    frequencies = exact(head.turns) * 2 * np.pi
    at = np.asarray(positions)
    return rotate(made, at, frequencies, interleaved=head.interleaved, factor=head.factor)


def check_placing(device: str) -> None:
    rows = [(0, 5, 5), (0, 6, 6), (1, 600, 603), (2, 262_143, 511)]
    for make in HEADS.values():
        head = make(device)
        form = Form(6, 2, 32)
        lanes = Lanes(device, [600, 700, 512], 2, 32)
        each = 64 if head.gated else 32
        projected = noise(device, 4, 6 * each + 2 * 2 * 32)
        query = placed(device, form, head, projected, lanes, rows)
        positions = [row[1] for row in rows]
        queries = projected[:, : 6 * each].reshape(4, 6, each)[:, :, :32]
        keys, values = projected[:, 6 * each :].reshape(4, 2, 2, 32).unbind(1)
        near(query, true_heads(queries, head.q_norm, head.q_eps, head, positions))
        true_keys = true_heads(keys, head.k_norm, head.k_eps, head, positions)
        if device == "cpu":
            near(query, true_heads(queries, head.q_norm, head.q_eps, head, positions), 1e-6)
        for at, (lane, _, slot) in enumerate(rows):
            near(lanes.keys[lanes.at(lane, [slot])], true_keys[at : at + 1])
            assert torch.equal(lanes.values[lanes.at(lane, [slot])][0], values[at])
        others = Lanes(device, [600, 700, 512], 2, 32)
        others.table = lanes.table
        for at in range(4):
            one = placed(device, form, head, projected[at : at + 1].contiguous(), others, rows[at : at + 1])
            assert torch.equal(one[0], query[at])
            place = lanes.at(rows[at][0], [rows[at][2]])
            assert torch.equal(others.keys[place], lanes.keys[place])


def check_placing_a_span(device: str) -> None:
    head, form = HEADS["partial"](device), Form(6, 2, 32)
    lanes, others = Lanes(device, [540], 2, 32), Lanes(device, [540], 2, 32)
    others.table = lanes.table
    projected = noise(device, 30, 6 * 64 + 2 * 2 * 32)
    positions = ints(device, list(range(500, 530)))
    query = torch.full((30, 6, 32), float("nan"), device=device, dtype=kind(device))
    place_span(form, head, projected, positions, 500, lanes.table[0], lanes.keys, lanes.values, query)
    rows = [(0, at, at) for at in range(500, 530)]
    assert torch.allclose(
        placed(device, form, head, projected, others, rows).float(), query.float(), atol=1e-2, rtol=2e-2
    )
    slots = range(500, 530)
    of_rows, of_span = (pool[lanes.at(0, slots)].float() for pool in (others.keys, lanes.keys))
    assert torch.allclose(of_rows, of_span, atol=1e-2, rtol=2e-2)
    assert torch.equal(others.values[lanes.at(0, slots)], lanes.values[lanes.at(0, slots)])
    assert torch.isfinite(lanes.keys[lanes.at(0, range(540))]).all()


def check_values_that_are_no_numbers(device: str) -> None:
    form, head = Form(6, 2, 32), HeadForm()
    lanes = Lanes(device, [100], 2, 32)
    projected = noise(device, 2, 6 * 32 + 2 * 2 * 32)
    projected[1, 6 * 32 :] = float("nan")
    projected[1, -5:] = float("inf")
    query = placed(device, form, head, projected, lanes, [(0, 98, 98), (0, 99, 99)])
    launch = Launch(lanes, chain(0, 98, 2))
    assert torch.equal(launch.run(form, query)[0], Launch(lanes, chain(0, 98, 1)).run(form, query[:1])[0])


def attended(
    device: str, form: PromptForm, lanes: Lanes, query: Tensor, start: int, window: int = 0, gate: Tensor | None = None
) -> Tensor:
    """Rows [T, H, D] of lane 0 from `start` on; `gate` holds a gate behind each head's query, as a projection does."""
    out = torch.full_like(query, float("nan"))
    at = (0, 0) if gate is None else (2 * query.shape[1] * query.shape[2], 2 * query.shape[2])
    attend_span(
        form, query, lanes.keys, lanes.values, lanes.table[0], start, out, query.shape[2] ** -0.5, window, gate, at
    )
    return out


def check_spans(device: str) -> None:
    forms = (PromptForm(32, 32, 4, 2), PromptForm(16, 64, 4, 2, parted=False))
    for start, rows, window, form in ((0, 40, 0, forms[0]), (485, 40, 0, forms[0]), (497, 40, 50, forms[1])):
        lanes = Lanes(device, [start + rows], 2, 32)
        for pool in (lanes.keys, lanes.values):  # a pool holds finite numbers alone
            torch.nan_to_num_(pool)
        both = noise(device, rows, 6, 64)
        query, gate = both[:, :, :32].contiguous(), both[:, :, 32:]
        out = attended(device, form, lanes, query, start, window)
        keys, values = lanes.straight(0, range(start + rows))
        reads = [list(range(max(0, at - window + 1) if window else 0, at + 1)) for at in range(start, start + rows)]
        near(out, attend(exact(query), keys, values, reads, 32**-0.5))
        near(attended(device, form, lanes, query, start, window, gate), output_gated(exact(out), exact(gate)))
        for cut in (1, 25):
            parts = (query[:cut].contiguous(), start), (query[cut:].contiguous(), start + cut)
            pieces = [attended(device, form, lanes, part, at, window) for part, at in parts]
            assert torch.equal(torch.cat(pieces), out)
        # Keys behind a row are nothing to it.
        lanes.write(0, [start + rows - 1], noise(device, 1, 2, 32), noise(device, 1, 2, 32))
        assert torch.equal(attended(device, form, lanes, query, start, window)[:-1], out[:-1])


def check_moves(device: str) -> None:
    lanes = Lanes(device, [600, 520], 2, 32)
    before = [lanes.straight(lane, range(520)) for lane in (0, 1)]
    moves = [
        (0, 503, 501),
        (0, 504, 502),
        *((0, at + 8, at) for at in range(505, 530, 3)),
        (1, 515, 511),
        (1, 517, 512),
    ]
    move_keys(ints(device, moves), lanes.table, lanes.keys, lanes.values)
    for lane in (0, 1):
        for old, new in zip(before[lane], lanes.straight(lane, range(520)), strict=True):
            wanted = old.copy()
            for _, source, target in (move for move in moves if move[0] == lane and move[2] < 520):
                wanted[target] = old[source] if source < 520 else new[target]
            assert np.array_equal(wanted, new)


CHECKS: dict[str, Callable[[str], None]] = {k: v for k, v in vars().items() if k.startswith("check_")}

if __name__ == "__main__":
    quicken()
    torch.manual_seed(5)
    for name in sys.argv[1:] or CHECKS:
        CHECKS[name]("cpu")
        print(name, flush=True)
