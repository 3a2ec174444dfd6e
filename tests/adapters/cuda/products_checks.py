"""What products on the device must hold, on the CPU with Triton's interpreter and launches that stand in for the row
kernel's: `python -m tests.adapters.cuda.products_checks` with TRITON_INTERPRET=1 runs every check.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]
from numpy.typing import NDArray

from tensorfold.adapters.cuda.experts import Choice
from tensorfold.adapters.cuda.products import Products
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.stored_weights import Codes, Matrix, Stored, Values, as_float32
from tensorfold.domain.families.ops import FeedForward, MixtureOfExperts, Router, SharedExpert, SwiGLU
from tensorfold.kernels.cuda import row_tilings
from tensorfold.kernels.reference.affine import quantize
from tensorfold.kernels.reference.swiglu import gated_silu as exact_gated_silu
from tensorfold.kernels.triton.norms import gated_silu
from tests.adapters.cuda.host_launches import HostLaunches

Floats = NDArray[np.float64]
Tensor = Any
EXPERTS = 5


class StoredSlots:
    """Slots as a reader gives them: random ones, stored as they are asked for; bf16 scales."""

    def __init__(self) -> None:
        self.slots: dict[str, Stored] = {}
        self.biases: dict[str, NDArray[np.float32]] = {}
        self.read: list[str] = []

    def put(self, path: str, *shape: int, bits: int = 4, group: int = 64, dtype: str = "BF16") -> None:
        """A random slot; `bits` 16 is dense."""
        values = np.random.default_rng(len(self.slots)).standard_normal(shape) / np.sqrt(shape[-1])
        if bits == 16:
            raw = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
            self.slots[path] = Values(raw if dtype == "BF16" else values.astype(np.float32), dtype)
            return
        words, scales, biases = quantize(values, bits, group)
        self.slots[path] = Codes(words, _cut(scales), _cut(biases), bits, group, dtype)

    def matrix(self, path: str) -> Matrix:
        self.read.append(path)
        values = as_float32(self.slots[path])
        return Matrix(self.slots[path], (values.shape[0], values.shape[1]), self.biases.get(path))

    def entries(self, path: str) -> Any:
        stored = self.slots[path]
        for entry in range(EXPERTS):
            if isinstance(stored, Values):
                yield Matrix(Values(stored.raw[entry], stored.dtype), stored.raw.shape[1:])
            else:
                words, scales, biases = (part[entry] for part in (stored.words, stored.scales, stored.biases))
                codes = Codes(words, scales, biases, stored.bits, stored.group, stored.dtype)
                yield Matrix(codes, stored.words.shape[1:])

    def exact(self, path: str) -> Floats:
        return as_float32(self.slots[path]).astype(np.float64)


def _cut(values: Floats) -> NDArray[np.float32]:
    return (values.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


def made(slots: StoredSlots, **more: Any) -> Products:
    return Products(slots, HostLaunches(), "cpu", **more)


def rows(seed: int, *shape: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape, np.float32))


def near(result: Tensor, true: Floats, most: float = 1e-5) -> None:
    assert result.shape == true.shape
    difference = np.linalg.norm(result.double().numpy() - true) / np.linalg.norm(true)
    assert difference < most, difference


def check_slots_side_by_side() -> None:
    for bits in (2, 3, 4, 5, 6, 8, 16):
        for group in (64, 128):
            slots = StoredSlots()
            slots.put("q", 24, 128, bits=bits, group=group)
            slots.put("k", 8, 128, bits=bits, group=group)
            linear = made(slots).linear("q", "k")
            assert linear.outputs == (24, 8)
            x = rows(1, 3, 128)
            true = x.double().numpy() @ np.concatenate([slots.exact("q"), slots.exact("k")]).T
            near(linear.decode(x), true)
            near(linear.prompt(x), true)


def check_slots_stored_in_other_ways_are_still_side_by_side() -> None:
    slots = StoredSlots()
    slots.put("a", 16, 64, bits=4)
    slots.put("b", 5, 64, bits=4)
    slots.put("c", 7, 64, bits=8)
    slots.put("d", 3, 64, bits=16)
    slots.biases["b"] = np.random.default_rng(3).standard_normal(5).astype(np.float32)
    products = made(slots)
    linear = products.linear("a", "b", "c", "d")
    assert linear.outputs == (16, 5, 7, 3)
    x = rows(2, 4, 64)
    true = x.double().numpy() @ np.concatenate([slots.exact(name) for name in "abcd"]).T
    true[:, 16:21] += slots.biases["b"]
    near(linear.decode(x), true)
    near(linear.prompt(x), true)
    assert {matrix.outputs for matrix, *_ in products.rows.asked} == {21, 7, 3}  # type: ignore[attr-defined]


def gate_and_up(outputs: int = 24, bits: int = 4, up_bits: int | None = None) -> StoredSlots:
    """Two slots of 128 inputs, stored alike unless `up_bits` says otherwise."""
    slots = StoredSlots()
    slots.put("gate", outputs, 128, bits=bits)
    slots.put("up", outputs, 128, bits=bits if up_bits is None else up_bits)
    return slots


def exactly_gated(slots: StoredSlots, x: Tensor) -> Floats:
    """silu(gate) * up of rows in float64."""
    gate, up = (x.double().numpy() @ slots.exact(name).T + slots.biases.get(name, 0) for name in ("gate", "up"))
    return exact_gated_silu(gate, up)


def plainly_gated(products: Products, x: Tensor) -> Tensor:
    """The same of a prompt's rows through the product with both and the gate behind it."""
    both = products.linear("gate", "up").prompt(x)
    out = both.new_empty((len(both), both.shape[1] // 2))
    gated_silu(both, out)
    return out


def check_a_rounds_rows_pass_a_gate_and_what_it_opens_in_one_launch() -> None:
    for bits, x in zip((4, 5, 6, 8, 16), rows(3, 5, 4, 128), strict=True):
        slots = gate_and_up(bits=bits)
        products = made(slots)
        products.launched_with((1, 4))
        gated = products.gated("gate", "up")
        whole = gated.decode(x)
        near(whole, exactly_gated(slots, x))
        for row in range(4):
            assert torch.equal(gated.decode(x[row : row + 1])[0], whole[row])
        launches: Any = products.rows
        matrix = row_tilings.Matrix(48, 128, bits, gated=True)
        assert launches.asked == [(matrix, rows, True) for rows in (4, 1)]  # x is float32 here
        assert launches.expected == [(matrix, rows, False) for rows in (1, 4)]


def check_more_rows_than_a_launch_takes_pass_a_gate_in_several() -> None:
    slots = gate_and_up()
    products = made(slots)
    x = rows(5, 150, 128)
    near(products.gated("gate", "up").decode(x), exactly_gated(slots, x))
    assert [count for _, count, _ in products.rows.asked] == [128, 22]  # type: ignore[attr-defined]


def check_a_prompts_rows_get_the_bits_of_the_plain_product_and_the_gate_behind_it() -> None:
    for bits in (4, 5, 6, 8, 16):
        slots, x = gate_and_up(40, bits), rows(bits, 5, 128)
        products = made(slots)
        gated = products.gated("gate", "up")
        assert torch.equal(gated.prompt(x), plainly_gated(products, x))
        near(gated.prompt(x), exactly_gated(slots, x))


def check_a_gated_matrix_and_a_plain_one_of_the_same_slots_are_held_apart() -> None:
    slots, x = gate_and_up(), rows(6, 2, 128)
    products = made(slots)
    both = [slots.exact("gate"), slots.exact("up")]
    for _ in range(2):
        near(products.gated("gate", "up").decode(x), exactly_gated(slots, x))
        near(products.linear("gate", "up").decode(x), x.double().numpy() @ np.concatenate(both).T)
    assert slots.read == ["gate", "up"] * 2
    assert products.room == 48 * 128


def check_slots_that_cannot_lie_in_turn_are_multiplied_before_the_gate() -> None:
    apart, odd, biased = gate_and_up(up_bits=8), gate_and_up(12), gate_and_up()
    biased.biases["up"] = np.random.default_rng(3).standard_normal(24).astype(np.float32)
    for slots, outputs in ((apart, {24}), (odd, {24}), (biased, {48})):
        products, x = made(slots), rows(7, 3, 128)
        gated = products.gated("gate", "up")
        whole = gated.decode(x)
        near(whole, exactly_gated(slots, x))
        assert torch.equal(gated.decode(x[1:2])[0], whole[1])
        assert torch.equal(gated.prompt(x), plainly_gated(products, x))
        launches: Any = products.rows
        assert {matrix.outputs for matrix, *_ in launches.asked} == outputs
        assert not any(matrix.gated for matrix, *_ in launches.asked)


def check_a_table_and_a_tied_head_are_one_matrix() -> None:
    slots = StoredSlots()
    slots.put("embedding", 70, 128, bits=6)
    products = made(slots)
    table, head = products.embedding("embedding"), products.linear("embedding", wide=True, prompts=False)
    assert slots.read == ["embedding"] and products.room == 0
    ids = torch.tensor([3, 69, 3], dtype=torch.int32)
    assert np.array_equal(table(ids, torch.float32).numpy(), slots.exact("embedding")[[3, 69, 3]].astype(np.float32))
    near(head.decode(rows(4, 2, 128)), rows(4, 2, 128).double().numpy() @ slots.exact("embedding").T)


def check_spans_of_outputs_share_the_blocks_of_the_whole() -> None:
    slots = StoredSlots()
    slots.put("head", 90, 64, bits=5)
    slots.biases["head"] = np.random.default_rng(3).standard_normal(90).astype(np.float32)
    head = made(slots).linear("head")
    some = head.among([(0, 20), (48, 90)])
    x = rows(2, 3, 64)
    assert some.outputs == (20, 42)
    for whole, part in ((head.decode(x), some.decode(x)), (head.prompt(x), some.prompt(x))):
        assert torch.equal(part, torch.cat([whole[:, :20], whole[:, 48:]], 1))
    for spans in ([(8, 20)], [(80, 91)], [(16, 16)]):
        try:
            head.among(spans)
        except ValueError:
            continue
        raise AssertionError(spans)


def check_more_rows_than_a_launch_takes_are_several_launches() -> None:
    slots = StoredSlots()
    slots.put("w", 16, 64)
    products = made(slots)
    x = rows(5, 150, 64)
    near(products.linear("w").decode(x), x.double().numpy() @ slots.exact("w").T)
    assert [count for _, count, _ in products.rows.asked] == [128, 22]  # type: ignore[attr-defined]


def check_what_cannot_be_read_is_refused_by_name() -> None:
    slots = StoredSlots()
    slots.put("small", 16, 64, group=32)
    slots.put("odd", 16, 96, bits=16)
    for path, words in (("small", "groups of 32"), ("odd", "96 inputs")):
        try:
            made(slots).linear(path)
        except RefusedError as refusal:
            assert words in refusal.message and path in refusal.message
        else:
            raise AssertionError(path)
    slots.put("up", 16, 64, group=32)
    try:
        made(slots).gated("small", "up")
    except RefusedError as refusal:
        assert "groups of 32" in refusal.message and "small" in refusal.message
    else:
        raise AssertionError("gated")


def check_lost_digits_are_told_once() -> None:
    slots = StoredSlots()
    for name, bits in (("a", 16), ("b", 4)):
        slots.put(name, 16, 64, bits=bits, dtype="F32")
    lines: list[str] = []
    products = made(slots, on_note=lines.append)
    near(products.linear("a").decode(rows(6, 2, 64)), rows(6, 2, 64).double().numpy() @ slots.exact("a").T, 5e-3)
    products.linear("b")
    assert len(lines) == 1 and "weights stored as F32 (a first)" in lines[0]


def stored_experts(plan: MixtureOfExperts, width: int, shared_bits: int = 4) -> StoredSlots:
    slots = StoredSlots()
    names = ("gate", "up") if isinstance(plan.expert, SwiGLU) else ("up",)
    for name in names:
        slots.put(f"m.experts.{name}", EXPERTS, plan.expert.width, width)
    slots.put("m.experts.down", EXPERTS, width, plan.expert.width)
    if plan.shared is not None:
        for name in names:
            slots.put(f"m.shared.{name}", plan.shared.op.width, width, bits=shared_bits)
        slots.put("m.shared.down", width, plan.shared.op.width, bits=shared_bits)
    return slots


def expert(slots: StoredSlots, root: str, row: Floats, at: int | None = None) -> Floats:
    """What one expert, or the shared one, makes of a row."""

    def matrix(name: str) -> Floats:
        whole = slots.exact(f"m.{root}.{name}")
        return whole if at is None else whole[at]

    up = matrix("up") @ row
    if f"m.{root}.gate" in slots.slots:
        gate = matrix("gate") @ row
        hidden = gate / (1 + np.exp(-gate)) * up
    else:
        hidden = np.maximum(up, 0) ** 2
    return matrix("down") @ hidden  # type: ignore[no-any-return]


def check_experts() -> None:
    relu = MixtureOfExperts(Router(EXPERTS, 2, "sigmoid"), FeedForward(64), SharedExpert(FeedForward(128)))
    gated = MixtureOfExperts(Router(EXPERTS, 2, "softmax"), SwiGLU(64))
    for plan, folded, other in ((relu, 2, 4), (gated, 0, 4)):
        slots = stored_experts(plan, 128, other)
        products = made(slots, stack_bytes=2 * 2 * 128 * 128)  # two or four experts at a time
        stack = products.experts(plan, "m")
        assert stack.folded == folded
        chance = np.random.default_rng(9)
        count = 40
        x = rows(7, count, 128)
        ids = np.stack([chance.permutation(EXPERTS)[:2] for _ in range(count)])
        weights = chance.random((count, 2)).astype(np.float32)
        true = np.zeros((count, 128))
        for row in range(count):
            given = x[row].double().numpy()
            for at, weight in zip(ids[row], weights[row], strict=True):
                true[row] += weight * expert(slots, "experts", given, at)
            if folded:
                true[row] += expert(slots, "shared", given)
        more = np.tile(np.arange(EXPERTS, EXPERTS + folded), (count, 1))
        places = torch.from_numpy(np.concatenate([ids, more], 1).astype(np.int32))
        shares = torch.from_numpy(np.concatenate([weights, np.ones((count, folded), np.float32)], 1))
        near(stack.decode(x, Choice(places, shares)), true)
        if plan is relu:
            assert made(stored_experts(plan, 128, 8)).experts(plan, "m").folded == 0
        whole = stack.prompt(x, Choice(places, shares))
        near(whole, true)
        for start, stop in ((30, 37),) if folded else ():
            part = Choice(places[start:stop].contiguous(), shares[start:stop].contiguous())
            assert torch.equal(stack.prompt(x[start:stop], part), whole[start:stop])


if __name__ == "__main__":
    for name, check in [(k, v) for k, v in vars().items() if k.startswith("check_")]:
        check()
        print(name, flush=True)
