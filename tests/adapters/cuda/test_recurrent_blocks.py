"""Gated delta and Mamba-2 blocks on the CPU, launched as the book of lanes plans it: exact, and near float64."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="torch is not installed")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("these run in Triton's interpreter: TRITON_INTERPRET=1", allow_module_level=True)

from tensorfold.adapters.cuda.assembly import Assembly  # noqa: E402
from tensorfold.adapters.cuda.blocks.gated_delta import GatedDeltaBlock  # noqa: E402
from tensorfold.adapters.cuda.blocks.mamba2 import Mamba2Block  # noqa: E402
from tensorfold.adapters.cuda.control import ControlBlock  # noqa: E402
from tensorfold.adapters.cuda.lane_book import LaneBook, LaneEntry  # noqa: E402
from tensorfold.adapters.cuda.plans import kept, left_in_ring, plan_window  # noqa: E402
from tensorfold.adapters.cuda.rows import COMMIT, Chunk  # noqa: E402
from tensorfold.application.ports.checkpoints import RefusedError  # noqa: E402
from tensorfold.domain.families.ops import GatedDelta, Mamba2, Norm, ShortConv  # noqa: E402
from tensorfold.domain.families.weights import op_weights  # noqa: E402
from tensorfold.domain.memory.cuda_holding import room  # noqa: E402
from tensorfold.domain.windows import Window, chain  # noqa: E402
from tensorfold.kernels.reference.gated_delta import gated_delta_step  # noqa: E402
from tensorfold.kernels.reference.gated_delta import gated_norm as exact_gated_norm  # noqa: E402
from tensorfold.kernels.reference.mamba2 import gate_then_norm, mamba2_step, step_sizes  # noqa: E402
from tensorfold.kernels.reference.short_conv import no_history, short_conv  # noqa: E402
from tests.adapters.cuda.host_delta import HostDelta  # noqa: E402
from tests.adapters.cuda.host_products import HeldWeights, HostProducts  # noqa: E402

Tensor = Any
Floats = NDArray[np.float64]
pytestmark = pytest.mark.slow
WIDTH, TOKENS = 24, 40
DELTA = GatedDelta(1, 2, 16, 16, ShortConv(64, 4), Norm(1e-6), "silu")
MAMBA2 = Mamba2(2, 16, 16, 1, ShortConv(64, 4, bias=True), Norm(1e-5, groups=2), step_limit=(0.1, 4.0))


class Layer:
    """A block in a room of two lanes, fed by token ids, and its float64 truth."""

    def __init__(self, plan: Any) -> None:
        chance = np.random.default_rng(7)
        values = {
            f"op.{name}": chance.normal(size=weight.shape).astype(np.float32) / (weight.shape[-1] ** 0.5)
            for name, weight in op_weights(plan, WIDTH)
        }
        biases = {"op.conv": chance.normal(size=plan.conv.channels).astype(np.float32)} if plan.conv.bias else {}
        self.plan, self.values, self.biases = plan, values, biases
        self.table = chance.normal(size=(TOKENS, WIDTH)).astype(np.float32)
        weights = HeldWeights(values, biases)
        self.room = room(2, 100, kept=1)
        products, device = HostProducts(weights), torch.device("cpu")
        assembly = Assembly(weights, products, self.room, device, torch.float32, "float32", HostDelta())
        self.block: Any = (GatedDeltaBlock if isinstance(plan, GatedDelta) else Mamba2Block)(assembly, plan, "op")
        assert assembly.order == [self.block]
        self.spec = assembly.entries
        self.book = LaneBook(self.room)

    def open(self) -> LaneEntry:
        entry = self.book.open(100)
        self.block.clear(entry.committed)
        return entry

    def launch(self, *windows: tuple[LaneEntry, Window, tuple[int, ...]], padding: int = 0) -> list[Tensor]:
        """Results of each lane's window, of which the given rows are kept."""
        planned = [plan_window(entry, window) for entry, window, _ in windows]
        count = sum(len(window) for _, window, _ in windows)
        control = ControlBlock(self.room, count + padding, None, torch.device("cpu"))
        control.send(planned, self.book)
        tokens = [token for _, window, _ in windows for token in window.tokens]
        made = self.block.decode(self.rows(tokens + [0] * padding), control.rows)
        for plan, (entry, window, path) in zip(planned, windows, strict=True):
            kept(entry, plan, path, chain=window.is_chain)
        return list(made[:count].split([len(window) for _, window, _ in windows]))

    def rows(self, tokens: list[int]) -> Tensor:
        return torch.from_numpy(self.table[tokens])

    def step(self, entry: LaneEntry, token: int) -> Tensor:
        return self.launch((entry, chain(token), (0,)))[0][0]

    def settle(self, entry: LaneEntry) -> None:
        """Commit what is kept."""
        if entry.replay:
            steps = [(row - entry.own.start, -1, 0) for row in entry.replay]
            steps[-1] = (steps[-1][0], -1, COMMIT)
            control = ControlBlock(self.room, 1, None, torch.device("cpu"))
            control.send_replay({entry.slot: steps}, {entry.slot: (entry.committed, entry.spare)})
            self.block.replay(control.rows)
            entry.replay = ()

    def prompt(self, entry: LaneEntry, tokens: list[int]) -> Tensor:
        self.settle(entry)
        last, leave = left_in_ring(entry, len(tokens))
        empty = torch.zeros(1, dtype=torch.int32)
        tail = torch.tensor(entry.last, dtype=torch.int32)
        chunk = Chunk(
            entry.slot, entry.length, len(tokens), empty, empty, empty, entry.committed, tail, tuple(leave)
        )  # fmt: skip
        made = self.block.prompt(self.rows(tokens), chunk)
        entry.length, entry.last = entry.length + len(tokens), last
        return made

    def image(self, entry: LaneEntry) -> tuple[bytes, ...]:
        self.settle(entry)
        parts: tuple[bytes, ...] = self.block.export(entry.committed, entry.last)
        return parts

    def truth(self, tokens: list[int]) -> Floats:
        """Rows [T, D] of a text in float64."""
        plan, w = self.plan, {name[3:]: value.astype(np.float64) for name, value in self.values.items()}
        delta = isinstance(plan, GatedDelta)
        shape = (2, 16, 16)
        state, history, out = np.zeros(shape), no_history(64, 4), []
        bias = self.biases.get("op.conv")
        for token in tokens:
            x = self.table[token].astype(np.float64)
            raw = w["qkv"] @ x if delta else (w["in"] @ x)[32:96]
            mixed, history = short_conv(history, raw, w["conv"][:, 0], bias=bias)
            if delta:
                read, state = gated_delta_step(
                    state, mixed, w["a"] @ x, w["b"] @ x, w["decay_log"], w["step_bias"], 1, plan.l2_eps
                )  # fmt: skip
                z = (w["z"] @ x).reshape(2, 16)
                out.append(w["out"] @ exact_gated_norm(read, z, w["norm"], 1e-6, "silu").reshape(-1))
            else:
                sizes = step_sizes((w["in"] @ x)[96:], w["step_bias"], plan.step_limit)
                read, state = mamba2_step(state, mixed, sizes, w["decay_log"], w["skip"], 1)
                z = (w["in"] @ x)[:32]
                out.append(w["out"] @ gate_then_norm(read.reshape(-1), z, w["norm"], 1e-5, 2))
        return np.stack(out)


