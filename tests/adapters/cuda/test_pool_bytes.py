"""The bytes that are reckoned for pools are those of the tensors that blocks allocate by the same room."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the environment of the CUDA tests has it")

from tensorfold.adapters.cuda.key_pages import KeyPages  # noqa: E402
from tensorfold.adapters.cuda.recurrent_state import LaneStates  # noqa: E402
from tensorfold.domain.families import nemotron_h, qwen3_5  # noqa: E402
from tensorfold.domain.families.ops import Attention, GatedDelta, Mamba2  # noqa: E402
from tensorfold.domain.families.plans import DecoderPlan  # noqa: E402
from tensorfold.domain.families.state import state_spec  # noqa: E402
from tensorfold.domain.memory.cuda_holding import STATES, pool_sizes, room  # noqa: E402
from tensorfold.kernels.triton.conv import DELTA_FACTORS, MAMBA2_FACTORS  # noqa: E402


class Weightless:
    """An assembly without weights or products: pools alone are made, on a device that holds nothing."""

    def __init__(self) -> None:
        self.room = room(2, 3000, kept=5)
        self.device, self.dtype = torch.device("meta"), torch.bfloat16


def size(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def held(assembly: Any, channels: int, factors: int, *shape: int) -> int:
    """Bytes of a recurrent layer's pools."""
    made = LaneStates(assembly, channels, factors, shape)
    return sum(map(size, (made.raw, made.mixed, made.factors, made.places)))


@pytest.mark.parametrize("module", [qwen3_5, nemotron_h], ids=lambda module: module.__name__.split(".")[-1])
def test_pools_of_every_layer_together_are_what_is_reckoned(module: Any) -> None:
    plan: DecoderPlan = module.plan(module.CONFIG)
    assembly: Any = Weightless()
    pools, states, pages = assembly.room, 0, 0
    for layer in plan.layers:
        for op in (sublayer.op for sublayer in layer):
            if isinstance(op, Attention):
                made = KeyPages(pools.pages, op.kv_heads, op.head_dim, op.window, assembly.dtype, assembly.device)
                pages += size(made.keys) + size(made.values)
            elif isinstance(op, GatedDelta):
                states += held(assembly, op.conv.channels, DELTA_FACTORS, op.value_heads, op.key_dim, op.value_dim)
            elif isinstance(op, Mamba2):
                states += held(assembly, op.conv.channels, MAMBA2_FACTORS, op.heads, op.head_dim, op.state)
    sizes = pool_sizes([e for e in state_spec(plan) if not e.path.startswith("mtp.")], plan.activation)
    assert pages == pools.pages * sizes.page > 0
    reckoned = sizes.fixed(pools) - sizes.page
    # Factors are reckoned as the wider of the two kinds.
    assert states <= reckoned <= 1.02 * states
    assert pools.places == STATES * pools.lanes + 5
