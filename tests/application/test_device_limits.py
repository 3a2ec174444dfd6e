"""A Mac without tensor units: layouts that its rows do not keep are refused once the load check found so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.application.counters import Counters
from tensorfold.application.loading import describe, load_engine
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.target_model import ModelIdentity
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.families.storage import Layout
from tests.application.house import law
from tests.fakes.backend import FakeBackend
from tests.fakes.clock import MachineClock
from tests.fakes.hash_model import HashModel
from tests.fakes.tokenizer import FakeTokenizer
from tests.fakes.wrapped_model import WrappedModel
from tests.synthetic.plan_checkpoints import write_checkpoint
from tests.synthetic.stored_slots import Quantized
from tests.synthetic.tiny_configs import tiny


class Named(WrappedModel):
    """A model that says it runs on a device."""

    device = ""
    ended = False

    @property
    def identity(self) -> ModelIdentity:
        """The inner model's, on that device."""
        return replace(self.inner.identity, device=self.device)

    def shutdown(self) -> None:
        """Noted."""
        self.ended = True
        self.inner.shutdown()


def load(folder: Path, family: str, layout: Layout | None, device: str, width: int, drafts: bool = True) -> Named:
    """What stands after a load on `device`, whose load check left windows of `width` rows. Raises RefusedError."""
    quantization = None if layout is None else Quantized(layout)
    facts = FolderReader().facts(write_checkpoint(folder, tiny(family), 1, "mlx", quantization))
    described = describe(facts, "mlx", None)
    made: list[Named] = []

    def make(context: int, streams: int) -> Named:
        made.append(Named(HashModel(law(1, 288), context=context, chain_width=width, tree_width=1)))
        made[-1].device = device
        return made[-1]

    try:
        load_engine(
            described,
            facts,
            FakeBackend(make),
            FakeTokenizer(288),
            EngineSettings(drafts=drafts),
            MachineClock(),
            name="m",
            max_tokens=5,
            counters=Counters(),
            sources=(),
            on_progress=lambda line: None,
            log=lambda line: None,
        )
    except RefusedError:
        assert made[0].ended
        raise
    return made[0]


def test_a_layout_that_does_not_keep_its_rows_on_an_older_mac_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as refusal:
        load(tmp_path, "qwen3_5", Layout(6, 64), "gpu Apple M3 Max", 1)
    assert refusal.value.message == (
        "Qwen3.8-27B stored as 6 bits in groups of 64 does not keep its rows' bits on an M3: take a conversion of 4 "
        "bits in groups of 64, or start with `--no-drafts`."
    )


@pytest.mark.parametrize(
    ("family", "layout", "device", "width", "drafts"),
    [
        ("qwen3_5", Layout(6, 64), "gpu Apple M3 Max", 16, True),
        ("qwen3_5", Layout(6, 64), "gpu Apple M3 Max", 1, False),
        ("qwen3_5", Layout(4, 64), "gpu Apple M3 Max", 1, True),
        ("qwen3_5", Layout(6, 64), "gpu Apple M5", 1, True),
        ("qwen3_5", Layout(6, 64), "gpu Apple Paravirtual device", 1, True),
        ("qwen3_5", Layout(6, 64), "cpu Apple M3 Max, 8 threads", 1, True),
        ("glm5_next", Layout(6, 64), "gpu Apple M3 Max", 1, True),
    ],
    ids=["proven", "no drafts", "its own layout", "newer", "unknown", "processor", "another family"],
)
@pytest.mark.slow
def test_nothing_else_is_refused_for_its_machine(
    tmp_path: Path, family: str, layout: Layout, device: str, width: int, drafts: bool
) -> None:
    assert not load(tmp_path, family, layout, device, width, drafts).ended