@pytest.fixture(params=[DELTA, MAMBA2], ids=["gated delta", "mamba-2"])
def layer(request: Any) -> Layer:
    return Layer(request.param)


def near(made: Tensor, true: Floats) -> None:
    assert np.linalg.norm(made.numpy() - true) < 2e-5 * np.linalg.norm(true)


def text(count: int, seed: int = 1) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(0, TOKENS, count)]


def serial(layer: Layer, tokens: list[int]) -> tuple[Tensor, tuple[bytes, ...]]:
    """A text's rows one launch each, and the state behind it."""
    entry = layer.open()
    rows = torch.stack([layer.step(entry, token) for token in tokens])
    image = layer.image(entry)
    layer.book.close(entry)
    return rows, image


def test_steps_one_by_one_are_near_float64(layer: Layer) -> None:
    tokens = text(6)
    near(serial(layer, tokens)[0], layer.truth(tokens))


def test_windows_kept_in_part_and_trees_leave_what_steps_one_by_one_leave(layer: Layer) -> None:
    tokens = text(9)
    rows, image = serial(layer, tokens)
    entry, other = layer.open(), layer.open()
    a, b, c, d, e, f, g, h, i = tokens
    whole = layer.launch((entry, Window((a, b), (-1, 0)), (0, 1)), padding=1)[0]
    part = layer.launch((other, chain(3), (0,)), (entry, Window((c, d, 1, 2), (-1, 0, 1, 2)), (0, 1)))[1]
    # Behind two rows that are replayed, a tree whose kept way is not its first.
    branched = Window((e, 5, f, 7, g), (-1, 0, 0, 1, 2))
    grown = layer.launch((entry, branched, (0, 2, 4)))[0]
    last = layer.launch((entry, Window((h, i), (-1, 0)), (0, 1)), (other, chain(4), (0,)), padding=2)[0]
    assert torch.equal(torch.cat([whole, part[:2], grown[[0, 2, 4]], last]), rows)
    assert layer.image(entry) == image
    beside = layer.image(other)
    layer.book.close(entry)
    assert beside == serial(layer, [3, 4])[1]


