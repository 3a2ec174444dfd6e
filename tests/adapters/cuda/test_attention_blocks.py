"""Attention blocks on the CPU, launched as the book of lanes plans it: exact, and near float64."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="torch is not installed")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("these run in Triton's interpreter: TRITON_INTERPRET=1", allow_module_level=True)

from tensorfold.adapters.cuda.assembly import Assembly  # noqa: E402
from tensorfold.adapters.cuda.blocks import attention  # noqa: E402
from tensorfold.adapters.cuda.blocks.attention import AttentionBlock  # noqa: E402
from tensorfold.adapters.cuda.control import ControlBlock, Table  # noqa: E402
from tensorfold.adapters.cuda.lane_book import LaneBook, LaneEntry  # noqa: E402
from tensorfold.adapters.cuda.plans import kept, plan_window  # noqa: E402
from tensorfold.adapters.cuda.rows import Chunk  # noqa: E402
from tensorfold.application.ports.checkpoints import RefusedError  # noqa: E402
from tensorfold.domain.families.ops import Attention, Norm, Rope  # noqa: E402
from tensorfold.domain.families.rope import inverse_frequencies  # noqa: E402
from tensorfold.domain.families.weights import op_weights  # noqa: E402
from tensorfold.domain.memory.cuda_holding import room  # noqa: E402
from tensorfold.domain.windows import Window, chain  # noqa: E402
from tensorfold.kernels.reference.attention import attend, output_gated, split_output_gate  # noqa: E402
from tensorfold.kernels.reference.norm import rms_norm  # noqa: E402
from tensorfold.kernels.reference.rope import rotate  # noqa: E402
from tensorfold.kernels.triton import attention as kernels  # noqa: E402
from tests.adapters.cuda.host_products import HeldWeights, HostProducts  # noqa: E402
from tests.kernels.triton.quick import quicken  # noqa: E402

quicken()
Tensor = Any
Floats = NDArray[np.float64]
pytestmark = pytest.mark.slow
WIDTH, TOKENS, CONTEXT = 24, 40, 600
QWEN = Attention(
    6, 2, 16, 0.25, Rope(4, 1e4), q_norm=Norm(1e-6), k_norm=Norm(1e-6), output_gate=True
)  # fmt: skip
LLAMA = Attention(4, 2, 8, 0.35, Rope(8, 5e5, form="llama3", factor=8.0, original=64, high_factor=4.0), qkv_bias=True)
NEMOTRON = Attention(8, 1, 16, 0.25)
WINDOWED = Attention(4, 4, 16, 0.25, Rope(16, 1e4, interleaved=True), window=20)
PLANS = {"qwen": QWEN, "llama": LLAMA, "nemotron": NEMOTRON, "windowed": WINDOWED}
TEXT = np.random.default_rng(3).integers(0, TOKENS, 540).tolist()


class Layer:
    """A block in a room of two lanes, fed by token ids, and its float64 truth."""

    def __init__(self, plan: Attention) -> None:
        chance = np.random.default_rng(7)
        self.values = {
            f"op.{name}": chance.normal(size=weight.shape).astype(np.float32) / (weight.shape[-1] ** 0.5)
            for name, weight in op_weights(plan, WIDTH)
        }
        names = ("op.q", "op.k", "op.v") if plan.qkv_bias else ()
        self.biases = {name: chance.normal(size=len(self.values[name])).astype(np.float32) for name in names}
        self.plan, self.table = plan, chance.normal(size=(TOKENS, WIDTH)).astype(np.float32)
        weights, device = HeldWeights(self.values, self.biases), torch.device("cpu")
        self.room = room(2, CONTEXT, kept=1)
        assembly = Assembly(weights, HostProducts(weights), self.room, device, torch.float32, "float32")
        self.block = AttentionBlock(assembly, plan, "op")
        self.assembly = assembly
        assert assembly.keyed == [self.block]
        self.spec = assembly.entries
        self.book = LaneBook(self.room)
        self.pages = Table(self.room, device, self.book.nobody.pages)

    def open(self) -> LaneEntry:
        entry = self.book.open(CONTEXT)
        self.pages.set(entry.slot, entry.pages)
        return entry

    def rows(self, tokens: list[int]) -> Tensor:
        return torch.from_numpy(self.table[tokens])

    def prompt(self, entry: LaneEntry, tokens: list[int]) -> Tensor:
        start, count = entry.length, len(tokens)
        positions = torch.arange(start, start + count, dtype=torch.int32)
        pages = self.pages.device[entry.slot]
        chunk = Chunk(entry.slot, start, count, positions, positions, pages, 0, positions, ())
        entry.length += count
        return self.block.prompt(self.rows(tokens), chunk)

    def launch(self, *windows: tuple[LaneEntry, Window, tuple[int, ...]], padding: int = 0) -> list[Tensor]:
        """Results of each lane's window, of which the given rows are kept."""
        planned = [plan_window(entry, window) for entry, window, _ in windows]
        count = sum(len(window) for _, window, _ in windows)
        control = ControlBlock(self.room, count + padding, self.pages.device, torch.device("cpu"))
        control.send(planned, self.book)
        tokens = [token for _, window, _ in windows for token in window.tokens]
        made = self.block.decode(self.rows(tokens + [0] * padding), control.rows)
        moves = []
        for plan, (entry, window, path) in zip(planned, windows, strict=True):
            moved = kept(entry, plan, path, chain=window.is_chain)
            moves += [(entry.slot, source, target) for source, target in moved]
        if moves:
            self.block.move(torch.tensor(moves, dtype=torch.int32), self.pages.device)
        return list(made[:count].split([len(window) for _, window, _ in windows]))

    def step(self, entry: LaneEntry, token: int) -> Tensor:
        return self.launch((entry, chain(token), (0,)))[0][0]

    def truth(self, tokens: list[int]) -> Floats:
        """Rows [T, D] of a text in float64."""
        plan, x = self.plan, self.table[tokens].astype(np.float64)

        def heads(name: str, count: int) -> Floats:
            made = x @ self.values[f"op.{name}"].astype(np.float64).T + self.biases.get(f"op.{name}", 0.0)
            return np.asarray(made).reshape(len(tokens), count, -1)

        queries, keys, values = heads("q", plan.heads), heads("k", plan.kv_heads), heads("v", plan.kv_heads)
        gate = None
        if plan.output_gate:
            queries, gate = split_output_gate(queries)
        if plan.q_norm is not None:
            queries = rms_norm(queries, self.values["op.q_norm"].astype(np.float64), 1e-6)
            keys = rms_norm(keys, self.values["op.k_norm"].astype(np.float64), 1e-6)
        if plan.rope is not None:
            frequencies, at = inverse_frequencies(plan.rope), np.arange(len(tokens))
            queries, keys = (
                rotate(each, at, frequencies, interleaved=plan.rope.interleaved) for each in (queries, keys)
            )
        reads = [range(max(0, at - plan.window + 1) if plan.window else 0, at + 1) for at in range(len(tokens))]
        mixed = attend(queries, keys, values, reads, plan.scale)
        if gate is not None:
            mixed = output_gated(mixed, gate)
        rows: Floats = mixed.reshape(len(tokens), -1) @ self.values["op.out"].astype(np.float64).T
        return rows


