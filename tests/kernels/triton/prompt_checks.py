"""What the kernels of prompts must hold, on a card ("cuda") or in the interpreter ("cpu"): near float64, and rows that
hang on neither the length of a prompt nor their place in it, compared bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.kernels.cuda.affine_pack import pack_affine, pack_bf16
from tensorfold.kernels.reference.router import choose_experts
from tensorfold.kernels.triton.dequantize import dequantize, look_up
from tensorfold.kernels.triton.expert_items import choose_and_list, list_items
from tensorfold.kernels.triton.prompt_experts import multiply_groups, sort_pairs, spread_rows, sum_slots
from tensorfold.kernels.triton.prompt_matmul import Tiles, multiply
from tensorfold.kernels.triton.routers import choose_rows, score_rows

Tensor = Any


def bf16_bits(values: np.ndarray) -> np.ndarray:
    """Bits of float32 values, cut to bf16."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def bf16_values(bits: np.ndarray) -> np.ndarray:
    """Float64 numbers of bf16 bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def packed(
    seed: int, outputs: int, inputs: int, bits: int, order: np.ndarray | slice = slice(None)
) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of a random matrix, and its numbers in float64; `order` is that of its outputs."""
    chance = np.random.default_rng(seed)
    if bits == 16:
        values = bf16_bits(chance.standard_normal((outputs, inputs)))[order]
        return pack_bf16(np.pad(values, ((0, -outputs % 16), (0, 0)))), bf16_values(values)
    codes = chance.integers(0, 2**bits, (outputs, inputs))[order]
    scales, biases = (bf16_bits(chance.standard_normal((outputs, inputs // 64)) * size)[order] for size in (0.1, 1.0))
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


def check_a_gated_matrix_is_dequantized_in_the_order_of_the_plain_one(device: str) -> None:
    pairs = 40
    lying = np.arange(2 * pairs).reshape(2, -1, 4).swapaxes(0, 1).flatten()  # four of the gate, four of up
    for bits in (4, 5, 6, 8, 16):
        used, made = torch.tensor([1, 0, 2], dtype=torch.int32, device=device), []
        for order, gated in ((np.arange(2 * pairs), False), (lying, True)):
            stack = torch.cat([on(device, packed(seed, 2 * pairs, 320, bits, order)[0]) for seed in range(3)])
            made.append(torch.full((3, 2 * pairs, 320), -7.0, device=device))
            dequantize(stack, bits, made[-1], used, gated)
        assert torch.equal(*made), bits
        assert (made[1][1] == -7).all()
        assert np.array_equal(made[1][2].cpu().numpy(), packed(2, 2 * pairs, 320, bits)[1].astype(np.float32)), bits


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


def check_expert_items(device: str) -> None:
    chance = np.random.default_rng(4)
    for rows, slots, experts in ((1, 1, 4), (1, 8, 9), (32, 8, 40), (30, 8, 8), (64, 4, 5), (3, 2, 128)):
        chosen = np.stack([chance.permutation(experts)[:slots] for _ in range(rows)])
        ids = torch.from_numpy(chosen.astype(np.int32)).to(device)
        items = torch.full((1 + 3 * 256,), -1, dtype=torch.int32, device=device)
        members = torch.full((2, 256, 2), -1, dtype=torch.int32, device=device)
        list_items(ids, items, members[0], members[1])
        wanted: list[int] = []
        by_row: list[list[int]] = []
        by_pair: list[list[int]] = []
        for expert in range(experts):
            pairs = [int(pair) for pair in np.flatnonzero(chosen.flatten() == expert)]
            for first in range(0, len(pairs), 8):
                wanted += [expert, len(by_pair), len(pairs[first : first + 8])]
                by_pair += [[pair, pair] for pair in pairs[first : first + 8]]
                by_row += [[pair // slots, pair] for pair in pairs[first : first + 8]]
        assert items[: 1 + len(wanted)].tolist() == [len(wanted) // 3, *wanted]
        assert members[0, : len(by_row)].tolist() == by_row and members[1, : len(by_pair)].tolist() == by_pair


def check_sorted_pairs(device: str) -> None:
    chance = np.random.default_rng(13)
    for rows, slots, entries, tile in ((1, 1, 1, 16), (3, 8, 130, 128), (90, 3, 5, 32), (300, 2, 40, 64)):
        chosen = np.stack([chance.permutation(entries)[:slots] for _ in range(rows)])
        chosen[: rows // 2, 0] = entries - 1
        ids = torch.from_numpy(chosen.astype(np.int32)).to(device)
        order, places, used, table = sort_pairs(ids, entries, tile)
        wanted = np.argsort(chosen.flatten(), kind="stable")
        assert order.tolist() == wanted.tolist()
        assert places[order].tolist() == list(range(rows * slots))
        counts = np.bincount(chosen.flatten(), minlength=entries)
        assert used.tolist() == counts.tolist()
        edges = [0, *np.cumsum(counts).tolist()]
        tiles = [
            [entry, row, edges[entry + 1]]
            for entry in range(entries)
            for row in range(edges[entry], edges[entry + 1], tile)
        ]
        assert table[: len(tiles)].tolist() == tiles
        assert len(table) == -(-rows * slots // tile) + min(entries, rows * slots)
        assert all(row >= behind for _, row, behind in table[len(tiles) :].tolist())  # no tile's
        x = torch.from_numpy(chance.standard_normal((rows, 70)).astype(np.float32)).to(device)
        assert torch.equal(spread_rows(x, places, slots), x[order // slots])


def check_prompt_experts(device: str) -> None:
    chance = torch.Generator().manual_seed(6)
    kind = torch.float32 if device == "cpu" else torch.bfloat16
    experts, outputs, inputs, slots = 5, 40, 128, 2
    w = torch.randn(experts, 48, inputs, generator=chance).to(device, kind)
    x = torch.randn(90, inputs, generator=chance).to(device, kind)
    scores = torch.rand(90, experts, generator=chance)
    scores[:, 3] = -1.0  # nobody's
    ids = scores.topk(slots).indices.to(device, torch.int32)
    weights = torch.rand(90, slots, generator=chance).to(device)
    tiles = Tiles(32, 32, 64, 4, 2)

    def run(start: int, stop: int, square: bool = False) -> Tensor:
        some = ids[start:stop].contiguous()
        order, places, used, table = sort_pairs(some, experts, tiles.m)
        assert used.tolist() == [int((some == expert).sum()) for expert in range(experts)]
        out = torch.full((order.numel(), outputs), float("nan"), device=device, dtype=kind)
        for entries in ((0, 2), (2, 5)):  # in two passes
            part = w[entries[0] : entries[1]].contiguous()
            multiply_groups(x[start:stop][order // slots], part, out, table, entries, tiles, square)
        total = torch.empty((stop - start, outputs), device=device)
        sum_slots(out, places, weights[start:stop].contiguous(), total)
        return total

    for square in (False, True):
        made = run(0, 90, square)
        each = torch.einsum("tk,tsnk->tsn", x.double(), w[ids.long(), :outputs].double())
        each = each.clamp(min=0) ** 2 if square else each
        true = (each * weights.double()[:, :, None]).sum(1)
        assert ((made.double() - true).norm() / true.norm()).item() < (1e-6 if device == "cpu" else 3e-3)
        for start, stop in ((0, 1), (7, 40), (89, 90)):
            assert torch.equal(run(start, stop, square), made[start:stop])


def check_choice_of_experts(device: str) -> None:
    chance = np.random.default_rng(8)
    logits = chance.standard_normal((6, 20)).astype(np.float32)
    logits[1] = 0.25  # all alike: the lower ids come first
    broken = torch.full((1, 20), float("nan"), device=device)
    some, shares = torch.empty((1, 3), dtype=torch.int32, device=device), torch.empty((1, 3), device=device)
    choose_rows(broken, None, some, shares, 1.0)
    assert some.min() >= 0 and some.max() < 20  # what is thrown away still names experts that exist
    correction = chance.standard_normal(20).astype(np.float32)
    given = torch.from_numpy(logits).to(device)
    for scoring, over, normalize, bias in (
        ("sigmoid", False, True, True), ("softmax", False, True, False), ("softmax", True, False, False),
        ("softmax", False, False, False),
    ):  # fmt: skip
        ids = torch.full((6, 5), -1, dtype=torch.int32, device=device)
        weights = torch.full((6, 5), float("nan"), device=device)
        learnt = torch.from_numpy(correction).to(device) if bias else None
        told: Any = {"scoring": scoring, "over_chosen": over, "normalize": normalize}
        choose_rows(given, learnt, ids, weights, 2.5, chosen=3, **told)
        for row in range(6):
            exact = correction.astype(np.float64) if bias else None
            chosen, true = choose_experts(
                logits[row].astype(np.float64), 3, scoring, normalize=normalize, over_chosen=over, correction=exact,
                scale=2.5,
            )  # fmt: skip
            assert ids[row].tolist() == [*chosen, 20, 21]
            assert np.allclose(weights[row].cpu().numpy(), [*true, 1.0, 1.0], rtol=1e-5)


def said(items: Tensor, rows: Tensor, places: Tensor, pairs: int) -> list[Tensor]:
    """What lists say, without the room behind it."""
    return [items[: 1 + 3 * int(items[0])], *(members.flatten()[: 2 * pairs] for members in (rows, places))]


def check_choosing_and_listing_in_one_launch(device: str) -> None:
    chance = torch.Generator().manual_seed(11)
    logits = torch.randn((45, 100), generator=chance)
    logits[5], logits[7], logits[6] = 1.0, float("nan"), float("-inf")
    logits[10:30] = logits[10]  # more than 8, and than 16, with the same experts
    correction = torch.randn(100, generator=chance).to(device)
    for rows, slots, bias, normalize in (
        (1, 4, True, True), (2, 3, False, True), (5, 5, True, False), (8, 5, True, True), (9, 8, False, True),
        (17, 3, True, True), (30, 8, True, True), (32, 4, False, True), (45, 8, True, True),
    ):  # fmt: skip
        given = logits[:rows].to(device)
        step = 256 // slots
        learnt = correction if bias else None
        told: Any = {"chosen": 3, "normalize": normalize}
        alone = torch.full((rows, slots), -1, dtype=torch.int32, device=device)
        shares = torch.full((rows, slots), float("nan"), device=device)
        choose_rows(given, learnt, alone, shares, 2.5, **told)
        ids, weights = torch.full_like(alone, -1), torch.full_like(shares, float("nan"))
        lists = torch.full((2, 2048), -1, dtype=torch.int32, device=device)
        cut = (lists[:, :1024], lists[:, 1024:1536], lists[:, 1536:])
        choose_and_list(given, learnt, ids, weights, 2.5, cut, apart=2048, **told)
        assert torch.equal(ids, alone) and torch.equal(weights.view(torch.int32), shares.view(torch.int32)), rows
        assert all(len(set(row)) == slots and set(row) <= set(range(105)) for row in ids.tolist())
        for group, part in enumerate(ids.split(step)):
            wanted = [torch.full((size,), -1, dtype=torch.int32, device=device) for size in (769, 512, 512)]
            list_items(part.contiguous(), *wanted)
            made = said(cut[0][group], cut[1][group], cut[2][group], part.numel())
            true = said(wanted[0], wanted[1], wanted[2], part.numel())
            assert all(torch.equal(one, other) for one, other in zip(made, true, strict=True)), rows


def check_rows_of_logits_do_not_know_their_company(device: str) -> None:
    chance = torch.Generator().manual_seed(12)
    for width, experts in ((40, 7), (96, 24), (300, 3), (2688, 5)):
        x = torch.randn((19, width), generator=chance).to(device)
        weight = torch.randn((experts, width), generator=chance).to(device)
        if device == "cuda":
            x, weight = x.bfloat16(), weight.bfloat16()
        whole = torch.full((19, experts), float("nan"), device=device)
        score_rows(x, weight, whole)
        true = x.double() @ weight.double().T
        assert ((whole.double() - true).norm() / true.norm()).item() < 1e-6
        for start, stop in ((0, 1), (3, 5), (18, 19), (2, 11), (0, 17)):
            some = torch.full((stop - start, experts), float("nan"), device=device)
            score_rows(x[start:stop].contiguous(), weight, some)
            assert torch.equal(some, whole[start:stop]), (width, start, stop)


if __name__ == "__main__":
    for name, check in [(k, v) for k, v in vars().items() if k.startswith("check_")]:
        check("cpu")
        print(name, flush=True)
