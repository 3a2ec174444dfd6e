"""What the card's benchmark launches to have kernels compiled runs over every model of true geometry."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the environment of the CUDA tests has it")
pytest.importorskip("triton", reason="Triton is not installed: the environment of the CUDA tests has it")

from tensorfold.domain.memory.cuda_holding import room  # noqa: E402
from tests.adapters.cuda.weightless import built, silence  # noqa: E402
from tests.benchmarks.gpu_compile import STAGES, launch, shortest  # noqa: E402
from tests.synthetic.true_models import true_model  # noqa: E402


def read_as_zeros(read: Any) -> Any:
    """A tensor without bytes is read as zeros."""

    def reading(tensor: Any, *arguments: Any) -> Any:
        bare = tensor.device.type == "meta"
        return read(torch.zeros(tensor.shape, dtype=tensor.dtype) if bare else tensor, *arguments)

    return reading


@pytest.mark.parametrize("name", ["llama", "nemotron", "qwen"])
def test_every_stage_launches_kernels_of_its_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    launched: set[str] = set()

    def run(kernel: Any, *arguments: Any, **how: Any) -> None:
        launched.add(kernel.fn.__name__)

    silence(monkeypatch)
    for kind in (JITFunction, InterpretedFunction):
        monkeypatch.setattr(kind, "run", run)
    for reading in ("cpu", "numpy", "tolist"):
        monkeypatch.setattr(torch.Tensor, reading, read_as_zeros(getattr(torch.Tensor, reading)))
    with torch.no_grad():
        _, parts = built(name, shortest(true_model(name).plan), room(1, 4096))
        seen: dict[str, set[str]] = {}
        for stage in STAGES:
            launched = set()
            launch(parts, stage)
            seen[stage] = launched
    assert seen["rounds"] - seen["prompts"] and seen["prompts"] - seen["rounds"]
    assert bool(seen["drafts"]) is (parts.head is not None)
    # Every lane is free again.
    assert parts.book.free_slots == 1