@pytest.fixture
def layer(request: Any) -> Layer:
    return Layer(PLANS[request.param])


def of(*names: str) -> pytest.MarkDecorator:
    """The test with layers of these forms."""
    return pytest.mark.parametrize("layer", names, indirect=True)


def near(rows: Tensor, exact: Floats) -> None:
    assert np.abs(rows.double().numpy() - exact).max() < 2e-5


@of(*PLANS)
def test_a_prompt_in_any_spans_and_the_steps_behind_it_are_near_float64(layer: Layer) -> None:
    entry, other, text = layer.open(), layer.open(), TEXT[:27]
    exact = layer.truth(text)
    whole = layer.prompt(entry, text[:25])
    near(whole, exact[:25])
    parts = [layer.prompt(other, part) for part in (text[:12], text[12:13], text[13:25])]
    assert torch.equal(torch.cat(parts), whole)
    for at in (25, 26):
        made = layer.step(entry, text[at])
        near(made, exact[at])
        assert torch.equal(layer.step(other, text[at]), made)


@of("qwen", "windowed")
def test_windows_trees_and_shared_launches_have_the_bits_of_single_steps(layer: Layer) -> None:
    serial, lane = layer.open(), layer.open()
    text = TEXT[:16]
    for entry in (serial, lane):
        layer.prompt(entry, text[:5])
    steps = [layer.step(serial, token) for token in text[5:14]]
    (made,) = layer.launch((lane, chain(text[5], text[6:9]), (0, 1)), padding=2)
    assert torch.equal(made, torch.stack(steps[:4]))
    # Row 0, then two ways: the second is the text's.
    window = Window((text[7], 11, text[8], 12, text[9], text[10]), (-1, 0, 0, 1, 2, 4))
    (made,) = layer.launch((lane, window, (0, 2, 4, 5)))
    assert torch.equal(made[[0, 2, 4, 5]], torch.stack(steps[2:6]))
    layer.book.close(serial)
    tree_lane = layer.open()
    layer.prompt(tree_lane, text[:5])
    both = layer.launch(
        (lane, chain(text[11], text[12:14]), (0, 1, 2)), (tree_lane, chain(text[5], text[6:8]), (0,)), padding=1
    )
    assert torch.equal(torch.cat(both), torch.stack(steps[6:9] + steps[:3]))


