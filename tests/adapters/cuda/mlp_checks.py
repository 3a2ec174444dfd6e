"""MLPs, experts, the embedding and the head on the CPU in Triton's interpreter: near float64, rows alone as in company.

`python -m tests.adapters.cuda.mlp_checks` with TRITON_INTERPRET=1 runs every check.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]
from numpy.typing import NDArray

from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.adapters.cuda.blocks.embedding import EmbeddingBlock
from tensorfold.adapters.cuda.blocks.experts import ExpertsBlock
from tensorfold.adapters.cuda.blocks.feed_forward import FeedForwardBlock
from tensorfold.adapters.cuda.blocks.head import HeadBlock
from tensorfold.adapters.cuda.blocks.swiglu import SwigluBlock
from tensorfold.adapters.cuda.products import Products
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.ops import FeedForward, MixtureOfExperts, Norm, Router, SharedExpert, SwiGLU
from tensorfold.domain.families.plans import Embedding, Head
from tensorfold.domain.families.weights import op_weights
from tensorfold.domain.memory.cuda_holding import room
from tensorfold.kernels.cuda.row_tilings import Matrix
from tensorfold.kernels.reference.router import choose_experts
from tests.adapters.cuda.host_launches import HostLaunches
from tests.adapters.cuda.host_products import HeldWeights, HostProducts

Floats = NDArray[np.float64]
Tensor = Any
WIDTH, EXPERTS = 128, 6


def random_weights(op: Any, seed: int = 1) -> HeldWeights:
    """Random weights of an op below `m`, cut to what bf16 holds."""
    chance = np.random.default_rng(seed)

    def drawn(shape: tuple[int, ...]) -> NDArray[np.float32]:
        values = (chance.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)
        cut: NDArray[np.float32] = (values.view(np.uint32) & 0xFFFF0000).view(np.float32)
        return cut

    return HeldWeights({f"m.{name}": drawn(weight.shape) for name, weight in op_weights(op, WIDTH)})


def assembled(weights: HeldWeights, kind: str) -> Assembly:
    """An assembly on the CPU: with float32 products, or with packed ones whose launches stand in for a card's."""
    products: Any = HostProducts(weights) if kind == "host" else Products(weights, HostLaunches(), "cpu")
    return Assembly(weights, products, room(1, 512), torch.device("cpu"), torch.float32, "float32")


def rows(seed: int, count: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((count, WIDTH), np.float32))


def near(result: Tensor, true: Floats) -> None:
    assert result.shape == true.shape
    assert np.linalg.norm(result.double().numpy() - true) / np.linalg.norm(true) < 1e-5


def mlp(weights: HeldWeights, root: str, x: Floats, at: int | None = None) -> Floats:
    """The MLP below `root` of rows, or one of its experts."""

    def matrix(name: str) -> Floats:
        whole = weights.values[f"{root}.{name}"].astype(np.float64)
        return whole if at is None else whole[at]

    up = x @ matrix("up").T
    hidden = np.maximum(up, 0) ** 2
    if f"{root}.gate" in weights.values:
        gate = x @ matrix("gate").T
        hidden = gate / (1 + np.exp(-gate)) * up
    made: Floats = hidden @ matrix("down").T
    return made


def alone_as_in_company(block: Any, x: Tensor) -> None:
    """Rows of a round, and spans of a prompt, are those of the whole."""
    whole, prompt = block.decode(x, None), block.prompt(x, None)
    for row in (0, len(x) - 1):
        assert torch.equal(block.decode(x[row : row + 1], None)[0], whole[row])
    assert torch.equal(block.prompt(x[2:], None), prompt[2:])


def check_mlps() -> None:
    x = rows(2, 5)
    pairs: tuple[tuple[Any, Any], ...] = ((SwiGLU(192), SwigluBlock), (FeedForward(192), FeedForwardBlock))
    for op, block in pairs:
        weights = random_weights(op)
        for kind in ("host", "packed"):
            made = block(assembled(weights, kind), op, "m")
            near(made.decode(x, None), mlp(weights, "m", x.double().numpy()))
            near(made.prompt(x, None), mlp(weights, "m", x.double().numpy()))
            alone_as_in_company(made, x)


