"""Delta rules and Mamba-2 against what they must do by construction and against their closed sums."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.reference.activations import sigmoid, silu, softplus
from tensorfold.kernels.reference.delta_rule import delta_step
from tensorfold.kernels.reference.gated_delta import gated_delta_step, gated_norm, head_decay
from tensorfold.kernels.reference.kimi_delta import channel_decay, kimi_delta_step
from tensorfold.kernels.reference.mamba2 import gate_then_norm, mamba2_step, step_sizes
from tensorfold.kernels.reference.norm import rms_norm, unit_length
from tests.kernels.reference.rows import Floats, normal

STATE = normal(1, 2, 4, 3)
KEY, QUERY, VALUE = unit_length(normal(2, 2, 4), 0.0), normal(3, 2, 4), normal(4, 2, 3)


def test_a_full_correction_makes_the_state_answer_a_key_with_its_value() -> None:
    out, after = delta_step(STATE, KEY, KEY, VALUE, np.array([-0.5, -2.0]), np.ones(2))
    assert np.abs(out - VALUE).max() < 1e-12
    assert np.abs(np.einsum("hkv,hk->hv", after, KEY) - VALUE).max() < 1e-12


def test_without_a_correction_the_state_only_fades() -> None:
    log = np.array([-0.5, -2.0])
    out, after = delta_step(STATE, QUERY, KEY, VALUE, log, np.zeros(2))
    assert np.allclose(after, STATE * np.exp(log)[:, None, None])
    assert np.allclose(out, np.einsum("hkv,hk->hv", after, QUERY))


def test_a_decay_for_each_channel_fades_rows_of_keys() -> None:
    log = -np.abs(normal(5, 2, 4))
    _, after = delta_step(STATE, QUERY, KEY, VALUE, log, np.zeros(2))
    assert np.allclose(after, STATE * np.exp(log)[:, :, None])
    alike, _ = delta_step(STATE, QUERY, KEY, VALUE, np.full((2, 4), -0.7), np.full(2, 0.3))
    same, _ = delta_step(STATE, QUERY, KEY, VALUE, np.full(2, -0.7), np.full(2, 0.3))
    assert np.allclose(alike, same)


def delta_inputs() -> tuple[Floats, Floats, Floats, Floats]:
    """A state of 6 value heads over 2 key heads, and the convolved row with its gates."""
    return normal(6, 6, 4, 3), normal(7, 2 * 8 + 18), normal(8, 6), normal(9, 6)


def test_value_heads_share_key_heads_in_runs() -> None:
    state, mixed, a, b = delta_inputs()
    rates = normal(10, 6), normal(11, 6)
    out, _ = gated_delta_step(state, mixed, a, b, *rates, 2, 1e-6)
    other = mixed.copy()
    other[12:16] += 1.0  # the second key head's key
    changed, _ = gated_delta_step(state, other, a, b, *rates, 2, 1e-6)
    assert np.flatnonzero(np.abs(changed - out).max(axis=1) > 1e-9).tolist() == [3, 4, 5]


def test_a_gated_delta_step_norms_queries_and_keys_and_scales_queries() -> None:
    state, mixed, a, b = delta_inputs()
    log, bias = normal(10, 6), normal(11, 6)
    out, after = gated_delta_step(state, mixed, a, b, log, bias, 2, 0.25)
    head, query, key, value = 4, mixed[4:8], mixed[12:16], mixed[16 + 12 : 16 + 15]
    key = key / np.sqrt(key @ key + 0.25)
    query = query / np.sqrt(query @ query + 0.25) * 0.5
    faded = state[head] * np.exp(-np.exp(log[head]) * softplus(a + bias)[head])
    expected = faded + np.outer(key, sigmoid(b)[head] * (value - key @ faded))
    assert np.allclose(after[head], expected, atol=1e-12) and np.allclose(out[head], query @ expected, atol=1e-12)
    assert (head_decay(a, log, bias) < 0).all()


def test_the_delta_nets_norm_comes_before_its_gate() -> None:
    row, z, weight = normal(12, 2, 5), normal(13, 2, 5), normal(14, 5)
    assert np.allclose(gated_norm(row, z, weight, 1e-3, "silu"), rms_norm(row, weight, 1e-3) * silu(z))
    assert np.allclose(gated_norm(row, z, weight, 1e-3, "sigmoid"), rms_norm(row, weight, 1e-3) * sigmoid(z))


def test_a_bounded_decay_lies_between_its_bound_and_zero() -> None:
    a, bias, log = normal(15, 2, 4), normal(16, 2, 4), normal(17, 2)
    far = channel_decay(40 * a, log, bias, -5.0)
    assert (far < 0).all() and (far >= -5.0).all()
    bounded = channel_decay(a, log, bias, -5.0)
    assert np.allclose(bounded, -5.0 / (1 + np.exp(-np.exp(log)[:, None] * (a + bias))))
    assert np.allclose(channel_decay(a, log, bias, None), -np.exp(log)[:, None] * softplus(a + bias))


def test_a_kimi_step_is_the_delta_rule_on_unit_queries_and_keys() -> None:
    decay = -np.abs(normal(18, 2, 4))
    out, after = kimi_delta_step(STATE, 3 * QUERY, 5 * KEY, VALUE, decay, normal(19, 2), 0.0)
    expected = delta_step(STATE, unit_length(QUERY, 0.0) / 2, KEY, VALUE, decay, sigmoid(normal(19, 2)))
    assert np.allclose(out, expected[0]) and np.allclose(after, expected[1])


def test_mamba_rows_equal_their_closed_sum() -> None:
    heads, width, size, groups, count = 4, 3, 5, 2, 6
    rows, steps = normal(20, count, heads * width + 2 * groups * size), np.abs(normal(21, count, heads))
    log, skip = normal(22, heads) * 0.3, normal(23, heads)
    state = np.zeros((heads, width, size))
    made = []
    for row, step in zip(rows, steps, strict=True):
        out, state = mamba2_step(state, row, step, log, skip, groups)
        made.append(out)
    x, b, c = np.split(rows, [heads * width, heads * width + groups * size], axis=1)
    x, b, c = x.reshape(count, heads, width), b.reshape(count, groups, size), c.reshape(count, groups, size)
    for head in range(heads):
        group = head // 2
        expected = skip[head] * x[-1, head]
        for s in range(count):
            faded = np.exp(-np.exp(log[head]) * steps[s + 1 :, head].sum())
            expected = expected + faded * steps[s, head] * (c[-1, group] @ b[s, group]) * x[s, head]
        assert np.abs(made[-1][head] - expected).max() < 1e-12


def test_steps_are_cut_only_when_there_is_a_limit() -> None:
    dt = np.array([-10.0, 0.0, 10.0])
    assert np.allclose(step_sizes(dt, np.ones(3), None), softplus(dt + 1))
    assert step_sizes(dt, np.ones(3), (0.1, 2.0)).tolist() == [0.1, softplus(np.ones(1))[0], 2.0]


def test_mambas_gate_comes_before_its_norm() -> None:
    row, z, weight = normal(24, 8), normal(25, 8), normal(26, 8)
    assert np.allclose(gate_then_norm(row, z, weight, 1e-3, 2), rms_norm(row * silu(z), weight, 1e-3, 2))