@of("llama", "windowed")
def test_a_lane_comes_back_from_its_image_and_from_copied_pages(layer: Layer) -> None:
    entry, other = layer.open(), layer.open()
    chance = np.random.default_rng(4)
    image = tuple(
        chance.normal(size=state.bytes_at(530) // 4).astype(np.float32).tobytes() for state in layer.spec
    )  # fmt: skip
    for each in (entry, other):
        layer.block.load(each.pages, image, 530)
        each.length = 530
    assert layer.block.export(entry.pages, 530) == image
    made = layer.step(entry, TEXT[530])
    assert torch.equal(layer.step(other, TEXT[530]), made)
    layer.book.close(other)
    with pytest.raises(ValueError, match="530 tokens have"):
        layer.block.load(entry.pages, (image[0], image[1][:-4]), 530)
    kept_state, pages = layer.book.keep(entry)
    layer.block.copy_pages(pages)
    following = layer.step(entry, TEXT[531])
    resumed, pages = layer.book.resume(kept_state, CONTEXT)
    layer.pages.set(resumed.slot, resumed.pages)
    layer.block.copy_pages(pages)
    assert torch.equal(layer.step(resumed, TEXT[531]), following)


@pytest.mark.parametrize("change", [{"softcap": 30.0}, {"head_dim": 512}, {"head_dim": 20}, {"v_norm": Norm(1e-6)}])
def test_what_the_kernels_do_not_compute_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(RefusedError, match="op"):
        Layer(replace(NEMOTRON, **change))


def test_layers_of_one_form_share_a_plan_that_is_made_anew_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = Layer(QWEN)
    made: list[int] = []
    other = AttentionBlock(layer.assembly, QWEN, "op")
    narrow = AttentionBlock(layer.assembly, replace(QWEN, window=20), "op")

    def plan(form: kernels.Form, *words: Tensor) -> Tensor:
        made.append(form.window)
        return kernels.plan(form, *words)

    monkeypatch.setattr(attention, "plan", plan)
    entry = layer.open()
    for token in TEXT[:2]:
        planned = plan_window(entry, chain(token))
        control = ControlBlock(layer.room, 1, layer.pages.device, torch.device("cpu"))
        control.send([planned], layer.book)
        first, second, third = (
            block.decode(layer.rows([token]), control.rows) for block in (layer.block, other, narrow)
        )
        assert torch.equal(first, second)
        assert torch.equal(first, third)
        kept(entry, planned, (0,), chain=True)
    assert made == [0, 20, 0, 20]
    other.decode(layer.rows(TEXT[:1]), replace(control.rows))  # of a round that the first layer has not seen
    assert made == [0, 20, 0, 20, 0]