def check_experts() -> None:
    sigmoid = Router(EXPERTS, 2, "sigmoid", correction=True, scale=2.5)
    plans = (
        MixtureOfExperts(sigmoid, FeedForward(64), SharedExpert(FeedForward(128))),
        MixtureOfExperts(Router(EXPERTS, 2, "softmax"), SwiGLU(64), SharedExpert(SwiGLU(64), gated=True)),
        MixtureOfExperts(Router(EXPERTS, 2, "softmax", over_chosen=True), FeedForward(64), None, latent=64),
    )
    x = rows(3, 4)
    for plan in plans:
        weights = random_weights(plan)
        true = routed(plan, weights, x.double().numpy())
        for kind in ("host", "packed"):
            block = ExpertsBlock(assembled(weights, kind), plan, "m")
            near(block.decode(x, None), true)
            near(block.prompt(x, None), true)
            if kind == "packed" and plan is plans[0]:
                alone_as_in_company(block, x)


class NarrowLaunches(HostLaunches):
    """Launches of a card whose blocks hold no more than 6 products of experts together."""

    def expect_experts(self, matrix: Matrix, rows: int, pairs: int, wide: bool = False) -> None:
        if pairs > 6:
            raise ValueError(f"{rows} rows do not fit")
        super().expect_experts(matrix, rows, pairs, wide)


def check_experts_whose_rows_do_not_fit_a_block_together() -> None:
    plan = MixtureOfExperts(Router(EXPERTS, 2, "sigmoid"), FeedForward(64), SharedExpert(FeedForward(64)))
    weights, x, made = random_weights(plan), rows(3, 7), []
    for launches in (HostLaunches(), NarrowLaunches()):
        products = Products(weights, launches, "cpu")
        products.launched_with((1, 7))
        block = ExpertsBlock(
            Assembly(weights, products, room(1, 512), torch.device("cpu"), torch.float32, "float32"), plan, "m"
        )
        made.append(block.decode(x, None))
    assert torch.equal(*made)
    sizes = {asked[2] for asked in launches.asked if len(asked) == 4}
    assert sizes == {3, 6} and {each[:-1] for each in launches.asked} <= {each[:-1] for each in launches.expected}


def routed(plan: MixtureOfExperts, weights: HeldWeights, x: Floats) -> Floats:
    """The block's output in float64."""
    exact = {path: values.astype(np.float64) for path, values in weights.values.items()}
    router = plan.router
    correction = exact["m.router.correction"] if router.correction else None
    total = np.zeros_like(x)
    for at, row in enumerate(x):
        chosen, shares = choose_experts(
            exact["m.router"] @ row, router.chosen, router.scoring, normalize=router.normalize,
            over_chosen=router.over_chosen, correction=correction, scale=router.scale,
        )  # fmt: skip
        given = exact["m.latent_down"] @ row if plan.latent else row
        made = sum(w * mlp(weights, "m.experts", given, e) for e, w in zip(chosen, shares, strict=True))
        total[at] = exact["m.latent_up"] @ made if plan.latent else made
    if plan.shared is not None:
        shared = mlp(weights, "m.shared", x)
        total += shared / (1 + np.exp(-(x @ exact["m.shared.switch"].T))) if plan.shared.gated else shared
    return total


def check_what_has_no_kernel_is_refused_by_name() -> None:
    scaled = MixtureOfExperts(Router(EXPERTS, 2, "softmax", input_norm=Norm(1e-6)), SwiGLU(64))
    pairs: tuple[tuple[Any, Any], ...] = (
        (SwiGLU(64, "gelu_tanh"), SwigluBlock),
        (SwiGLU(64, limit=7.0), SwigluBlock),
        (FeedForward(64, "silu"), FeedForwardBlock),
        (scaled, ExpertsBlock),
    )
    for plan, block in pairs:
        try:
            block(assembled(random_weights(plan), "host"), plan, "m")
        except RefusedError as refusal:
            assert refusal.message.startswith("m")
        else:
            raise AssertionError(plan)


def check_ids_become_rows_and_rows_become_logits() -> None:
    for kind in ("host", "packed"):
        table = random_weights(SwiGLU(64)).values["m.gate"]
        weights = HeldWeights({"embedding": table, "head": 2 * table})
        assembly = assembled(weights, kind)
        embedding = EmbeddingBlock(assembly, Embedding(64, WIDTH, 3.0))
        ids = torch.tensor([63, 0, 5], dtype=torch.int32)
        assert np.array_equal(embedding.decode(ids).numpy(), 3 * table[[63, 0, 5]])
        assert torch.equal(embedding.prompt(ids), embedding.decode(ids))
        x = rows(4, 3)
        logits = x.double().numpy() @ table.astype(np.float64).T
        near(HeadBlock(assembly, Head(64, tied=True), embedding).decode(x), logits)
        near(HeadBlock(assembly, Head(64, tied=False, softcap=2.0)).decode(x), 2 * np.tanh(logits))


if __name__ == "__main__":
    for name, check in [(k, v) for k, v in vars().items() if k.startswith("check_")]:
        check()
        print(name, flush=True)