def test_a_rejected_window_leaves_no_trace(layer: Layer) -> None:
    tokens = text(3)
    rows, image = serial(layer, tokens)
    entry = layer.open()
    for at, token in enumerate(tokens):
        made = layer.launch((entry, Window((token, 1, 2), (-1, 0, 1)), (0,)))[0]
        assert torch.equal(made[0], rows[at])
    assert layer.image(entry) == image


def test_a_prompt_is_near_float64_and_its_spans_may_be_cut_at_64(layer: Layer) -> None:
    tokens = text(70)
    entry, other = layer.open(), layer.open()
    whole = layer.prompt(entry, tokens)
    near(whole, layer.truth(tokens))
    parts = [layer.prompt(other, tokens[:64]), layer.prompt(other, tokens[64:66]), layer.prompt(other, tokens[66:])]
    assert torch.equal(torch.cat(parts)[:66], whole[:66])
    near(layer.step(other, 9)[None], layer.truth([*tokens, 9])[-1:])
    near(layer.step(entry, 9)[None], layer.truth([*tokens, 9])[-1:])


def test_a_prompt_follows_decoded_rows_that_were_kept_in_part(layer: Layer) -> None:
    tokens = text(12)
    entry = layer.open()
    layer.launch((entry, Window((*tokens[:2], 1, 2), (-1, 0, 1, 2)), (0, 1)))
    made = layer.prompt(entry, tokens[2:])
    near(made, layer.truth(tokens)[2:])


def test_an_image_and_a_copy_continue_as_their_lane_does(layer: Layer) -> None:
    tokens = text(5)
    entry = layer.open()
    for token in tokens:
        layer.step(entry, token)
    image = layer.image(entry)
    assert [len(part) for part in image] == [each.fixed_bytes for each in layer.spec]
    kept_, _ = layer.book.keep(entry)
    layer.block.copy_place(entry.committed, kept_.committed)
    layer.block.copy_ring(list(zip(entry.last, kept_.last, strict=True)))
    assert layer.block.export(kept_.committed, kept_.last) == image
    follows = layer.step(entry, 7)
    layer.book.close(entry)
    loaded = layer.open()
    loaded.last = tuple(loaded.own[-3:])
    layer.block.load(loaded.committed, loaded.last, image)
    assert torch.equal(layer.step(loaded, 7), follows)
    with pytest.raises(ValueError, match="are not"):
        layer.block.load(loaded.committed, loaded.last, (image[0], image[1][:-4]))


def test_a_new_lane_remembers_nothing_of_an_old_one(layer: Layer) -> None:
    first, image = serial(layer, text(4))
    again, same = serial(layer, text(4))
    assert torch.equal(first, again)
    assert image == same


def test_a_block_whose_steps_nothing_launches_is_refused() -> None:
    with pytest.raises(ValueError, match="op takes gated delta steps, which nothing here launches"):
        GatedDeltaBlock(Assembly(None, None, room(1, 100), "cpu", torch.float32, "float32"), DELTA, "op")


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (GatedDelta(1, 2, 16, 16, ShortConv(64, 5), Norm(1e-6), "silu"), r"op\.conv is no convolution of 4 neighbours"),
        (GatedDelta(1, 2, 24, 16, ShortConv(80, 4), Norm(1e-6), "silu"), r"\(op\): 24 keys of a head"),
        (GatedDelta(1, 2, 16, 512, ShortConv(1056, 4), Norm(1e-6), "silu"), r"\(op\): 512 values of a head"),
        (GatedDelta(2, 3, 16, 16, ShortConv(112, 4), Norm(1e-6), "silu"), r"\(op\): 3 heads are not shared out evenly"),
        (Mamba2(2, 24, 16, 1, ShortConv(80, 4), Norm(1e-5)), "op has a head_width of 24"),
    ],
)
def test_another_convolution_and_odd_widths_are_refused_by_name(plan: GatedDelta | Mamba2, says: str) -> None:
    with pytest.raises(RefusedError, match=says):
        Layer(plan)
