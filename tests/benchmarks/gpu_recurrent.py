"""Recurrent layers between their products on the card: exact, near float64, and what each kernel takes, form by form.

`python -m tests.benchmarks.gpu_recurrent` checks, then times every form that could be the default at true geometry:
48 heads of 128 x 128 (gated delta), 64 heads of 64 x 128 (Mamba-2). Times are of one launch in a graph of 20 layers
with states of their own, which do not fit into the cache together; what gated delta steps cost between products is
measured apart (`gpu_recurrent_layers.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.rows import COMMIT, SAVE
from tensorfold.kernels.cuda import delta_steps
from tensorfold.kernels.cuda.delta_steps import Form, Shares
from tensorfold.kernels.triton.conv import delta_inputs, delta_span, mamba2_inputs, mamba2_span
from tensorfold.kernels.triton.delta_scan import delta_parts, delta_walk
from tensorfold.kernels.triton.gates import gated_norm, gated_norm_span
from tensorfold.kernels.triton.mamba_scan import mamba2_scan
from tensorfold.kernels.triton.recurrent import mamba2_rows
from tests.benchmarks.gpu_device import captured, half, ints, seconds
from tests.benchmarks.gpu_recurrent_layers import layer_costs
from tests.kernels.triton import recurrent_checks, scan_checks
from tests.kernels.triton.recurrent_checks import run_delta

Tensor = Any
ROWS = (1, 4, 8, 16, 64)
LAYERS, SPAN_LAYERS, SPAN, LANES = 20, 4, 2048, 9
DELTA = Form(48, 16, 128, 128)
# How warps are shared out among blocks (None: as a launch of so many lanes chooses), and rows and warps of a program.
DELTA_FORMS: dict[str, Shares | None] = {
    "delta, chosen": None,
    "delta, 1 warp": Shares(1),
    "delta, 3 warps": Shares(3),
    "delta, 3 warps alone": Shares(3, alone=True),
    "delta, a head": Shares(DELTA.slices, tile=True),
}
MAMBA2_FORMS = {"mamba2, 4 rows": (4, 1), "mamba2, 8 rows": (8, 1)}
FORMS: dict[str, dict[str, Any]] = {"delta": dict(DELTA_FORMS), "mamba2": dict(MAMBA2_FORMS)}
# Values, stages and warps of a walk: fewer than 64 values, which would be a warpgroup's products.
WALKS = ((32, 2, 4), (32, 1, 4), (32, 3, 4), (32, 2, 2), (16, 2, 4), (16, 2, 2))


@contextmanager
def shared_out(form: Shares | None) -> Iterator[None]:
    """Gated delta steps are launched so while it is entered."""
    chosen = delta_steps.shares
    if form is not None:
        setattr(delta_steps, "shares", lambda *asked: form)  # noqa: B010
    try:
        yield
    finally:
        setattr(delta_steps, "shares", chosen)  # noqa: B010


class Steps:
    """Rings, states and schedules of one kind, true geometry, `layers` layers and 8 lanes with nobody's behind them."""

    def __init__(self, kind: str, layers: int = LAYERS, lanes: int = 1) -> None:
        self.kind, self.ring, self.lanes = kind, 131, lanes + 1
        self.shape, self.channels, count = ((48, 128, 128), 10240, 8) if kind == "delta" else ((64, 64, 128), 6144, 2)
        rows = self.lanes * self.ring
        self.states = torch.randn(layers, 2 * self.lanes, *self.shape, device="cuda")
        self.mixed = half(rows, self.channels)
        self.factors = torch.rand(rows, self.shape[0], count, device="cuda") * 0.5
        self.skip = torch.randn(self.shape[0], device="cuda")
        self.places = ints([[2 * lane, 2 * lane + 1] for lane in range(self.lanes)])

    def schedule(self, steps: list[list[tuple[int, int, int]]]) -> tuple[Tensor, Tensor]:
        """Steps of the first lanes, and how many each has."""
        most = 136
        steps = steps + [[]] * (self.lanes - len(steps))
        padded = [[*lane, *[(0, -1, 0)] * (most - len(lane))] for lane in steps]
        return ints(padded), ints([len(lane) for lane in steps])

    def run(self, state: Tensor, planned: tuple[Tensor, Tensor], lanes: Tensor, out: Tensor, form: Any) -> None:
        """One layer's steps."""
        if self.kind == "delta":
            with shared_out(form):
                run_delta(DELTA, state, self.mixed, self.factors, *planned, self.places, lanes, out)
        else:
            part, warps = form
            mamba2_rows(
                state, self.mixed, self.factors, self.skip, *planned, self.places, lanes, out, 8, part=part, warps=warps
            )

    def out(self, rows: int) -> Tensor:
        width = self.shape[2] if self.kind == "delta" else self.shape[1]
        kind = torch.bfloat16 if self.kind == "delta" else torch.float32
        return torch.full((rows, self.shape[0], width), float("nan"), device="cuda", dtype=kind)


