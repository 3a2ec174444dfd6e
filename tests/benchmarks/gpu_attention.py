"""Attention on the card: rows exact in every form, and what placing, decode and a prompt's spans take, form by form.

`python -m tests.benchmarks.gpu_attention` checks, then times every form that could be the default at true geometry: 24
heads over 4 of 256 (Qwen), 32 over 2 of 128 (Nemotron), 32 over 8 of 128 (Llama). Times are of one launch in a graph of
many layers with keys of their own. What compiles is compiled beforehand by processes side by side.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.kernels.triton.attention import Form, Scratch, attend_rows, form_of, launched, plan, scratch_for
from tensorfold.kernels.triton.place_rows import HeadForm, place_rows, place_span
from tensorfold.kernels.triton.prompt_attention import PromptForm, attend_span, prompt_form
from tests.benchmarks.gpu_device import captured, half, ints, seconds
from tests.kernels.triton import attention_checks

Tensor = Any
SHAPES = {"qwen": (24, 4, 256), "nemotron": (32, 2, 128), "llama": (32, 8, 128)}
ROWS, KEYS = (1, 2, 8, 10, 16, 32, 64), (2000, 16_000)
CHANGES: dict[str, tuple[dict[str, Any], ...]] = {
    "qwen": (
        {},
        {"large": 0},
        {"few": 0, "large": 0},
        {"tile": 16, "warps": 4, "few": 0, "large": 0},
        {"step": 32, "warps": 4, "few": 0, "large": 0},
    ),
    "nemotron": ({}, {"few": 0}),
    "llama": ({}, {"few": 0}),
}  # fmt: skip
SPANS: dict[str, tuple[dict[str, Any], ...]] = {"qwen": ({},), "nemotron": ({},), "llama": ({},)}
PROMPTS = ((2048, 0), (2048, 6144), (8192, 0), (2048, 30_000))
PROCESSORS = 132


def shown(change: dict[str, Any]) -> str:
    return " ".join(f"{name} {value}" for name, value in change.items()) or "default"


def forms(name: str) -> list[tuple[str, Form]]:
    """The forms of a shape with their names."""
    base = form_of(*SHAPES[name])
    return [(shown(change), replace(base, **change)) for change in CHANGES[name]]


def spans(name: str) -> list[tuple[str, PromptForm]]:
    """Those of its prompts."""
    base = prompt_form(SHAPES[name][2])
    return [(shown(change), replace(base, **change)) for change in SPANS[name]]


@dataclass
class Lanes:
    """Pages of some layers, lanes of `keys` committed keys each, and a launch of `rows` rows a lane."""

    shape: tuple[int, int, int]
    keys: int
    lanes: int
    layers: int

    def __post_init__(self) -> None:
        _, groups, width = self.shape
        each = -(-(self.keys + 128) // 512)
        pools = (self.layers, self.lanes * each, 512, groups, width)
        self.key_pages, self.value_pages = half(*pools), half(*pools)
        self.table = torch.randperm(self.lanes * each, device="cuda").to(torch.int32).reshape(self.lanes, each)

    def launch(self, rows: int, tree: bool = False) -> tuple[Tensor, ...]:
        """Lanes, lengths, committed, slots, path and positions of a chain a lane, or of two ways that part at once."""
        lane, depth, slot, ways = [], [], [], []
        for at in range(self.lanes):
            for row in range(rows):
                way = [*range(1), *range(2 - row % 2, row + 1, 2)] if tree and row else list(range(row + 1))
                lane.append(at)
                slot.append(self.keys + row)
                depth.append(len(way) - 1)
                ways.append([self.keys + step for step in way] + [0] * (64 - len(way)))
        positions = ints([self.keys + each for each in depth])
        return ints(lane), positions + 1, torch.full_like(positions, self.keys), ints(slot), ints(ways), positions


class Decode:
    """Decode attention of one form over a launch."""

    def __init__(self, form: Form, lanes: Lanes, rows: int, tree: bool = False) -> None:
        self.lanes = lanes
        self.lane, self.lengths, self.committed, self.slots, self.path, self.positions = lanes.launch(rows, tree)
        count = len(self.lane)
        self.whole, self.form = form, launched(form, count, lanes.lanes)
        form = self.form
        self.projected = half(count, 2 * form.heads * form.width + 2 * form.groups * form.width)
        self.query = torch.empty(count, form.heads, form.width, device="cuda", dtype=torch.bfloat16)
        planned = plan(form, self.lane, self.lengths, self.committed, self.path)
        self.scratch: Scratch = scratch_for(form, planned, self.query)
        self.out = torch.empty_like(self.query)
        self.head = HeadForm(
            torch.ones(form.width, device="cuda"), torch.ones(form.width, device="cuda"), 1e-6, 1e-6,
            torch.rand(form.width // 8, device="cuda").double(), gated=True,
        )  # fmt: skip

    def place(self, layer: int = 0) -> None:
        """Norms, rotation and writing."""
        lanes = self.lanes
        place_rows(
            self.form, self.head, self.projected, self.positions, self.lane, self.slots, lanes.table,
            lanes.key_pages[layer], lanes.value_pages[layer], self.query,
        )  # fmt: skip

    def attend(self, layer: int = 0) -> None:
        """Units and merge."""
        form, lanes = self.form, self.lanes
        gate = self.projected[:, form.width :]
        attend_rows(
            form, self.query, lanes.key_pages[layer], lanes.value_pages[layer], lanes.table, self.lane, self.lengths,
            self.committed, self.path, self.scratch, self.out, form.width**-0.5, PROCESSORS * form.resident, gate,
            (self.projected.shape[1], 2 * form.width),
        )  # fmt: skip

    def picked(self, rows: Sequence[int]) -> Tensor:
        """The results of some rows in a launch of their own, keys and values placed anew."""
        single = object.__new__(Decode)
        at = torch.tensor(list(rows), device="cuda")
        single.form, single.lanes, single.head = launched(self.whole, len(at)), self.lanes, self.head
        for name in ("lane", "lengths", "committed", "slots", "path", "positions", "projected"):
            setattr(single, name, getattr(self, name)[at].contiguous())
        single.query, single.out = torch.empty_like(self.query[at]), torch.full_like(self.query[at], float("nan"))
        planned = plan(single.form, single.lane, single.lengths, single.committed, single.path)
        single.scratch = scratch_for(single.form, planned, single.query)
        for part in (single.scratch.most, single.scratch.total, single.scratch.mixed):
            part.fill_(float("nan"))
        single.place()
        single.attend()
        return single.out

    def truth(self, rows: Sequence[int]) -> Tensor:
        """Float64 results of some rows from the queries as placed."""
        form, lanes, made = self.form, self.lanes, []
        for row in rows:
            committed, length = int(self.committed[row]), int(self.lengths[row])
            slots = torch.cat([torch.arange(committed, device="cuda"), self.path[row, : length - committed].long()])
            places = lanes.table[int(self.lane[row])].long()[slots // 512], slots % 512
            keys, values = lanes.key_pages[0][places].double(), lanes.value_pages[0][places].double()
            keys, values = (part.repeat_interleave(form.shared, 1) for part in (keys, values))
            scores = torch.einsum("hd,thd->ht", self.query[row].double(), keys) * form.width**-0.5
            mixed = torch.einsum("ht,thd->hd", scores.softmax(1), values)
            gate = self.projected[row, : 2 * form.heads * form.width].view(form.heads, 2, form.width)[:, 1]
            made.append(mixed * gate.double().sigmoid())
        return torch.stack(made)


def faults(form: Form, lanes: Lanes) -> tuple[list[str], Tensor]:
    """Ways in which rows were not the same or far from float64, and the results of a chain of 64."""
    wrong, whole = [], None
    for name, rows, tree in (("chain", 64, False), ("tree", 16, True)):
        torch.manual_seed(8)
        run = Decode(form, lanes, rows, tree)
        run.place()
        run.attend()
        out, count = run.out.clone(), len(run.lane)
        whole = out if whole is None else whole
        for few in (1, 2, 5, 9, 10, 11, 16, 33):
            if few < rows and not torch.equal(run.picked(range(few)), out[:few]):
                wrong.append(f"{name}: first {few}")
        for row in (0, 1, 7, 13, rows - 1, count - 1):
            if not torch.equal(run.picked([row])[0], out[row]):
                wrong.append(f"{name}: row {row} alone")
        mixed = [count - 1, 3, 0, rows - 1]
        if not torch.equal(run.picked(mixed), out[mixed]):
            wrong.append(f"{name}: moved rows")
        if not tree:  # the same rows one after another, all earlier keys committed
            run.committed = run.lengths - 1
            run.path = torch.cat([run.slots[:, None], run.path[:, 1:]], 1).contiguous()
            if any(not torch.equal(run.picked([row])[0], out[row]) for row in (1, 9, 40)):
                wrong.append("a chain's row, serially")
            run.committed = torch.full_like(run.lengths, lanes.keys)
            continue
        true = run.truth([0, 5, 15])
        error = ((out[[0, 5, 15]].double() - true).norm() / true.norm()).item()
        if not error < 6e-3:
            wrong.append(f"{name}: error {error:.1e}")
    assert whole is not None
    return wrong, whole


def check_decode(name: str) -> list[str]:
    """Every form of a shape around edges of key tiles, partitions and pages, with two lanes."""
    found = []
    first: dict[int, Tensor] = {}
    for label, form in forms(name):
        wrong = []
        for keys in (40, 480, 2040, 4090):
            torch.manual_seed(keys)
            bad, out = faults(form, Lanes(SHAPES[name], keys, 2, 1))
            wrong += [f"{keys} keys, {each}" for each in bad]
            if torch.equal(first.setdefault(keys, out), out) is False and keys == 2040:
                print(f"   {name} {label}: other bits than the default", flush=True)
        print(f"{name} {label}: {wrong or 'rows equal'}", flush=True)
        found += [f"{name} {label}: {each}" for each in wrong]
    return found


def check_few(name: str) -> list[str]:
    """Rows alone, in the tile of few rows, have the bits of a launch of 64, for numbers of many sizes."""
    base, found = form_of(*SHAPES[name]), []
    for spread in (0, 3, 12):
        torch.manual_seed(spread)
        lanes = Lanes(SHAPES[name], 6000, 1, 1)
        for pool in (lanes.key_pages, lanes.value_pages):
            pool.mul_(torch.exp2(torch.randint(-spread, spread + 1, pool.shape, device="cuda")).bfloat16())
        run = Decode(replace(base, few=0), lanes, 64)
        run.place()
        run.attend()
        run.whole = base
        others = [row for row in range(64) if not torch.equal(run.picked([row])[0], run.out[row])]
        print(f"{name}, numbers over {2 * spread + 1} powers of two: {len(others)} of 64 rows differ alone", flush=True)
        found += [f"{name} few rows: {len(others)} of 64 rows differ at a spread of {spread}"] if others else []
    return found


def check_spans(name: str) -> list[str]:
    """A span of 1,500 rows behind 700, whole, cut and near float64."""
    heads, groups, width = SHAPES[name]
    torch.manual_seed(4)
    pages = torch.randperm(5, device="cuda").to(torch.int32)
    keys, values = half(5, 512, groups, width), half(5, 512, groups, width)
    query, found, whole = half(1500, heads, width), [], None
    gate = half(1500, 2 * heads * width)

    def run(form: PromptForm, first: int, last: int) -> Tensor:
        out = torch.full_like(query[first:last], float("nan"))
        attend_span(
            form, query[first:last].contiguous(), keys, values, pages, 700 + first, out, width**-0.5, 0,
            gate[first:last].contiguous()[:, width:], (2 * heads * width, 2 * width),
        )  # fmt: skip
        return out

    for label, form in spans(name):
        wrong, out = [], run(form, 0, 1500)
        whole = out if whole is None else whole
        for cut in (1, 64, 100, 777, 1499):
            if not torch.equal(torch.cat([run(form, 0, cut), run(form, cut, 1500)]), out):
                wrong.append(f"cut at {cut}")
        for row in (0, 900, 1499):
            slots = torch.arange(700 + row + 1, device="cuda")
            places = pages.long()[slots // 512], slots % 512
            k, v = (pool[places].double().repeat_interleave(heads // groups, 1) for pool in (keys, values))
            scores = torch.einsum("hd,thd->ht", query[row].double(), k) * width**-0.5
            true = torch.einsum("ht,thd->hd", scores.softmax(1), v)
            true = true * gate[row].view(heads, 2, width)[:, 1].double().sigmoid()
            error = ((out[row].double() - true).norm() / true.norm()).item()
            if not error < 6e-3:
                wrong.append(f"row {row}: error {error:.1e}")
        same = "" if torch.equal(out, whole) else ", other bits than the default"
        print(f"{name} span {label}: {wrong or 'rows equal'}{same}", flush=True)
        found += [f"{name} span {label}: {each}" for each in wrong]
    return found


def check() -> list[str]:
    """What failed."""
    warm()
    torch.manual_seed(6)
    failed = []
    for name, run in attention_checks.CHECKS.items():
        try:
            run("cuda")
        except AssertionError as fault:
            failed.append(f"{name}: {str(fault)[:200]}")
        print(f"{name}: {'failed' if failed and failed[-1].startswith(name + ':') else 'holds'}", flush=True)
    for name in SHAPES:
        failed += check_few(name) + check_decode(name) + check_spans(name)
    return failed


def timed(layers: int, run: Callable[[int], None]) -> float:
    """Microseconds of one launch among those of `layers` layers."""

    def queue() -> None:
        for layer in range(layers):
            run(layer)

    return seconds(captured(queue).replay, 5) / layers * 1e6


def layers_for(shape: tuple[int, int, int], keys: int) -> int:
    """Layers whose keys do not fit into the cache together."""
    return int(max(3, min(40, (256 << 20) // (4 * keys * shape[1] * shape[2]))))


def table(title: str, row: dict[str, float]) -> None:
    print(f"{title:56}" + "  ".join(f"{key}: {value:6.1f}" for key, value in row.items()), flush=True)


def decode_times(name: str) -> dict[str, dict[str, float]]:
    """Microseconds of units and merge by form, keys and rows; 8L: a row of each of eight lanes; tree: 16 rows."""
    found: dict[str, dict[str, float]] = {}
    for keys in KEYS:
        layers = layers_for(SHAPES[name], keys)
        one = Lanes(SHAPES[name], keys, 1, layers)
        eight = Lanes(SHAPES[name], keys, 8, max(2, layers // 8))
        for label, form in forms(name):
            row = {}
            for rows in ROWS:
                run = Decode(form, one, rows)
                run.place()
                row[str(rows)] = timed(layers, run.attend)
            for key, lanes, rows, tree in (("8L", eight, 1, False), ("8Lx8", eight, 8, False), ("tree", one, 16, True)):
                run = Decode(form, lanes, rows, tree)
                run.place()
                row[key] = timed(lanes.layers, run.attend)
            found[f"{keys} {label}"] = row
            table(f"{name} {keys} keys, {label}", row)
        del one, eight
        torch.cuda.empty_cache()
    return found


def place_times(name: str) -> dict[str, float]:
    """Microseconds of placing by rows, and both launches together at 2,000 keys."""
    lanes = Lanes(SHAPES[name], 2000, 1, 20)
    form, row = form_of(*SHAPES[name]), {}
    for rows in ROWS:
        run = Decode(form, lanes, rows)
        row[str(rows)] = timed(20, run.place)

        def both(layer: int, run: Decode = run) -> None:
            run.place(layer)
            run.attend(layer)

        row[f"{rows} with attention"] = timed(20, both)
    table(f"{name} place", row)
    return row


def long_times(name: str) -> dict[str, float]:
    """One row and sixteen at 128,000 keys."""
    lanes, form, row = Lanes(SHAPES[name], 128_000, 1, 2), form_of(*SHAPES[name]), {}
    for rows in (1, 16):
        run = Decode(form, lanes, rows)
        run.place()
        row[str(rows)] = timed(2, run.attend)
    table(f"{name} 128000 keys", row)
    return row


def span_times(name: str) -> dict[str, dict[str, float]]:
    """Microseconds of a span's attention by form, span and start; shown as TFLOP/s of the products with seen keys."""
    heads, groups, width = SHAPES[name]
    pages = torch.randperm(64, device="cuda").to(torch.int32)
    keys, values = half(64, 512, groups, width), half(64, 512, groups, width)
    found: dict[str, dict[str, float]] = {}
    gate = half(8192, 2 * heads * width)
    for label, cut in spans(name):
        row: dict[str, float] = {}
        rates: dict[str, float] = {}
        for rows, start in PROMPTS:
            query = half(rows, heads, width)
            out = torch.empty_like(query)
            run = partial(
                attend_span, cut, query, keys, values, pages, start, out, width**-0.5, 0, gate[:rows, width:],
                (2 * heads * width, 2 * width),
            )  # fmt: skip
            flops = 4 * heads * width * rows * (start + (rows + 1) / 2)
            row[f"{rows}@{start}"] = timed(2, lambda _, run=run: run())  # type: ignore[misc]
            rates[f"{rows}@{start}"] = flops / row[f"{rows}@{start}"] * 1e-6
        table(f"{name} span {label}, TFLOP/s", rates)
        found[f"span {label}"] = row
    projected = half(2048, 2 * heads * width + 2 * groups * width)
    ones = torch.ones(width, device="cuda")
    head = HeadForm(ones, ones, 1e-6, 1e-6, torch.rand(width // 8, device="cuda").double(), gated=True)
    query, positions = half(2048, heads, width), torch.arange(2048, device="cuda", dtype=torch.int32)
    form = form_of(*SHAPES[name])
    row = {"2048": timed(2, lambda _: place_span(form, head, projected, positions, 0, pages, keys, values, query))}
    table(f"{name} place of a span", row)
    return found | {"place of a span": row}


def measure() -> dict[str, dict[str, float]]:
    """Seconds by shape, kernel and form, then by rows or span."""
    found: dict[str, dict[str, float]] = {}
    for name in SHAPES:
        made = {
            **decode_times(name), "place": place_times(name), "128000 default": long_times(name), **span_times(name)
        }  # fmt: skip
        found |= {f"{name} {kind}": {at: us * 1e-6 for at, us in row.items()} for kind, row in made.items()}
        torch.cuda.empty_cache()
    return found


def warm_one(job: int) -> None:
    """Compile what one job needs by running it once over few keys."""
    name = list(SHAPES)[job % len(SHAPES)]
    for number, (_, form) in enumerate(forms(name)):
        if number % 4 == job // len(SHAPES):
            lanes = Lanes(SHAPES[name], 100, 2, 1)
            for rows in (1, 3, 9, 32, 64):
                run = Decode(form, lanes, rows)
                run.place()
                run.attend()
    heads, groups, width = SHAPES[name]
    for number, (_, cut) in enumerate(spans(name)):
        if number % 4 == job // len(SHAPES):
            query, pages = half(64, heads, width), ints([0, 1])
            keys, gate = half(2, 512, groups, width), half(64, 2 * heads * width)
            attend_span(
                cut, query, keys, keys, pages, 0, torch.empty_like(query), width**-0.5, 0, gate[:, width:],
                (2 * heads * width, 2 * width),
            )  # fmt: skip
    torch.cuda.synchronize()


def warm() -> None:
    """Fill the compiler's cache with processes side by side."""
    began = time.monotonic()
    command = (sys.executable, "-m", "tests.benchmarks.gpu_attention", "--warm")
    running = [subprocess.Popen([*command, str(job)], env=os.environ) for job in range(4 * len(SHAPES))]
    failed = [str(job) for job, process in enumerate(running) if process.wait()]
    print(f"compiled in {time.monotonic() - began:.0f} s, failed: {failed}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--warm"]:
        warm_one(int(sys.argv[2]))
        raise SystemExit(0)
    bad = check()
    measure()
    raise SystemExit(int(bool(bad)))
