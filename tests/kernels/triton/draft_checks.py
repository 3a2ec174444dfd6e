"""Rows of drafts moved on the device, in the interpreter: `python -m tests.kernels.triton.draft_checks`."""

from __future__ import annotations

import os

if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"

from types import SimpleNamespace
from typing import Any, cast

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.heads.block_pass import BlockPass
from tensorfold.adapters.cuda.heads.graphs import Graphs
from tensorfold.adapters.cuda.heads.head import Found
from tensorfold.adapters.cuda.heads.mtp_passes import Chains, Entries, Following, Sizes
from tensorfold.adapters.cuda.sampler import RowDraw
from tensorfold.domain.sampling import Sampling
from tensorfold.kernels.triton.draft_ahead import keep_tokens
from tensorfold.kernels.triton.draft_candidates import best_candidates, score_pairs
from tensorfold.kernels.triton.draft_rows import take_rows

TOKENS = [11, 12, 13, 14, 15, 21, 22, 31, 32, 33]
WINDOWS = ((0, 5), (5, 2), (7, 3))
"""First row and rows of three windows of one launch."""
PATHS = ((0, 2, 3), (0,), (0, 1, 2))
PENDING = (41, 42, 43)


def found(device: str, width: int) -> Found:
    """What a launch of these windows left."""
    kept = torch.full((5, 2 + 8), -1, dtype=torch.int32)
    for line, (path, pending) in enumerate(zip(PATHS, PENDING, strict=True)):
        kept[line, : 2 + len(path)] = torch.tensor([len(path), pending, *path])
    stream = torch.arange(len(TOKENS) * width, dtype=torch.float32).reshape(len(TOKENS), width)
    tokens = torch.tensor(TOKENS, dtype=torch.int32)
    taps = {2: stream.to(device), 5: 1000.0 + stream.to(device)}
    return Found(kept.to(device), tokens.to(device), taps)


def check_rows_of_many_streams_stand_side_by_side(device: str) -> None:
    chance = torch.Generator().manual_seed(4)
    for streams, width in ((1, 96), (5, 40), (8, 2100)):
        given = [torch.randn((7, width), generator=chance).to(device) for _ in range(streams)]
        out = torch.full((6, streams * width), 9.0, device=device)
        sources, targets = [3, -1, 6, 0], [1, 0, 2, 5]
        at = [torch.tensor(rows, dtype=torch.int32, device=device) for rows in (sources, targets)]
        take_rows(given, at[0], at[1], 4, out)
        expected = torch.full_like(out, 9.0)
        for source, target in zip(sources, targets, strict=True):
            if source >= 0:
                expected[target] = torch.cat([stream[source] for stream in given])
        assert torch.equal(out, expected)


def chains_of(device: str, pool: Any, lanes: int) -> Chains:
    """Chains that fill their rows in and run nothing."""
    sizes = Sizes(8, 1, 9, 6, 66)
    table = torch.zeros((7, 2), dtype=torch.int32, device=device)
    none = cast(Any, None)
    made = Chains(none, none, pool, table, sizes, lanes, Graphs(device, wanted=False))
    made._begin = lambda rows: None  # type: ignore[method-assign]
    return made


def numbers(chains: Chains, rows: int) -> list[Any]:
    """Everything that the passes of chains read."""
    first = chains._first_rows(rows)
    return [first._block._whole, chains._block._whole, chains._rules.rules.positions]


def check_entries_are_laid_out_as_the_host_has_them(device: str) -> None:
    for lines, lanes in (((0, 1, 2), 4), ((2,), 1), ((1, 0), 2)):
        pools = [torch.zeros((70, 40), device=device) for _ in range(2)]
        mine, theirs = (chains_of(device, pool, lanes) for pool in pools)
        left, rows, given, entered = found(device, 40), 16, list[Following](), list[Entries]()
        for line in lines:
            (start, count), path, pending = WINDOWS[line], PATHS[line], PENDING[line]
            slot, first, waits, room = line, 100 + line, 20 * line, range(20 * line + 1, 20 * line + 1 + count)
            given.append(Following(slot, first, waits, room, line, start, RowDraw(first + 2, Sampling(line, 0.5))))
            tokens, draw = [TOKENS[start + row] for row in path], RowDraw(first + 2 + len(path), Sampling(line, 0.5))
            entered.append(Entries(slot, first, [*tokens, pending], [waits, *room[: len(path)]], draw))
            pools[1][list(room[: len(path)])] = left.taps[2][[start + row for row in path]]
        mine.follow(given, rows, left, left.taps[2])
        theirs._first_rows(rows).send(entered)
        theirs._send(entered)
        assert torch.equal(*pools)
        for one, other in zip(numbers(mine, rows), numbers(theirs, rows), strict=True):
            assert torch.equal(one, other)


