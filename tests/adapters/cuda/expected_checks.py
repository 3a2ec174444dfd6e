"""What is compiled while a model loads is what its launches ask for: `python -m tests.adapters.cuda.expected_checks`.

Whole tiny models on the CPU, whose row launches write zeros; the widths of results are those of float32 rows there, so
they are left out of what is compared.
"""

from __future__ import annotations

import os

if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"

    from tests.kernels.triton.quick import quicken

    quicken()

import ctypes
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.adapters.cuda.control import ControlBlock
from tensorfold.adapters.cuda.engine_parts import EngineParts
from tensorfold.adapters.cuda.heads.makers import MakeHead, block_head, mtp_head
from tensorfold.adapters.cuda.loader import assembled, identity_of, wanted_limits
from tensorfold.adapters.cuda.model import CudaModel
from tensorfold.adapters.cuda.passes import counts
from tensorfold.adapters.cuda.products import Products
from tensorfold.adapters.cuda.weights import WeightReader
from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.application.ports.target_model import ModelCosts, ProposeSpec
from tensorfold.domain.families.binding import bind
from tensorfold.domain.memory.cuda_holding import Room, room
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.windows import chain
from tensorfold.kernels.cuda.affine_rows import ExpertLaunch, Launch
from tensorfold.kernels.cuda.row_tilings import Matrix
from tests.adapters.cuda.heads.mtp_checks import kept
from tests.adapters.cuda.host_delta import HostDelta
from tests.adapters.cuda.host_launches import HostLaunches
from tests.adapters.cuda.tiny_cuda import CONTEXT, TinyCuda, silent, tiny_cuda
from tests.synthetic.plan_checkpoints import dflash_plan, write_drafter
from tests.synthetic.tiny_configs import tiny_drafter

ROWS = (1, 3)
Shapes = set[tuple[Any, ...]]


class ZeroLaunches(HostLaunches):
    """Launches that write zeros."""

    def rows(self, matrix: Matrix, rows: int, wide: bool = False) -> Launch:
        self.asked.append((matrix, rows, wide))

        def launch(weights: int, x: int, y: int, stream: int, early: bool) -> None:
            ctypes.memset(y, 0, rows * matrix.results * 4)

        return launch

    def experts(self, matrix: Matrix, rows: int, pairs: int, wide: bool = False) -> ExpertLaunch:
        self.asked.append((matrix, rows, pairs, wide))

        def launch(stack: int, x: int, y: int, items: int, members: int, stream: int, early: bool) -> None:
            ctypes.memset(y, 0, pairs * matrix.outputs * 4)

        return launch


def loaded(
    tiny: TinyCuda, sizes: Room, head: MakeHead | None = None, rows: Sequence[int] = ()
) -> tuple[ZeroLaunches, EngineParts]:
    """The parts of a tiny model, put together as `load_stored` does it."""
    weights, launches, device = tiny.reader(), ZeroLaunches(), torch.device("cpu")
    products = Products(weights, launches, device)
    products.launched_with(rows or counts(sizes))
    assembly = Assembly(weights, products, sizes, device, torch.float32, "float32", HostDelta())
    return launches, assembled(tiny.plan, assembly, head, graphs=False)


def shapes(entries: list[tuple[Any, ...]]) -> Shapes:
    """Launches without the width of their results."""
    return {entry[:-1] for entry in entries}


def run_rows(parts: EngineParts, rows: Sequence[int]) -> None:
    """A pass of each of these row counts."""
    for count in rows:
        block = ControlBlock(parts.room, count, parts.table.device, torch.device("cpu"))
        block.send((), parts.book)
        parts.decoder.decode(block.rows)


def draft(parts: EngineParts, sizes: Room, tiny: TinyCuda) -> None:
    """A head absorbs and drafts in one lane and in three at once."""
    limits = wanted_limits(tiny.plan, sizes, CONTEXT, sizes.lanes - 1, parts.head.limits)
    model = CudaModel(parts, identity_of("tiny", "w", "r", "cpu", ()), limits, ModelCosts(((1, 1.0),), 0.1))
    # No prompt: in the interpreter its products take minutes, and they launch no row kernel.
    lanes = [model.open(80) for _ in range(3)]
    for lane, count in zip(lanes, (1, 3, 6), strict=True):
        kept(model, lane, 0, chain(5, [6] * (count - 1)), tuple(range(count)))
    model.propose([ProposeSpec(lanes[0], 5, 2, Sampling())])
    model.propose([ProposeSpec(lane, 5, 2, Sampling()) for lane in lanes])


def check_every_family(place: Path) -> None:
    for family in ("llama", "qwen3_5", "nemotron_h"):
        fields: dict[str, Any] = {"num_hidden_layers": 4} if family == "qwen3_5" else {}
        tiny = tiny_cuda(place / family, family, **fields)
        launches, parts = loaded(tiny, room(1, CONTEXT), rows=ROWS)
        run_rows(parts, ROWS)
        assert shapes(launches.asked) == shapes(launches.expected) and len(launches.expected) > len(ROWS), family
        gated = {entry[1] for entry in launches.expected if entry[0].gated}
        assert gated == ({*ROWS} if family != "nemotron_h" else set()), family  # whose MLPs have no gate


def check_a_head_of_its_own(place: Path) -> None:
    tiny, sizes = tiny_cuda(place, "nemotron_h"), room(4, CONTEXT)
    assert tiny.plan.mtp is not None
    launches, parts = loaded(tiny, sizes, mtp_head(tiny.plan.mtp))
    draft(parts, sizes, tiny)
    asked, expected = shapes(launches.asked), shapes(launches.expected)
    assert asked <= expected, asked - expected


def check_a_drafter(place: Path) -> None:
    tiny, sizes = tiny_cuda(place, "nemotron_h"), room(4, CONTEXT)
    plan = dflash_plan(tiny_drafter())
    facts = FolderReader().facts(write_drafter(place / "drafter", tiny_drafter(), 6))
    reader = WeightReader(bind(plan.tensors, facts.tensors, None), facts, silent)
    launches, parts = loaded(tiny, sizes, block_head(plan, reader, "drafter", 4))
    draft(parts, sizes, tiny)
    asked, expected = shapes(launches.asked), shapes(launches.expected)
    assert asked <= expected, asked - expected


if __name__ == "__main__":
    for name, check in list(vars().items()):
        if name.startswith("check_"):
            with tempfile.TemporaryDirectory() as folder:
                check(Path(folder))
            print(name, flush=True)
