"""The scratch of a model on a card, part by part; that it is what blocks allocate is tested beside the blocks."""

from __future__ import annotations

from dataclasses import asdict, replace

from tensorfold.domain.families import nemotron_h, qwen3_5
from tensorfold.domain.families.ops import FeedForward, MixtureOfExperts, Router, SharedExpert, SwiGLU
from tensorfold.domain.memory.cuda_work import (
    HEAD,
    HOST,
    HOST_LAYER,
    LAUNCH_ROWS,
    MIB,
    chunk_row,
    host_growth,
    round_row,
    scratch_of,
)
from tests.domain.memory.cuda_models import bound_of, nemotron, qwen

EXPERTS = MixtureOfExperts(Router(128, 6, "sigmoid"), FeedForward(1856, "relu2"))


def test_parts_add_up_to_the_work_of_a_pass() -> None:
    plan = nemotron_h.plan(nemotron_h.CONFIG)
    scratch = scratch_of(plan, bound_of(plan), drafts=True)
    assert nemotron()[1].work == scratch.work
    assert scratch.work.bytes_for(10, 10_000) == sum(asdict(scratch).values()) + 9 * scratch.row
    # Half a GiB of experts is unpacked at a time, and one row less than a gigabyte's worth of logits is kept.
    assert scratch.unpacked == 512 * MIB
    assert 4 * LAUNCH_ROWS * plan.head.vocabulary < scratch.results < 5 * LAUNCH_ROWS * plan.head.vocabulary


def test_a_head_takes_nothing_where_there_is_none_and_a_drafter_unpacks_matrices_of_its_own() -> None:
    plan = nemotron_h.plan(nemotron_h.CONFIG)
    bound = bound_of(plan)
    assert scratch_of(plan, bound).head == 0 < HEAD < scratch_of(plan, bound, drafts=True).head
    # Two matrices of 17,408 x 5,120 in bf16.
    assert qwen()[1].work.fixed > scratch_of(qwen3_5.plan(qwen3_5.CONFIG), {}).work.fixed + 2 * 2 * 17_408 * 5_120


def test_the_machine_holds_the_slots_of_one_product_as_they_are_read() -> None:
    plan = qwen3_5.plan(qwen3_5.CONFIG)
    bound = bound_of(plan)
    # Words of 4 bits, and a scale and a bias of four bytes for every 64.
    table = 248_320 * 5_120 // 2 + 248_320 * 80 * 8
    assert host_growth(plan, {"embedding": bound["embedding"]}) == HOST + table
    # Less than what captured launches leave of 64 layers.
    assert 64 * HOST_LAYER > 2 * (17_408 * 5_120 // 2 + 17_408 * 80 * 8)
    assert host_growth(plan, {"layers.0.mlp.gate": bound["layers.0.mlp.gate"]}) == HOST + 64 * HOST_LAYER
    assert qwen()[1].host == host_growth(plan, bound)


def test_a_row_of_a_gated_mlp_holds_both_halves_and_what_they_make() -> None:
    assert chunk_row(SwiGLU(17_408), 5_120) == 3 * 2 * 17_408
    assert chunk_row(FeedForward(17_408), 5_120) == 2 * 2 * 17_408
    # Behind a narrow layer the result is the larger.
    assert chunk_row(SwiGLU(1_024), 5_120) == 2 * 1_024 + 2 * 5_120


def test_a_row_of_experts_is_there_once_for_each_that_it_passes() -> None:
    alone = chunk_row(EXPERTS, 2_688)
    folded = chunk_row(replace(EXPERTS, shared=SharedExpert(FeedForward(2 * 1_856, "relu2"))), 2_688)
    apart = chunk_row(replace(EXPERTS, shared=SharedExpert(FeedForward(1_000, "relu2"))), 2_688)
    assert (folded - alone) * 6 == (alone - 4 * 128 - 2 * 2_688) * 2
    assert apart - alone == 4 * 2_688 + 2 * 2 * 1_000
    assert round_row(EXPERTS, 2_688) > 6 * 4 * 2_688


def test_a_decoded_row_of_attention_has_what_each_partition_of_its_keys_gave() -> None:
    plan = qwen3_5.plan(qwen3_5.CONFIG)
    op = plan.layers[3][0].op
    # As the recipe of the kernels has it: 24 heads of 256 in 32 parts, and two numbers beside each.
    assert round_row(op, 5_120) - chunk_row(op, 5_120) == 792_576  # type: ignore[arg-type]
