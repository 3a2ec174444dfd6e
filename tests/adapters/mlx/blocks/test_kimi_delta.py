"""Kimi delta attention's decay, with its lower bound and without, and a state that forgets all it is told to forget."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorfold.adapters.mlx.blocks.gated_delta import delta_step
from tensorfold.domain.windows import chain
from tensorfold.kernels.reference.delta_rule import delta_step as reference_step
from tests.adapters.mlx.blocks.one_op import DEVICES, OneOp, some_tokens
from tests.adapters.mlx.tiny_families import TinyFamily

PATH = "layers.0.delta"


@pytest.mark.parametrize("device", sorted(DEVICES))
@pytest.mark.parametrize("bound", (-5.0, -0.25, None))
def test_the_decay_is_the_reference_s_with_a_bound_and_without(
    glm: TinyFamily, device: str, bound: float | None
) -> None:
    one = OneOp.of(glm, DEVICES[device](), PATH, lower_bound=bound)
    rows, tokens = 3.0 * one.rows(1, 24), some_tokens(1, 24)
    expected = one.expected(rows, tokens)
    made = one.run(one.open(), rows, chain(tokens[0], tokens[1:]))
    assert np.abs(made - expected).max() <= 2e-5 * np.abs(expected).max()
    one.ops.close()


def test_a_bound_is_no_matter_of_rounding(glm: TinyFamily) -> None:
    made: list[Any] = []
    for bound in (-5.0, None):
        one = OneOp.of(glm, DEVICES["cpu"](), PATH, lower_bound=bound)
        rows, tokens = one.rows(1, 24), some_tokens(1, 24)
        made.append(one.run(one.open(), rows, chain(tokens[0], tokens[1:])))
        one.ops.close()
    assert np.abs(made[0] - made[1]).max() > 1e-2


def test_a_decay_for_every_channel_forgets_that_channel_alone() -> None:
    generator = np.random.default_rng(2)
    state = generator.standard_normal((2, 4, 3)).astype(np.float32)
    q, k = generator.standard_normal((2, 2, 4)).astype(np.float32)
    v = generator.standard_normal((2, 3)).astype(np.float32)
    decay = np.ones((2, 4), np.float32)
    decay[:, 1] = 0.0
    beta = np.zeros(2, np.float32)
    after, out = delta_step(state, (q, k, v, decay, beta))
    assert not after[:, 1].any() and np.array_equal(after[:, [0, 2, 3]], state[:, [0, 2, 3]])
    logs = np.where(decay > 0, 0.0, -1e4)
    wide = [part.astype(np.float64) for part in (state, q, k, v)]
    expected, _ = reference_step(wide[0], wide[1], wide[2], wide[3], logs, beta.astype(np.float64))
    assert np.abs(out - expected).max() <= 1e-6


def test_the_three_convolutions_share_one_tail_in_the_order_of_queries_keys_and_values(glm: TinyFamily) -> None:
    one = OneOp.of(glm, DEVICES["cpu"](), PATH)
    rows, tokens = one.rows(3, 5), some_tokens(3, 5)
    state = one.open()
    one.absorb(state, rows, tokens)
    tail = np.frombuffer(state.export()[0], np.float32).reshape(one.op.conv.kernel - 1, 3, -1)
    for index, name in enumerate("qkv"):
        raw = rows[2:].astype(np.float64) @ one.slots[name].T
        assert np.abs(tail[:, index] - raw).max() <= 1e-5
    one.ops.close()
