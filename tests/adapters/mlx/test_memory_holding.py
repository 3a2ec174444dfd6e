"""What lanes really hold is never more than their profile says, for every listed family, its head and a drafter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.adapters.mlx.memory import MlxMemory, allocating, held, machine
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.rows_cpu import CpuRows
from tensorfold.adapters.mlx.rows_library import LibraryRows
from tensorfold.adapters.mlx.runtime import Runtime, current
from tensorfold.application.loading import describe
from tensorfold.application.ports.backend import ModelCheckpoint
from tensorfold.application.settings import DraftSettings
from tensorfold.domain.families.binding import resolve
from tensorfold.domain.families.state import state_spec
from tensorfold.domain.memory.mlx_holding import PASS, footprint
from tests.adapters.mlx.models import SLIDING, SMALL
from tests.adapters.mlx.tiny_families import TinyFamily, tiny_family, with_drafter

FAMILIES = ("qwen3_5", "nemotron_h", "gemma4", "glm5_next", "qwen4_exp")
LENGTHS = (1, 60, 257, 300)
CAPACITY = 700


def taken(one: TinyFamily, ops: RowOps[Any]) -> list[int]:
    """Bytes of a lane's buffers after each of LENGTHS, its head's among them."""
    forward = one.forward(ops)
    lane, held_at = forward.open(CAPACITY, drafts=True), []
    for stop in LENGTHS:
        forward.absorb(lane, np.arange(lane.length, stop) % one.plan.head.vocabulary, PASS)
        head = 0 if lane.head is None else lane.head.held_bytes()
        held_at.append(head + sum(layer.held_bytes() for layer in lane.layers))
    return held_at


def told(one: TinyFamily, *, cpu: bool) -> list[int]:
    """Bytes that the profile says."""
    drafter = None if one.drafter is None else one.drafter.plan
    head = drafter is None and one.plan.mtp is not None
    state = footprint(one.plan, 0, cpu=cpu, head=head, drafter=drafter).state
    return [state.held(tokens, CAPACITY) for tokens in LENGTHS]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.slow
def test_no_familys_lane_holds_more_than_its_profile(family: str, tmp_path: Path) -> None:
    one = tiny_family(tmp_path, family)
    for ops, cpu in ((CpuRows(), True), (LibraryRows(one.plan.activation), False)):
        took, said = taken(one, ops), told(one, cpu=cpu)
        assert all(a <= b for a, b in zip(took, said, strict=True)), (took, said)
        # Half of what is fixed is held only while a pass runs, and a head's copy only while it drafts.
        assert not cpu or 3 * took[-1] >= said[-1], (took, said)


@pytest.mark.slow
def test_no_lane_with_a_drafter_holds_more_than_its_profile(tmp_path: Path) -> None:
    one, _ = with_drafter(tiny_family(tmp_path, "qwen3_5"), tmp_path)
    took, said = taken(one, CpuRows()), told(one, cpu=True)
    assert all(a <= b for a, b in zip(took, said, strict=True)), (took, said)


def test_weights_count_in_float32_where_a_cpu_unpacks_them_and_as_stored_where_it_does_not(tmp_path: Path) -> None:
    facts = FolderReader().facts(SMALL.write(tmp_path / "checkpoint"))
    made = describe(facts, "mlx", None)
    checkpoint = ModelCheckpoint(made.plan, made.bound, facts)
    values = sum(int(np.prod(bound.slot.shape)) for bound in made.bound.values())
    here = Runtime("mlx", "cpu", True, 1 << 40)
    few = Runtime("mlx", "cpu", True, 8 * values - 2)
    gpu = Runtime("mlx", "gpu", False, 1 << 40)
    sizes = [held(checkpoint, runtime).weights for runtime in (here, few, gpu)]
    item = {"bfloat16": 2, "float16": 2, "float32": 4}[made.plan.activation]
    assert sizes == [4 * values, 4 * values, item * values]


def test_a_head_that_is_left_out_takes_nothing(tmp_path: Path) -> None:
    one = tiny_family(tmp_path, "nemotron_h")
    facts = FolderReader().facts(one.folder)
    bound = resolve(one.plan, facts.tensors, None)
    runtime = current()
    whole = held(ModelCheckpoint(one.plan, bound, facts), runtime)
    bare = held(ModelCheckpoint(one.plan, bound, facts, DraftSettings(mtp_drafts=0)), runtime)
    assert one.plan.mtp is not None and bare.weights < whole.weights
    assert bare.state.held(64, 64) < whole.state.held(64, 64)
    assert any(entry.path.startswith("mtp.") for entry in state_spec(one.plan))


def test_a_windows_buffer_stays_within_its_profile_however_long_the_reply(tmp_path: Path) -> None:
    facts = FolderReader().facts(SLIDING.write(tmp_path / "checkpoint"))
    made = describe(facts, "mlx", None)
    state = held(ModelCheckpoint(made.plan, made.bound, facts), current()).state
    assert state.held(2000, 2000) - state.held(1000, 2000) <= state.token_bytes * 1100


@pytest.mark.parametrize(
    "words",
    [
        "[malloc] Unable to allocate 64 bytes.",
        "[metal::malloc] Resource limit (499000) exceeded.",
        "[METAL] Command buffer execution failed: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackError)",
    ],
)
def test_mlxs_words_for_memory_that_cannot_be_had_are_a_memory_error(words: str) -> None:
    @allocating
    def call(message: str) -> None:
        raise RuntimeError(message)

    with pytest.raises(MemoryError, match=r"alloc|Memory"):
        call(words)
    with pytest.raises(RuntimeError, match="shapes"):
        call("shapes do not fit")


def test_the_machine_is_told_by_its_ram_and_a_cpus_allocator_tells_nothing() -> None:
    assert machine(cpu=True).ram == current().memory and machine(cpu=True).working_set is None
    cpu = MlxMemory(cpu=True)
    assert (cpu.active(), cpu.cached(), cpu.peak()) == (None, None, None)
    assert cpu.limit(1 << 40) is False
