"""Rows of drafts moved on the device, in the interpreter: `python -m tests.kernels.triton.draft_checks`."""

from __future__ import annotations

import os

if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.kernels.triton.draft_rows import take_rows


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


if __name__ == "__main__":
    for named, check in list(vars().items()):
        if named.startswith("check_"):
            check("cpu")
            print(named, flush=True)
