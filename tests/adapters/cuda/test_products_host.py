"""The products that blocks are tested with: a row alone equals the row in company, and matrices lie side by side."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tensorfold.domain.families.ops import FeedForward, MixtureOfExperts, Router, SharedExpert  # noqa: E402
from tests.adapters.cuda.host_products import HeldWeights, HostProducts  # noqa: E402


def drawn(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def test_rows_beside_others_are_the_rows_alone_and_matrices_lie_side_by_side() -> None:
    held = HeldWeights({"a": drawn(1, 5, 8), "b": drawn(2, 3, 8)}, {"b": drawn(3, 3)})
    linear = HostProducts(held).linear("a", "b")
    x = torch.from_numpy(drawn(4, 6, 8))
    whole = linear.prompt(x)
    assert linear.outputs == (5, 3)
    for row in range(6):
        assert torch.equal(linear.decode(x[row : row + 1])[0], whole[row])
    expected = np.concatenate([drawn(1, 5, 8), drawn(2, 3, 8)]) @ drawn(4, 6, 8).T
    expected[5:] += drawn(3, 3)[:, None]
    assert np.allclose(whole.numpy(), expected.T, atol=1e-5)


def test_a_shared_expert_two_experts_wide_is_two_more_entries() -> None:
    plan = MixtureOfExperts(Router(4, 2, "sigmoid"), FeedForward(6), SharedExpert(FeedForward(12)))
    up, down = drawn(1, 4, 6, 8), drawn(2, 4, 8, 6)
    shared_up, shared_down = drawn(3, 12, 8), drawn(4, 8, 12)
    named = {"experts.up": up, "experts.down": down, "shared.up": shared_up, "shared.down": shared_down}
    stack = HostProducts(HeldWeights({f"m.{k}": v for k, v in named.items()})).experts(plan, "m")
    x = drawn(5, 3, 8)
    ids = torch.tensor([[1, 3, 4, 5]] * 3, dtype=torch.int32)
    weights = torch.tensor([[0.5, 0.25, 1.0, 1.0]] * 3)
    made = stack.decode(torch.from_numpy(x), (ids, weights, None)).numpy()

    def expert(u: np.ndarray, d: np.ndarray) -> np.ndarray:
        return np.maximum(x @ u.T, 0) ** 2 @ d.T  # type: ignore[no-any-return]

    exact = 0.5 * expert(up[1], down[1]) + 0.25 * expert(up[3], down[3]) + expert(shared_up, shared_down)
    assert stack.folded == 2
    assert np.allclose(made, exact, rtol=1e-4, atol=1e-3)