def window(rows: int, replayed: int = 0, first: int = 0) -> list[tuple[int, int, int]]:
    """Steps of a chain behind some that are replayed; results from row `first` of the launch on."""
    steps = [(i, -1, COMMIT if i == replayed - 1 else 0) for i in range(replayed)]
    return [*steps, *((replayed + i, first + i, SAVE if i == rows - 1 else 0) for i in range(rows))]


def exact_windows(kind: str, form: Any) -> bool:
    """Whether a window of 17 rows, one behind 5 replayed rows, and 8 lanes at once have the bits of single steps."""
    steps = Steps(kind, 1, 8)
    start = steps.states[0].clone()
    start[2:16:2] = start[0]
    one = ints([0])
    steps.states[0].copy_(start)
    single = []
    for row in range(17):
        out = steps.out(1)
        steps.run(steps.states[0], steps.schedule([[(row, 0, SAVE)]]), one, out, form)
        steps.states[0, 0].copy_(steps.states[0, 1])
        single.append(out[0])
        if row == 4:
            committed = steps.states[0, 0].clone()
    behind, serial = steps.states[0, 0].clone(), torch.stack(single)
    steps.states[0].copy_(start)
    whole = steps.out(17)
    steps.run(steps.states[0], steps.schedule([window(17)]), ints([0] * 17), whole, form)
    holds = torch.equal(whole, serial) and torch.equal(steps.states[0, 1], behind)
    holds &= torch.equal(steps.states[0, 0], start[0])
    after = steps.out(12)
    steps.run(steps.states[0], steps.schedule([window(12, 5)]), ints([0] * 12), after, form)
    holds &= torch.equal(after, serial[5:]) and torch.equal(steps.states[0, 1], behind)
    holds &= torch.equal(steps.states[0, 0], committed)
    steps.states[0].copy_(start)
    for lane in range(1, 8):
        steps.mixed[lane * steps.ring : (lane + 1) * steps.ring] = steps.mixed[: steps.ring]
        steps.factors[lane * steps.ring : (lane + 1) * steps.ring] = steps.factors[: steps.ring]
    beside = steps.out(8)
    planned = steps.schedule([[(0, lane, SAVE)] for lane in range(8)])
    steps.run(steps.states[0], planned, ints(list(range(8))), beside, form)
    return holds and all(torch.equal(beside[lane], serial[0]) for lane in range(8))


def other_bits() -> list[str]:
    """Forms of gated delta steps whose results or states are not those of the first, for one lane and for several."""
    steps, wrong = Steps("delta", 1, 8), []
    steps.factors.mul_(0.2)
    steps.mixed.mul_(0.05)
    start = steps.states[0].clone()
    for lanes, rows in ((1, 33), (3, 7), (8, 1), (8, 5)):
        planned = steps.schedule([window(rows, 3, lane * rows) for lane in range(lanes)])
        at, first = ints([lane for lane in range(lanes) for _ in range(rows)]), None
        for name, form in DELTA_FORMS.items():
            steps.states[0].copy_(start)
            out = steps.out(rows * lanes)
            steps.run(steps.states[0], planned, at, out, form)
            made = out, steps.states[0].clone()
            first = first or made
            if not all(
                torch.equal(one, other) and one.isfinite().all() for one, other in zip(made, first, strict=True)
            ):
                wrong.append(f"{name}, {lanes} lanes of {rows} rows")
    return wrong


