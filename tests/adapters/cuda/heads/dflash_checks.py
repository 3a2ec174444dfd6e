"""A drafter of blocks on CUDA's blocks, run on the CPU: `python -m tests.adapters.cuda.heads.dflash_checks`.

Its candidates and pairs are those of the float64 oracle, however the kept tokens came.
"""

from __future__ import annotations

import os

if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"

    from tests.kernels.triton.quick import quicken

    quicken()

import tempfile
from pathlib import Path

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.heads.makers import block_head
from tensorfold.adapters.cuda.heads.narrow_weights import narrowed
from tensorfold.adapters.cuda.model import CudaModel
from tensorfold.adapters.cuda.weights import WeightReader
from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.application.ports.target_model import Lattice, ProposeSpec
from tensorfold.domain.families.binding import bind
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.windows import chain, tree
from tests.adapters.cuda.heads.mtp_checks import absorbed, follow_launches, kept
from tests.adapters.cuda.tiny_cuda import TinyCuda, silent, tiny_cuda
from tests.reference.reference_heads import ReferenceDrafter
from tests.reference.reference_model import ReferenceModel
from tests.synthetic.plan_checkpoints import dflash_plan, write_drafter
from tests.synthetic.tiny_configs import tiny_drafter

TOKENS = [3 + 37 * at % 250 for at in range(30)]
DEPTH = 7


def drafted(model: CudaModel, lane: int, pending: int, depth: int = DEPTH) -> Lattice:
    (answer,) = model.propose([ProposeSpec(lane, pending, depth, Sampling())])
    assert isinstance(answer, Lattice)
    return answer


def alike(one: Lattice, other: Lattice) -> None:
    for mine, theirs, scores, others in zip(one.ids, other.ids, one.scores, other.scores, strict=True):
        assert mine.tolist() == theirs.tolist()
        np.testing.assert_allclose(scores, others, atol=1e-4)


def check_candidates_and_pairs_are_the_oracles(oracle: ReferenceDrafter, model: CudaModel) -> None:
    predecessor, successor = (oracle.reader[f"selector.{name}"] for name in ("predecessor", "successor"))
    projection = oracle.reader["selector.projection"]
    for count, cuts in ((3, (1,)), (19, (4, 9))):
        lane = absorbed(model, TOKENS[: count - 1], *cuts)
        lattice = drafted(model, lane, TOKENS[count - 1])
        block = oracle.dflash(TOKENS[:count], DEPTH + 1)
        before = np.asarray([TOKENS[count - 1]])
        for depth, (ids, scores, pair) in enumerate(zip(lattice.ids, lattice.scores, lattice.pair, strict=True)):
            np.testing.assert_allclose(scores, block.logits[depth][ids], atol=1e-4)
            assert set(ids.tolist()) == set(np.argsort(-block.logits[depth])[: len(ids)].tolist())
            mixed = projection @ block.hidden[depth]
            np.testing.assert_allclose(pair, (predecessor[before] * mixed) @ successor[ids].T, atol=1e-4)
            before = ids
        model.close(lane)


def check_how_tokens_came_does_not_matter(oracle: ReferenceDrafter, model: CudaModel) -> None:
    serial, other = absorbed(model, TOKENS[:10]), absorbed(model, TOKENS[:10], 3)
    kept(model, serial, 10, chain(TOKENS[10]), (0,))
    kept(model, serial, 11, chain(TOKENS[11], TOKENS[12:18]), tuple(range(7)))
    kept(model, other, 10, chain(TOKENS[10], [TOKENS[11], 9, 8]), (0, 1))
    drafted(model, other, 5, 2)
    kept(model, other, 12, tree(TOKENS[12], [1, TOKENS[13], 2, TOKENS[14]], [0, 0, 2, 2]), (0, 2, 4))
    kept(model, other, 15, chain(TOKENS[15], TOKENS[16:18]), (0, 1, 2))
    alike(drafted(model, serial, TOKENS[18]), drafted(model, other, TOKENS[18]))
    held = model.fork(other)
    twin = model.resume(held, 80)
    alike(drafted(model, twin, TOKENS[18]), drafted(model, other, TOKENS[18]))
    image = model.export(other)
    restored = model.restore(image, 80)
    alike(drafted(model, restored, TOKENS[18]), drafted(model, other, TOKENS[18]))
    assert model.export(restored) == image
    specs = [ProposeSpec(lane, pending, 3, Sampling()) for lane, pending in ((serial, 7), (other, 8), (twin, 7))]
    alone = [model.propose([spec])[0] for spec in specs]
    together = model.parts.head.propose([(model._heads[spec.lane], spec) for spec in specs])
    for mine, theirs in zip(alone, together, strict=True):
        assert isinstance(mine, Lattice)
        alike(mine, theirs)
    for lane in (serial, other, held, twin, restored):
        model.close(lane)


def check_drafts_are_queued_behind_launches(oracle: ReferenceDrafter, model: CudaModel) -> None:
    follow_launches(model, 3)


def check_matrices_are_rounded_to_few_bits(oracle: ReferenceDrafter, model: CudaModel) -> None:
    values = torch.randn(5, 192, generator=torch.Generator().manual_seed(2))
    for bits in (2, 3, 4, 5, 6, 8):
        words, scales, biases = narrowed(values, bits)
        assert words.shape == (5, 192 * bits // 32)
        stream = np.unpackbits(words.astype("<u4").view(np.uint8), axis=1, bitorder="little")
        codes = stream.reshape(5, 192, bits) @ (1 << np.arange(bits))
        back = codes.reshape(5, 3, 64) * scales[..., None] + biases[..., None]
        gap = np.abs(back.reshape(5, 192) - values.numpy())
        assert (gap.reshape(5, 3, 64).max(2) <= 0.51 * scales + 0.02).all()


def oracle_of(target: TinyCuda, folder: Path) -> ReferenceDrafter:
    return ReferenceDrafter.load(folder, dflash_plan(tiny_drafter()), ReferenceModel.load(target.folder, target.plan))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        made = tiny_cuda(Path(place), "nemotron_h")
        config = tiny_drafter()
        facts = FolderReader().facts(write_drafter(Path(place) / "drafter", config, 6))
        plan = dflash_plan(config)
        reader = WeightReader(bind(plan.tensors, facts.tensors, None), facts, silent)
        loaded = made.model(streams=9, head=block_head(plan, reader, "drafter", 0))
        oracle = oracle_of(made, facts.folder)
        for name, check in list(vars().items()):
            if name.startswith("check_"):
                check(oracle, loaded)
                print(name, flush=True)
