"""What every Triton kernel must hold, on a card ("cuda") or in the interpreter ("cpu"): near float64, and rows that do
not know their company, compared bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]
from numpy.typing import NDArray

from tensorfold.kernels.reference.attention import attend
from tensorfold.kernels.reference.gated_delta import gated_norm as exact_gated_norm
from tensorfold.kernels.reference.mamba2 import gate_then_norm
from tensorfold.kernels.reference.norm import rms_norm
from tensorfold.kernels.reference.router import choose_experts
from tensorfold.kernels.reference.swiglu import gated_silu as exact_gated_silu
from tensorfold.kernels.triton.attention import PARTITION, attend_rows
from tensorfold.kernels.triton.norms import add_norm, combine, gated_norm, gated_silu, squared_relu
from tensorfold.kernels.triton.routers import route_rows

Tensor = Any
BF16_ERROR = 6e-3  # the interpreter's; a card's rounding makes 1.7e-3


def exact(tensor: Tensor) -> NDArray[np.float64]:
    """The numbers of a tensor in float64."""
    numbers: NDArray[np.float64] = tensor.double().cpu().numpy()
    return numbers


def noise(device: str, *shape: int, dtype: Any = torch.bfloat16) -> Tensor:
    return torch.randn(shape, device=device).to(dtype)


def near(result: Tensor, true: NDArray[np.float64], most: float) -> None:
    difference = np.linalg.norm(exact(result) - true) / np.linalg.norm(true)
    assert difference < most, difference


def ints(device: str, values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)


def check_add_norm(device: str) -> None:
    for width in (96, 2688, 5120):
        x, other, weight = noise(device, 5, width), noise(device, 5, width), noise(device, width)

        def run(rows: Tensor, residual: Tensor | None, weight: Tensor = weight) -> tuple[Tensor, Tensor]:
            out, total = torch.full_like(rows, float("nan")), torch.full_like(rows, float("nan"))
            add_norm(rows, residual, weight, out, total, 1e-6)
            return out, total

        out, total = run(x, other)
        near(total, exact(x) + exact(other), BF16_ERROR)
        if device == "cuda":  # the interpreter cuts to bf16 where a card rounds
            assert torch.equal(total, (x.float() + other.float()).bfloat16())
        near(out, rms_norm(exact(total), exact(weight), 1e-6), BF16_ERROR)
        near(run(x, None)[0], rms_norm(exact(x), exact(weight), 1e-6), BF16_ERROR)
        for row in range(5):
            alone = run(x[row : row + 1].contiguous(), other[row : row + 1].contiguous())
            assert torch.equal(alone[0][0], out[row])
        broken = x.clone()
        broken[::2] = float("nan")
        assert torch.equal(run(broken, other)[0][1::2], out[1::2])


def check_gates(device: str) -> None:
    both = noise(device, 3, 2 * 1300)
    out = torch.full((3, 1300), float("nan"), device=device, dtype=torch.bfloat16)
    gated_silu(both, out)
    near(out, exact_gated_silu(exact(both[:, :1300]), exact(both[:, 1300:])), BF16_ERROR)
    mixed, z, whole, shared = noise(device, 3, 4 * 96), noise(device, 3, 4 * 96), noise(device, 384), noise(device, 96)
    before, behind = torch.empty_like(mixed), torch.empty_like(mixed)
    gated_norm(mixed, z, whole, before, 4, 1e-5, True)
    gated_norm(mixed, z, shared, behind, 4, 1e-6, False)
    for row in range(3):
        near(before[row], gate_then_norm(exact(mixed[row]), exact(z[row]), exact(whole), 1e-5, 4), BF16_ERROR)
        heads = exact(mixed[row]).reshape(4, 96), exact(z[row]).reshape(4, 96)
        near(behind[row], exact_gated_norm(*heads, exact(shared), 1e-6, "silu").reshape(-1), BF16_ERROR)


def check_experts_sum(device: str) -> None:
    pairs, weights = noise(device, 3 * 6, 700), torch.rand(3, 6, device=device)
    out = torch.full((3, 700), float("nan"), device=device, dtype=torch.bfloat16)
    combine(pairs, weights, out)
    near(out, (exact(pairs).reshape(3, 6, 700) * exact(weights)[:, :, None]).sum(1), BF16_ERROR)
    alone = torch.empty_like(out[:1])
    combine(pairs[6:12].contiguous(), weights[1:2].contiguous(), alone)
    assert torch.equal(alone[0], out[1])
    squared = torch.empty_like(pairs)
    squared_relu(pairs, squared)
    near(squared, np.maximum(exact(pairs), 0) ** 2, BF16_ERROR)


def check_router(device: str) -> None:
    x, weight = noise(device, 4, 200), noise(device, 24, 200) * 0.07
    weight[7] = weight[3]  # equal scores: the lower id first
    correction = torch.zeros(24, device=device)
    x[0] = 3 * weight[3].float() / weight[3].float().norm()
    ids = torch.full((4, 6), -1, dtype=torch.int32, device=device)
    weights, raw = torch.empty((4, 6), device=device), torch.empty((4, 24), device=device)
    route_rows(x, weight, correction, raw, ids, weights, 2.5)
    logits = exact(x) @ exact(weight).T
    for row in range(4):
        chosen, shares = choose_experts(logits[row], 6, "sigmoid", correction=exact(correction), scale=2.5)
        assert ids[row].tolist() == chosen
        near(weights[row], shares, 1e-5)
    assert ids[0].tolist()[:2] == [3, 7]
    single = torch.empty_like(ids[:1]), torch.empty_like(weights[:1])
    route_rows(x[2:3].contiguous(), weight, correction, raw[:1].contiguous(), *single, 2.5)
    assert torch.equal(single[0][0], ids[2])
    assert torch.equal(single[1][0], weights[2])


def dot_kind(device: str) -> Any:
    """What attention is checked in: the interpreter's products of bf16 are wrong."""
    return torch.bfloat16 if device == "cuda" else torch.float32


