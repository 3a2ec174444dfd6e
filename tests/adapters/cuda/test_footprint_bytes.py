"""The bytes that are reckoned for weights, launches, rounds and chunks are those that the blocks allocate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the environment of the CUDA tests has it")
pytest.importorskip("triton", reason="Triton is not installed: the environment of the CUDA tests has it")

from tensorfold.adapters.cuda.packed import packed  # noqa: E402
from tensorfold.adapters.cuda.passes import counts  # noqa: E402
from tensorfold.application.stored_weights import Codes, Stored, Values  # noqa: E402
from tensorfold.domain.memory.cuda_footprint import cuda_footprint  # noqa: E402
from tensorfold.domain.memory.cuda_holding import room  # noqa: E402
from tensorfold.domain.memory.cuda_work import HEAD, LAUNCH_ROWS, MOST_ROWS, partitions, scratch_of  # noqa: E402
from tensorfold.kernels.triton.attention import form_of  # noqa: E402
from tests.adapters.cuda.weightless import Meter, built, silence  # noqa: E402
from tests.synthetic.true_headers import true_bound  # noqa: E402

MIB = 1 << 20
ROWS = 1024


@pytest.mark.parametrize(("name", "layers"), [("llama", 2), ("nemotron", 6), ("qwen", 4)])
def test_every_part_of_an_estimate_is_what_is_allocated(
    name: str, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    silence(monkeypatch)
    pools = room(1, 4096, kept=2)
    with Meter() as meter, torch.no_grad():
        model, parts = built(name, layers, pools)
        bound = true_bound(model.plan)
        found = cuda_footprint(model.plan, bound, head=model.drafter is None, drafter=model.drafter)
        drafts = model.drafter is None and model.plan.mtp is not None
        scratch = scratch_of(model.plan, bound, drafts=drafts, drafter=model.drafter)
        assert found.pools is not None
        pages = (pools.pages - 1) * found.pools.page
        held = meter.held
        assert found.weights + found.pools.fixed(pools) + pages == pytest.approx(held, rel=0.01)

        rounds = parts.passes(MOST_ROWS)
        first, kept = meter.most(lambda: rounds.run((), [None] * MOST_ROWS, parts.book))
        # A first run keeps its draws while the graph's are made.
        logits = MOST_ROWS * model.plan.head.vocabulary * 4
        assert first - kept - logits <= scratch.rounds
        for rows in counts(pools):
            parts.passes(rows).run((), [None] * rows, parts.book)
        assert sum(counts(pools)) == LAUNCH_ROWS
        assert scratch.results == pytest.approx(meter.held - held, rel=0.06)

        entry = parts.open(ROWS + 512)
        _, unpacked = meter.most(lambda: parts.prompt(entry, np.zeros(64, np.int64)))
        taps = 64 * (len(parts.taps) * model.plan.width * 2)
        assert scratch.unpacked == pytest.approx(unpacked - taps, rel=0.03)
        chunk, _ = meter.most(lambda: parts.prompt(entry, np.zeros(ROWS, np.int64)))
        # What is tapped behind the last layer is not there yet while that layer runs.
        behind = model.plan.width * 2 * (len(model.plan.layers) in parts.taps)
        assert (scratch.row - behind) * ROWS == pytest.approx(chunk, rel=0.01)
        assert _of_the_head(meter, parts, entry) <= scratch.head


@pytest.mark.parametrize("bits", [4, 6, 16])
def test_packing_takes_twice_the_stored_bytes_and_the_scratch_that_is_stated(bits: int) -> None:
    outputs, inputs = 17408, 5120
    slot: Stored = Values(np.empty((outputs, inputs), np.uint16), "BF16")
    if bits < 16:
        words, scales = (
            np.empty((outputs, inputs * bits // 32), np.uint32),
            np.empty((outputs, inputs // 64), np.float32),
        )
        slot = Codes(words, scales, scales, bits, 64, "BF16")
    most = []
    for gated in (False, True):
        with Meter() as meter:
            peak, left = meter.most(lambda gated=gated: packed("a", [slot] * 2, [(outputs, inputs)] * 2, "meta", gated))
        assert left == 2 * outputs * inputs * bits // 8 + (0 if bits == 16 else 2 * outputs * inputs // 64 * 4)
        most.append(peak - left)
    assert most[0] == most[1] <= 2 * left + 200 * 10**6


def _of_the_head(meter: Any, parts: Any, entry: Any) -> int:
    """Most bytes that a head takes for rows of a prompt and for its first drafts, without those of tapped rows."""
    from tensorfold.application.ports.target_model import ProposeSpec
    from tensorfold.domain.sampling import Sampling

    if parts.head is None:
        return 0
    lane = parts.head.open(entry)
    taps = parts.prompt(entry, np.zeros(64, np.int64))

    def drafts() -> None:
        lane.absorb(tuple(range(64)), taps)
        # What was drafted has no bytes to read.
        with pytest.raises((NotImplementedError, RuntimeError, TypeError), match="meta"):
            parts.head.propose([(lane, ProposeSpec(1, 5, parts.head.limits.most, Sampling()))])

    most, _ = meter.most(drafts)
    assert most > HEAD // 8
    return int(most)


@pytest.mark.parametrize("groups", [1, 2, 4, 8, 16, 64, 128, 200])
def test_a_decoded_rows_keys_are_cut_into_as_many_parts_as_the_kernel_cuts(groups: int) -> None:
    assert partitions(groups) == form_of(groups, groups, 128).parts
