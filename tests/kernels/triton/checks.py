"""What every Triton kernel must hold, on a card ("cuda") or in the interpreter ("cpu"): near float64, and rows that do
not know their company, compared bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]
from numpy.typing import NDArray

from tensorfold.kernels.reference.norm import rms_norm
from tensorfold.kernels.reference.router import choose_experts
from tensorfold.kernels.reference.swiglu import gated_silu as exact_gated_silu
from tensorfold.kernels.triton.norms import add_norm, combine, gated_silu, squared_relu
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
