"""What callers may rely on beside the bits of rows: two forms, choices by row count, lists of keys, windows."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.kernels.metal import affine, dense, experts, norms, router, selection, tensor_units
from tensorfold.kernels.metal.attention import attend
from tensorfold.kernels.metal.slices import slice_count
from tensorfold.kernels.metal.windows import window
from tests.emulator.kernel import emulated
from tests.emulator.orders import Order
from tests.kernels.metal.case import bits, values
from tests.kernels.metal.products import codes, device, random


def test_both_forms_share_their_bits_where_products_add_in_order_and_only_there() -> None:
    x, (matrix, _) = device(random(1, 9, 256), mx.bfloat16), codes(2, (24, 256), 4, 64, mx.bfloat16)
    weights = device(random(3, 24, 150), mx.bfloat16)
    rows = device(random(4, 9, 150), mx.bfloat16)
    for chain, agree in (("ascending", True), ("descending", False), ("pairwise", False)):
        with emulated(Order(chain=chain)):  # type: ignore[arg-type]
            assert affine.forms_agree(x, *matrix, 4, 64) == agree
            assert dense.dense_forms_agree(rows, weights) == agree


def test_the_matrix_form_serves_from_the_row_count_it_was_allowed_for() -> None:
    x, (matrix, _) = device(random(1, 9, 64)), codes(2, (8, 64), 4, 32, mx.float32)
    with emulated(Order(chain="pairwise")):  # the forms differ, so bits tell which one ran
        scalar, made = affine.affine_scalar(x, *matrix, 4, 32), affine.affine_matrix(x, *matrix, 4, 32)
        assert not np.array_equal(bits(scalar), bits(made))
        for allowed, expected in ((0, scalar), (9, made), (8, made), (10, scalar)):
            assert np.array_equal(bits(affine.affine_matmul(x, *matrix, 4, 32, matrix_from=allowed)), bits(expected))


def test_sums_are_cut_by_shape_into_slices_of_nearly_equal_length() -> None:
    known = {1: 1, 3: 2, 8: 8, 29: 16, 33: 8, 42: 16, 64: 32, 80: 16, 272: 32}
    assert {pieces: slice_count(pieces) for pieces in known} == known


def test_keys_read_from_a_list_of_all_positions_give_the_bits_of_plain_attention() -> None:
    queries, chain = device(random(1, 3, 2, 64)), window([-1, 0, 1])
    keys, cached = (device(random(seed, 70, 1, 64)) for seed in (2, 3))
    own_keys, own_values = (device(random(seed, 3, 1, 64)) for seed in (4, 5))
    everything = mx.array(np.array([[*range(71 + depth), *[-1] * (2 - depth)] for depth in range(3)], np.int32))
    counts = mx.array([71, 72, 73], mx.int32)
    with emulated():
        plain = attend(queries, keys, cached, own_keys, own_values, chain, 70, 0.125)
        listed = attend(queries, keys, cached, own_keys, own_values, chain, 70, 0.125, chosen=everything, counts=counts)
    assert np.array_equal(bits(plain), bits(listed))


def test_a_longer_neighbour_leaves_a_row_alone() -> None:
    # Row 1 of the second window reaches a second chunk; row 0 does not.
    queries = device(random(1, 2, 1, 64))
    keys, cached = (device(random(seed, 511, 1, 64)) for seed in (2, 3))
    own_keys, own_values = (device(random(seed, 2, 1, 64)) for seed in (4, 5))
    with emulated():
        alone = attend(queries[:1], keys, cached, own_keys[:1], own_values[:1], window([-1]), 511, 0.125)
        together = attend(queries, keys, cached, own_keys, own_values, window([-1, 0]), 511, 0.125)
    assert np.array_equal(bits(alone)[0], bits(together)[0])


def test_a_window_refuses_a_parent_that_does_not_stand_before_its_row() -> None:
    for parents in ([0], [-1, 1], [-1, -2]):
        with pytest.raises(ValueError, match="a parent is an earlier row or -1"):
            window(parents)
    tree = window([-1, 0, 0, 2])
    assert np.array(tree.ancestors)[:4].tolist() == [[0, -1, -1], [0, 1, -1], [0, 2, -1], [0, 2, 3]]
    assert np.array(tree.depths)[:4].tolist() == [0, 1, 1, 2] and tree.parents.size >= 8


def test_experts_that_nobody_chose_are_never_read() -> None:
    weights = device(random(1, 4, 8, 32))
    weights[2] = float("nan")
    with emulated():
        order = experts.expert_order(mx.array([[3, 1], [1, 0]], mx.int32))
        made = experts.expert_dense(device(random(2, 2, 32)), weights, order)
    assert np.isfinite(values(made)).all()
    assert np.array(order.members).tolist() == [3, 1, 2, 0] and np.array(order.sizes).tolist() == [1, 2, 0, 1]


def test_logits_that_are_not_numbers_still_choose_experts_that_exist() -> None:
    logits = np.zeros((2, 16), np.float32)
    logits[0] = np.nan
    logits[1, 3:] = np.inf
    with emulated():
        chosen, _ = router.route(mx.array(logits), 4, "softmax")
    assert ((np.array(chosen) >= 0) & (np.array(chosen) < 16)).all()


def test_zeros_of_both_signs_are_equals_and_the_lower_index_is_kept() -> None:
    scores = mx.array([[0.0, -0.0, -1.0, 0.0, -0.0, float("nan"), float("-inf"), 2.0]])
    with emulated():
        indices, counts = selection.best_of_row(scores, 3)
        short, fewer = selection.best_of_row(scores, 5, mx.array([2], mx.int32))
    assert np.array(indices).tolist() == [[0, 1, 7]] and np.array(counts).tolist() == [3]
    assert np.array(short).tolist() == [[0, 1, -1, -1, -1]] and np.array(fewer).tolist() == [2]


def test_a_norms_residual_is_the_sum_that_is_kept() -> None:
    x, other = (device(random(s, 2, 64), mx.bfloat16) for s in (1, 2))
    with emulated():
        h, y = norms.add_rms_norm(x, other, None, 1e-6)
        again = norms.rms_norm(h, None, 1e-6)
    assert np.array_equal(bits(h), bits(x + other)) and np.array_equal(bits(y), bits(again))


def test_generations_with_tensor_units_are_told_by_their_names() -> None:
    assert [tensor_units.generation(name) for name in ("applegpu_g17s", "applegpu_g16p", "x86_64", "")] == [
        17,
        16,
        0,
        0,
    ]
    assert not tensor_units.present()