class Cache:
    """Pages of one lane's keys and values, laid out of order, and attention over them."""

    def __init__(self, device: str, length: int, groups: int, width: int) -> None:
        self.device, pages = device, -(-length // 512) + 1
        kind = dot_kind(device)
        self.keys, self.values = (noise(device, pages, 512, groups, width, dtype=kind) for _ in range(2))
        order = list(reversed(range(pages)))
        self.table = ints(device, [order])
        straight = [pages_[order].reshape(-1, groups, width) for pages_ in (self.keys, self.values)]
        self.flat_keys, self.flat_values = map(exact, straight)

    def run(
        self, query: Tensor, lengths: list[int], committed: list[int], path: list[list[int]], window: int, more: int = 0
    ) -> Tensor:
        rows, heads, width = query.shape
        partitions = -(-max(lengths) // PARTITION) + more
        shape = (rows, heads, partitions)
        scratch = [torch.full(s, float("nan"), device=self.device) for s in (shape, shape, (*shape, width))]
        out = torch.full_like(query, float("nan"))
        lanes = ints(self.device, [0] * rows)
        attend_rows(
            query, self.keys, self.values, self.table, lanes, ints(self.device, lengths), ints(self.device, committed),
            ints(self.device, path), (scratch[0], scratch[1], scratch[2]), out, width**-0.5, window,
        )  # fmt: skip
        return out


def check_attention(device: str) -> None:
    for length, window in ((1, 0), (63, 0), (512, 0), (513, 0), (1030, 0), (1030, 200), (700, 64)):
        cache = Cache(device, length + 4, 2, 32)
        query = noise(device, 3, 6, 32, dtype=dot_kind(device))
        lengths = [length, length + 1, length + 2]
        path = [[length - 1 + i for i in range(4)]] * 3
        out = cache.run(query, lengths, [length - 1] * 3, path, window)
        reads = [range(max(0, n - window) if window else 0, n) for n in lengths]
        near(out, attend(exact(query), cache.flat_keys, cache.flat_values, reads, 32**-0.5), 8e-3)
        for row in range(3):  # alone, in a longer launch, and with all its keys committed
            alone = cache.run(query[row : row + 1], lengths[row : row + 1], [lengths[row]], [[0] * 4], window, 2)
            assert torch.equal(alone[0], out[row])


def check_attention_of_a_tree(device: str) -> None:
    # Slots 510 to 513 hold a window: 510 the pending row, 511 its child, 512 another child, 513 a child of 512.
    cache = Cache(device, 520, 2, 32)
    query = noise(device, 4, 4, 32, dtype=dot_kind(device))
    path = [[510, 0, 0], [510, 511, 0], [510, 512, 0], [510, 512, 513]]
    out = cache.run(query, [511, 512, 512, 513], [510] * 4, path, 0)
    reads = [[*range(510), *slots] for slots in ([510], [510, 511], [510, 512], [510, 512, 513])]
    near(out, attend(exact(query), cache.flat_keys, cache.flat_values, reads, 32**-0.5), 8e-3)
    # The last row, had its path been written one after another.
    straight = Cache(device, 520, 2, 32)
    for pages, theirs in ((straight.keys, cache.keys), (straight.values, cache.values)):
        pages.copy_(theirs)
        first, second = cache.table[0].tolist()[:2]
        pages[first, 511], pages[second, 0] = theirs[second, 0], theirs[second, 1]
    assert torch.equal(straight.run(query[3:], [513], [513], [[0] * 3], 0)[0], out[3])