def check_kept_tokens_and_blocks_are_laid_out_as_the_host_has_them(device: str) -> None:
    left, order, nobody = found(device, 40), (0, 2, 1), 9
    lengths = {line: 300 + line for line in order}
    facts = [(line, WINDOWS[line][0], line + 3, lengths[line]) for line in order]
    given = torch.tensor([*facts, (0, 0, 0, 0)], dtype=torch.int32, device=device)
    tapped = torch.zeros((16, 80), device=device)
    positions, rings = (torch.full((16,), 7, dtype=torch.int32, device=device) for _ in range(2))
    keep_tokens(left.kept, given, 3, list(left.taps.values()), tapped, positions, rings, nobody)
    rows = [WINDOWS[line][0] + row for line in order for row in PATHS[line]]
    assert torch.equal(tapped[: len(rows)], torch.cat([stream[rows] for stream in left.taps.values()], dim=1))
    assert not tapped[len(rows) :].any()
    stands = [(lengths[line] + at, line + 3) for line in order for at in range(len(PATHS[line]))]
    stands += [(0, nobody)] * (16 - len(stands))
    assert list(zip(positions.tolist(), rings.tolist(), strict=True)) == stands

    mine, theirs = (block_pass(device) for _ in range(2))
    mine.fill([(lane_of(line, lengths[line]), 0) for line in order])
    mine.follow(left.kept, given, 3)
    theirs.fill([(lane_of(line, lengths[line] + len(PATHS[line])), PENDING[line]) for line in order])
    assert torch.equal(mine._block._whole, theirs._block._whole)


def lane_of(line: int, length: int) -> Any:
    return SimpleNamespace(ring=line + 3, length=length)


def block_pass(device: str) -> BlockPass:
    """A pass of four blocks of eight rows, of which nothing runs."""
    head = SimpleNamespace(
        device=device, mask_token=77, rings=SimpleNamespace(nobody=9), block_pass_shape=lambda *shape: shape
    )
    return BlockPass(cast(Any, head), 4, 8)


def check_candidates_are_the_best_of_each_row(device: str) -> None:
    chance = torch.Generator().manual_seed(8)
    for rows, width, count in ((3, 5000, 16), (2, 90, 4), (1, 2049, 16), (2, 16, 16)):
        logits = torch.randn((rows, width), generator=chance)
        logits[0, 3] = float("nan")
        logits[-1, width - 1] = 9.0
        names = torch.randperm(200_000, generator=chance)[:width].to(torch.int32)
        for named in (False, True):
            best = torch.zeros((rows, count), dtype=torch.int32, device=device)
            told = torch.full((rows, count * (2 + count)), 7.0, device=device)
            best_candidates(logits.to(device), names.to(device) if named else None, best, told)
            clean = torch.where(logits.isnan(), -3.0e38, logits)
            scores, places = torch.topk(clean, count, dim=1)
            expected = names[places] if named else places
            assert torch.equal(best.cpu(), expected.to(torch.int32))
            assert torch.equal(told[:, :count].cpu(), expected.float())
            assert torch.equal(told[:, count : 2 * count].cpu(), scores)
            assert (told[:, 2 * count :] == 7.0).all()


def check_equal_candidates_come_by_their_place(device: str) -> None:
    logits = torch.zeros((1, 6000), device=device)
    logits[0, [4100, 2100, 50]] = 1.0
    best, told = torch.zeros((1, 4), dtype=torch.int32, device=device), torch.zeros((1, 24), device=device)
    best_candidates(logits, None, best, told)
    assert best.tolist() == [[50, 2100, 4100, 0]]


def check_pairs_are_sums_of_three(device: str) -> None:
    chance = torch.Generator().manual_seed(9)
    for count, rank in ((16, 40), (4, 8)):
        best = torch.randint(0, 300, (6, count), generator=chance, dtype=torch.int32)
        pending = torch.tensor([17, 250], dtype=torch.int32)
        mixed, before, behind = (torch.randn((rows, rank), generator=chance) for rows in (6, 300, 300))
        told = torch.full((6, count * (2 + count)), 7.0, device=device)
        tables = before.to(device), behind.to(device)
        score_pairs(best.to(device), pending.to(device), mixed.to(device), *tables, 3, told)
        above = torch.stack([pending[r // 3].expand(count) if r % 3 == 0 else best[r - 1] for r in range(6)])
        expected = torch.einsum("rpk,rk,rck->rpc", before[above.long()], mixed, behind[best.long()])
        torch.testing.assert_close(told[:, 2 * count :].cpu(), expected.flatten(1), atol=1e-4, rtol=1e-4)
        assert (told[:, : 2 * count] == 7.0).all()


if __name__ == "__main__":
    for named, check in list(vars().items()):
        if named.startswith("check_"):
            check("cpu")
            print(named, flush=True)
