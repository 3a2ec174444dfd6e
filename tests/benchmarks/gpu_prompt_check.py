"""What a prompt's kernels must hold on a card: rows that hang on neither T nor their place, and numbers as packed."""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.experts import Choice
from tensorfold.adapters.cuda.packing import new_blocks, pack_codes
from tensorfold.adapters.cuda.products import Products
from tensorfold.kernels.cuda.row_tilings import Matrix
from tensorfold.kernels.triton.dequantize import dequantize
from tensorfold.kernels.triton.prompt_matmul import Tiles, multiply
from tests.benchmarks.gpu_device import dequantized, random_parts
from tests.benchmarks.gpu_prompt_geometry import CUTS, HIDDEN, LAYER, programs, routes, short
from tests.kernels.triton import prompt_checks

Tensor = Any


def check_kernels() -> list[str]:
    """What was not as promised."""
    wrong = []
    for name, one in [(k, v) for k, v in vars(prompt_checks).items() if k.startswith("check_")]:
        try:
            one("cuda")
        except AssertionError as failed:
            wrong.append(f"{name}: {failed}")
    return wrong + check_packing() + check_rows()


def check_packing() -> list[str]:
    """Packed and unpacked again, every number is its code times scale plus bias, rounded once."""
    wrong = []
    for bits in (4, 5, 6, 8):
        matrix = Matrix(100, 640, bits)
        parts = random_parts(matrix, bits)
        blocks = new_blocks(100, 640, bits, "cuda")
        pack_codes(*parts, bits, blocks)
        out = torch.empty((1, 112, 640), dtype=torch.bfloat16, device="cuda")
        dequantize(blocks, bits, out, torch.ones(1, dtype=torch.int32, device="cuda"))
        if not torch.equal(out[0, :100], dequantized(matrix, parts).float().bfloat16()):
            wrong.append(f"{bits} bits unpacked")
    return wrong


def check_rows() -> list[str]:
    """Rows of prompts of other lengths, at other places and beside NaN are bit for bit those of the whole."""
    wrong, chance = [], torch.Generator("cuda").manual_seed(2)
    for tiles in CUTS:
        for outputs, inputs in ((1024, 1280), (304, 2688)):
            w = torch.randn(outputs, inputs, device="cuda", generator=chance).bfloat16()
            x = torch.randn(1200, inputs, device="cuda", generator=chance).bfloat16()

            def run(rows: Tensor, w: Tensor = w, tiles: Tiles = tiles) -> Tensor:
                out = torch.full((len(rows), len(w)), float("nan"), device="cuda", dtype=torch.bfloat16)
                multiply(rows.contiguous(), w, out, tiles, programs())
                return out

            try:
                whole = run(x)
            except Exception as failed:
                wrong.append(f"{short(tiles)} does not run: {type(failed).__name__} {str(failed)[:80]}")
                break
            true = x.double() @ w.double().T
            error = ((whole.double() - true).norm() / true.norm()).item()
            parts = ((0, 1), (0, 100), (3, 700), (1199, 1200), (77, 1199))
            same = all(torch.equal(run(x[a:b]), whole[a:b]) for a, b in parts)
            broken = x.clone()
            broken[::2] = float("nan")
            if not same or error > 2.5e-3 or not torch.equal(run(broken)[1::2], whole[1::2]):
                wrong.append(f"{short(tiles)} {outputs} x {inputs}: same {same}, error {error:.1e}")
    return wrong


def check_layer(products: Products) -> list[str]:
    """A layer's experts: a round's rows as alone, a prompt's as in other spans, and both near each other."""
    stack, wrong = products.experts(LAYER, "m"), []
    x = torch.randn(700, HIDDEN, device="cuda").bfloat16()
    ids, weights = routes(700)

    def chosen(start: int, stop: int) -> Choice:
        return Choice(ids[start:stop].contiguous(), weights[start:stop].contiguous())

    whole = stack.prompt(x, chosen(0, 700))
    for start, stop in ((0, 1), (5, 200), (600, 700)):
        if not torch.equal(stack.prompt(x[start:stop], chosen(start, stop)), whole[start:stop]):
            wrong.append(f"experts of rows {start} to {stop} of a prompt")
    decoded = stack.decode(x[:64], chosen(0, 64))
    for row in (0, 31, 32, 63):
        if not torch.equal(stack.decode(x[row : row + 1], chosen(row, row + 1))[0], decoded[row]):
            wrong.append(f"experts of row {row} of a round")
    apart = ((decoded - whole[:64]).norm() / whole[:64].norm()).item()
    return wrong if apart < 1e-2 else [*wrong, f"experts decoded and of a prompt are {apart:.1e} apart"]
