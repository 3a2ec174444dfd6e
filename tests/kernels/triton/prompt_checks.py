"""What the kernels of prompts must hold, on a card ("cuda") or in the interpreter ("cpu"): near float64, and rows that
hang on neither the length of a prompt nor their place in it, compared bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.kernels.cuda.affine_pack import pack_affine, pack_bf16
from tensorfold.kernels.triton.dequantize import dequantize, look_up
from tensorfold.kernels.triton.prompt_matmul import Tiles, multiply

Tensor = Any


def bf16_bits(values: np.ndarray) -> np.ndarray:
    """Bits of float32 values, cut to bf16."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def bf16_values(bits: np.ndarray) -> np.ndarray:
    """Float64 numbers of bf16 bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def packed(seed: int, outputs: int, inputs: int, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of a random matrix, and its numbers in float64."""
    chance = np.random.default_rng(seed)
    if bits == 16:
        values = bf16_bits(chance.standard_normal((outputs, inputs)))
        return pack_bf16(np.pad(values, ((0, -outputs % 16), (0, 0)))), bf16_values(values)
    codes = chance.integers(0, 2**bits, (outputs, inputs))
    scales, biases = (bf16_bits(chance.standard_normal((outputs, inputs // 64)) * size) for size in (0.1, 1.0))
    wide = [np.repeat(bf16_values(part), 64, axis=1) for part in (scales, biases)]
    return pack_affine(codes, scales, biases, bits), codes * wide[0] + wide[1]


def on(device: str, blocks: np.ndarray) -> Tensor:
    """Blocks on the device."""
    return torch.from_numpy(blocks.view(np.int32)).to(device)


def check_dequantize(device: str) -> None:
    for bits in (4, 5, 6, 8, 16):
        blocks, exact = packed(bits, 32, 320, bits)
        both = torch.cat([on(device, blocks)] * 2)
        out = torch.zeros((2, 32, 320), device=device)
        dequantize(both, bits, out, torch.tensor([0, 3], dtype=torch.int32, device=device))
        assert not out[0].any()
        assert np.array_equal(out[1].cpu().numpy(), exact.astype(np.float32)), bits


def check_look_up(device: str) -> None:
    for bits in (4, 5, 6, 8, 16):
        blocks, exact = packed(bits, 40, 640, bits)
        ids = torch.tensor([39, 0, 8, 17, 0], dtype=torch.int32, device=device)
        out = torch.full((5, 640), float("nan"), device=device)
        look_up(on(device, blocks), bits, ids, out)
        assert np.array_equal(out.cpu().numpy(), exact[[39, 0, 8, 17, 0]].astype(np.float32)), bits


def check_prompt_matmul(device: str) -> None:
    chance = torch.Generator().manual_seed(3)
    kind = torch.float32 if device == "cpu" else torch.bfloat16  # the interpreter multiplies bf16 wrong
    for outputs, inputs, whole in ((200, 192, 150), (64, 64, 9), (1, 128, 70)):
        w = torch.randn(-(-outputs // 16) * 16, inputs, generator=chance).to(device, kind)
        x = torch.randn(whole, inputs, generator=chance).to(device, kind)
        for tiles in (Tiles(64, 64, 64, 4, 3), Tiles(64, 64, 32, 4, 2, 2, True, True), Tiles(32, 128, 64, 4, 3, 1)):

            def run(rows: Tensor, tiles: Tiles = tiles, outputs: int = outputs, w: Tensor = w) -> Tensor:
                out = torch.full((len(rows), outputs), float("nan"), device=device, dtype=kind)
                multiply(rows.contiguous(), w, out, tiles, 3)
                return out

            made = run(x)
            true = x.double() @ w[:outputs].double().T
            assert ((made.double() - true).norm() / true.norm()).item() < (1e-6 if device == "cpu" else 3e-3)
            for start, stop in ((0, 1), (0, 33), (5, 70), (whole - 3, whole)):
                assert torch.equal(run(x[start:stop]), made[start:stop]), (outputs, tiles, start)


if __name__ == "__main__":
    for name, check in [(k, v) for k, v in vars().items() if k.startswith("check_")]:
        check("cpu")
        print(name, flush=True)