def exact_delta(state: Tensor, mixed: Tensor, gates: Tensor, key_heads: int) -> tuple[Tensor, Tensor]:
    """Results and state of a span in float64, step by step, from what the scan is given."""
    heads, width, _ = state.shape
    state, mixed, gates = state.double(), mixed.double(), gates.double()
    keys, made = key_heads * width, []
    for row, of in zip(mixed, gates, strict=True):
        q, k = (row[at : at + keys].view(key_heads, width) for at in (0, keys))
        q, k = (part.repeat_interleave(heads // key_heads, 0) for part in (q, k))
        q, k = q * of[:, 3:4], k * of[:, 2:3]
        state = state * of[:, 0].exp()[:, None, None]
        change = of[:, 1:2] * (row[2 * keys :].view(heads, -1) - torch.einsum("hkv,hk->hv", state, k))
        state = state + k[:, :, None] * change[:, None, :]
        made.append(torch.einsum("hkv,hk->hv", state, q))
    return torch.stack(made), state


class Span:
    """A prompt's span of one layer at true geometry, in the ranges that trained weights give."""

    def __init__(self, kind: str, count: int = SPAN) -> None:
        self.kind, self.count = kind, count
        self.heads, self.channels = (48, 10240) if kind == "delta" else (64, 6144)
        extra = 6144 + 96 if kind == "delta" else 4096 + 64
        self.rows = half(count, self.channels + extra)
        self.raw, self.tail = half(8, self.channels), ints([-1, 3, 5])
        self.weight = torch.randn(4, self.channels, device="cuda") * 0.5
        self.rate = -torch.linspace(0.02, 16.0, self.heads, device="cuda")
        self.step_bias = torch.linspace(-6.0, 0.0, self.heads, device="cuda")
        self.mixed = torch.empty(count, self.channels, device="cuda", dtype=torch.bfloat16)
        self.gates = torch.empty(count, self.heads, 4, device="cuda")
        self.steps = torch.empty(count, self.heads, device="cuda")

    def inputs(self) -> None:
        """Convolutions and gates."""
        x, rest = self.rows[:, : self.channels], self.rows[:, -2 * self.heads :]
        if self.kind == "delta":
            delta_span(
                x, rest[:, self.heads :], rest[:, : self.heads], self.tail, self.raw, self.mixed, self.gates,
                self.weight, None, self.rate, self.step_bias, 16, 128, 1e-6,
            )  # fmt: skip
        else:
            mamba2_span(
                x, rest[:, : self.heads], self.tail, self.raw, self.mixed, self.steps, self.weight, None,
                self.step_bias, None,
            )  # fmt: skip


def errors() -> Iterator[tuple[str, float]]:
    """How far a span of 320 rows lies from float64, results and state, by the precision of the inverse."""
    for same in (False, True):
        span = Span("delta", 320)
        if same:
            span.rows[:, : span.channels] = span.rows[0, : span.channels]
        span.inputs()
        start = torch.randn(48, 128, 128, device="cuda")
        true, behind = exact_delta(start, span.mixed, span.gates, 16)
        for precision in ("tf32", "tf32x3"):
            state, out = start.clone(), torch.empty(320, 48, 128, device="cuda")
            parts = delta_parts(span.mixed, span.gates, 16, 128, precision=precision)
            delta_walk(state, span.mixed, parts, out, 16)
            for name, made, wanted in (("results", out, true), ("state", state, behind)):
                kind = "equal keys" if same else "noise"
                yield f"delta, {precision}, {kind}, {name}", float((made - wanted).norm() / wanted.norm())


def check() -> list[str]:
    """What does not hold."""
    torch.manual_seed(6)
    failed = []
    for name, run in {**recurrent_checks.CHECKS, **scan_checks.CHECKS}.items():
        try:
            run("cuda")
        except AssertionError as fault:
            failed.append(f"{name}: {fault}")
    for kind, forms in FORMS.items():
        wrong = [name for name, form in forms.items() if not exact_windows(kind, form)]
        failed += [f"{name}: windows differ from single steps" for name in wrong]
    failed += [f"{name} has bits of its own" for name in other_bits()]
    for name, error in errors():
        print(f"error of {name}: {error:.2e}", flush=True)
        if error > 1e-2:
            failed.append(f"{name}: {error:.2e} from float64")
    print(f"{len(failed)} checks failed {failed}", flush=True)
    return failed


def timed(name: str, layers: int, runs: Callable[[], None]) -> float:
    """Microseconds a layer of what `runs` queues for all layers; NaN where it cannot be built."""
    try:
        took = seconds(captured(runs).replay) / layers * 1e6
    except Exception as fault:  # a form that asks too much of the card is a figure like any other
        print(f"{name}: {type(fault).__name__}: {str(fault)[:80]}", flush=True)
        return float("nan")
    return took


def steps_table(kind: str, forms: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Steps by form: chains of one lane, the same behind one replayed row, and 8 lanes of one row."""
    found: dict[str, dict[str, float]] = {}
    one, eight = Steps(kind), Steps(kind, LAYERS, 8)
    for label, form in forms.items():
        row = {}
        cases = [(str(rows), one, [window(rows)], [0] * rows) for rows in ROWS]
        cases += [(f"1+{rows}", one, [window(rows, 1)], [0] * rows) for rows in (1, 16)]
        cases += [("8 lanes", eight, [window(1, 0, lane) for lane in range(8)], list(range(8)))]
        for name, steps, plan, lanes in cases:
            planned, at, out = steps.schedule(plan), ints(lanes), steps.out(len(lanes))

            def runs(
                steps: Any = steps, planned: Any = planned, at: Any = at, out: Any = out, form: Any = form
            ) -> None:
                for layer in range(LAYERS):
                    steps.run(steps.states[layer], planned, at, out, form)

            row[name] = timed(label, LAYERS, runs)
        found[label] = row
        show(label, row)
    return found


def show(name: str, row: dict[str, float]) -> None:
    print(f"{name:28}" + "  ".join(f"{key}: {value:6.1f}" for key, value in row.items()) + " us", flush=True)


def repeated(count: int, use: Callable[[], object]) -> Callable[[], None]:
    """`use` so many times."""

    def runs() -> None:
        for _ in range(count):
            use()

    return runs


def layer_table() -> dict[str, dict[str, float]]:
    """A delta layer's and a Mamba-2 layer's launches behind one another, each started early, by rows."""
    found: dict[str, dict[str, float]] = {}
    for kind, forms in FORMS.items():
        steps = Steps(kind)
        heads, channels = steps.shape[0], steps.channels
        rate, norm = -torch.rand(heads, device="cuda"), torch.randn(4096, device="cuda")
        weight, raw = torch.randn(4, channels, device="cuda"), half(2 * 131, channels)
        for (label, form), rows in itertools.product(forms.items(), (1, 8)):
            x, small = half(rows, channels + 6144), half(rows, 2 * heads)
            taps = ints([[-2 - at if at >= 0 else 3 + at for at in range(row - 3, row)] for row in range(rows)])
            at, lanes = ints([64 + row for row in range(rows)]), ints([0] * rows)
            planned = steps.schedule([[(64 + i, i, SAVE if i == rows - 1 else 0) for i in range(rows)]])
            out = steps.out(rows)
            made = half(*out.flatten(1).shape)

            def runs(
                x: Any = x, small: Any = small, taps: Any = taps, at: Any = at, out: Any = out, made: Any = made,
                planned: Any = planned, lanes: Any = lanes, form: Any = form, kind: str = kind,
                steps: Any = steps, raw: Any = raw, weight: Any = weight, rate: Any = rate, norm: Any = norm,
            ) -> None:  # fmt: skip
                rings = raw, steps.mixed, steps.factors
                for layer in range(LAYERS):
                    if kind == "delta":
                        delta_inputs(
                            x[:, : steps.channels], small[:, 48:], small, taps, at, *rings, out, weight, None, rate,
                            rate, 16, 128, 1e-6,
                        )  # fmt: skip
                    else:
                        mamba2_inputs(
                            x[:, : steps.channels], small, taps, at, *rings, out, weight, None, rate, rate, None
                        )
                    steps.run(steps.states[layer], planned, lanes, out, form)
                    gate, rows_ = x[:, steps.channels :], out.flatten(1)
                    if kind == "delta":
                        gated_norm(rows_, gate, norm, made, 48, 1e-6, gate_first=False)
                    else:
                        gated_norm(rows_, gate, norm, made, 8, 1e-5, gate_first=True)

            found.setdefault(f"layer of {label}", {})[str(rows)] = timed(label, LAYERS, runs)
    for name, row in found.items():
        show(name, row)
    return found


def small_table() -> dict[str, dict[str, float]]:
    """Convolutions with gates, and gated norms, by rows."""
    found: dict[str, dict[str, float]] = {}
    rate, norm = -torch.rand(64, device="cuda"), torch.randn(4096, device="cuda")
    wide, narrow = torch.randn(4, 10240, device="cuda"), torch.randn(4, 6144, device="cuda")
    rings = half(131, 10240), half(131, 10240), torch.empty(131, 48, 8, device="cuda")
    others = half(131, 6144), half(131, 6144), torch.empty(131, 64, 2, device="cuda")
    for rows in ROWS:
        x, small = half(rows, 16480), half(rows, 64)
        taps, at = ints([[-1, -1, i] for i in range(rows)]), ints([64 + i for i in range(rows)])
        read, other = half(rows, 48, 128), torch.empty(rows, 64, 64, device="cuda")
        made = half(rows, 4096)
        uses: dict[str, Callable[[], object]] = {
            "delta inputs": partial(
                delta_inputs, x[:, :10240], small, small, taps, at, *rings, read, wide, None, rate, rate, 16, 128, 1e-6
            ),
            "mamba2 inputs": partial(
                mamba2_inputs, x[:, :6144], small, taps, at, *others, other, narrow, None, rate, rate, None
            ),
            "delta norm": partial(
                gated_norm, read.flatten(1), x[:, 10240:], norm, read.flatten(1), 48, 1e-6, gate_first=False
            ),
            "mamba2 norm": partial(gated_norm, other.flatten(1), x, norm, made, 8, 1e-5, gate_first=True),
        }
        for name, use in uses.items():
            found.setdefault(name, {})[str(rows)] = timed(name, LAYERS, repeated(LAYERS, use))
    for name, row in found.items():
        show(name, row)
    return found


def span_table() -> dict[str, float]:
    """A span of 2,048 rows: inputs, the parts of blocks, and the walk, by form."""
    found: dict[str, float] = {}

    def of(name: str, use: Callable[[], object]) -> None:
        found[name] = timed(name, SPAN_LAYERS, repeated(SPAN_LAYERS, use))
        print(f"{name:44}{found[name]:8.1f} us", flush=True)

    span, state = Span("delta"), torch.randn(48, 128, 128, device="cuda")
    out = torch.empty(SPAN, 48, 128, device="cuda", dtype=torch.bfloat16)
    of("delta inputs, 2048 rows", span.inputs)
    for precision, warps in itertools.product(("tf32", "tf32x3"), (4, 8)):
        use: Callable[[], object] = partial(
            delta_parts, span.mixed, span.gates, 16, 128, precision=precision, warps=warps
        )
        of(f"delta parts, {precision}, {warps} warps", use)
    parts = delta_parts(span.mixed, span.gates, 16, 128)
    for part, stages, warps in WALKS:
        walk = partial(delta_walk, state, span.mixed, parts, out, 16, part=part, stages=stages, warps=warps)
        of(f"delta walk, {part} values, {stages} stages, {warps} warps", walk)
    gate, norm, rows = half(SPAN, 16480)[:, 10240:], torch.randn(128, device="cuda"), out.flatten(1)
    of("delta norm", partial(gated_norm_span, rows, gate, norm, rows, 48, 1e-6, gate_first=False))
    other, state = Span("mamba2"), torch.randn(64, 64, 128, device="cuda")
    skip, read = torch.randn(64, device="cuda"), torch.empty(SPAN, 64, 64, device="cuda")
    of("mamba2 inputs, 2048 rows", other.inputs)
    for part, stages, warps in WALKS:
        scan = partial(mamba2_scan, state, other.mixed, other.steps, other.rate, skip, read, 8)
        use = partial(scan, part=part, stages=stages, warps=warps)
        of(f"mamba2 scan, {part} rows, {stages} stages, {warps} warps", use)
    gate, norm, made = half(SPAN, 4096), torch.randn(4096, device="cuda"), half(SPAN, 4096)
    of("mamba2 norm", partial(gated_norm_span, read.flatten(1), gate, norm, made, 8, 1e-5, gate_first=True))
    return found


def measure() -> dict[str, Any]:
    """Microseconds by kernel, form and rows."""
    between = layer_costs(DELTA_FORMS, shared_out)
    for name, row in between.items():
        show(f"between products: {name}", row)
    found = {
        "between products": between,
        "steps": {name: row for kind, forms in FORMS.items() for name, row in steps_table(kind, forms).items()},
        "layers": layer_table(),
        "small": small_table(),
        "span": span_table(),
    }
    torch.cuda.empty_cache()
    return found


if __name__ == "__main__":
    wrong = check()
    measure()
    raise SystemExit(int(bool(wrong)))
