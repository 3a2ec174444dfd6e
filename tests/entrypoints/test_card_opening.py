"""A model on a card from its flags to a running scheduler: chosen, checked, planned, loaded with its pools, reported.

The card exists in figures alone; lanes are those of the CUDA backend's own book.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.application.pooled_admission import PooledAdmission
from tensorfold.application.ports.backend import ModelCheckpoint
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.target_model import TargetModel
from tensorfold.domain.drafting.copies import CopySourceFactory
from tensorfold.domain.families.storage import Layout
from tensorfold.domain.memory.budgets import Card, Machine
from tensorfold.domain.memory.cuda_footprint import cuda_footprint
from tensorfold.domain.memory.cuda_holding import Room
from tensorfold.domain.memory.plan import Footprint
from tensorfold.entrypoints.cli.choosing import choose_backend
from tensorfold.entrypoints.cli.opening import Checked, check, loading_line, report_lines, schedule
from tensorfold.entrypoints.cli.parser import parse
from tensorfold.entrypoints.cli.prompt_keeping import keeping
from tensorfold.entrypoints.settings import RunSettings, run_settings
from tests.application.house import law, read
from tests.application.prompt_house import cached, request
from tests.domain.memory.cuda_models import H200, card_of
from tests.fakes.backend import FakeBackend
from tests.fakes.clock import MachineClock
from tests.fakes.paged_model import PagedModel
from tests.fakes.tokenizer import FakeTemplate, FakeTokenizer
from tests.synthetic.plan_checkpoints import write_checkpoint
from tests.synthetic.stored_slots import Quantized
from tests.synthetic.tiny_configs import VOCABULARY, tiny


class CardBackend(FakeBackend):
    """CUDA over the hash model; `pools` are those it was loaded with."""

    pools: Room | None = None

    def __init__(self, card: Card = H200) -> None:
        super().__init__(lambda context, streams: self.made(), name="cuda")
        self.card = card

    def made(self) -> TargetModel:
        assert self.pools is not None
        return PagedModel(law(1, VOCABULARY), self.pools, prefill_slice=0, chain_width=8)

    def machine(self) -> Machine:
        return Machine(self.card.available, card=self.card)

    def footprint(self, checkpoint: ModelCheckpoint) -> Footprint:
        return cuda_footprint(checkpoint.plan, checkpoint.bound, head=checkpoint.drafts.mtp_drafts != 0)

    def load(self, *given: Any, pools: Room | None = None, **named: Any) -> TargetModel:
        self.pools = pools
        return super().load(*given, pools=pools, **named)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Tiny checkpoints in the layout that CUDA reads."""
    root, stored = tmp_path_factory.mktemp("card"), Quantized(Layout(4, 64))
    return {name: write_checkpoint(root / name, tiny(name), 1, "mlx", stored) for name in ("nemotron_h", "qwen3_5")}


def house(folder: Path, backend: CardBackend) -> Any:
    """A container with that checkpoint and that card."""

    def locate(model: str, say: Any, *, check: Any, on_transfer: Any) -> Path:
        check(FolderReader().config(folder))
        return folder

    return SimpleNamespace(
        backend=lambda name: backend,
        models=lambda: SimpleNamespace(locate=locate),
        reader=FolderReader,
        tokenizer=lambda folder: FakeTokenizer(VOCABULARY),
        drafters=lambda: SimpleNamespace(find=lambda *given: None),
        clock=MachineClock,
        sources=lambda: (CopySourceFactory(),),
        chunks=lambda: None,
    )


def settings_of(*words: str, **environment: str) -> RunSettings:
    flags = parse(["serve", "owner/model", *words])
    lacks = SimpleNamespace(backend=lambda name: SimpleNamespace(missing=lambda: None))
    chosen: Any = lacks
    return run_settings(flags, environment, choose_backend(flags.backend, chosen, "linux"))


def opened(folder: Path, *words: str, card: Card = H200, environment: Mapping[str, str] | None = None) -> Checked:
    settings = settings_of(*words, **(environment or {}))
    return check(settings, house(folder, CardBackend(card)), lambda line: None)


def test_a_model_is_served_from_the_pools_that_were_planned_and_resumes_on_the_device(
    folders: Mapping[str, Path],
) -> None:
    settings, backend, said = settings_of("--parallel", "2"), CardBackend(), list[str]()
    container = house(folders["nemotron_h"], backend)
    checked = check(settings, container, said.append)
    assert loading_line(checked).endswith("backend cuda (auto takes CUDA where there is a card)")
    template: Any = FakeTemplate()
    kept = keeping(checked, template, settings, container, said.append)
    scheduler = schedule(checked, settings, container, said.append, keeping=kept)
    scheduler.start()
    try:
        scheduler.wait_ready()
        assert isinstance(scheduler.admission, PooledAdmission) and checked.memory is not None
        assert backend.pools == checked.memory.pools and backend.pools is not None
        assert (backend.pools.lanes, backend.pools.kept) == (3, 11)
        report = [*report_lines(checked, scheduler, settings.engine), *kept.lines()]
        assert any(line.startswith("memory: ") and " by estimate (what is free of the card" in line for line in report)
        assert "context: 512 tokens of the checkpoint's 512, set by the model's own window" in " ".join(report)
        assert report[-1] == "prompt cache: up to 11 prompt ends on the device, in pages no stream needs"
        prompt = [random.Random(1).randrange(4, 250) for _ in range(400)]
        first, again = (read(scheduler.submit(request(tuple(prompt), 8))) for _ in range(2))
        assert first.ids == again.ids and cached(first) == 0
    finally:
        assert scheduler.stop(30.0)
    assert not scheduler.counters.integrity_faults


def test_one_stream_at_a_time_is_the_default(folders: Mapping[str, Path]) -> None:
    checked = opened(folders["nemotron_h"])
    assert checked.memory is not None and checked.memory.pools is not None
    assert checked.memory.pools.lanes == 2


@pytest.mark.parametrize(
    ("words", "environment", "says"),
    [
        ((), {"TENSORFOLD_CUDA_MEMORY_LIMIT_GB": "0.25"}, "TENSORFOLD_CUDA_MEMORY_LIMIT_GB in the environment"),
        ((), {"TENSORFOLD_MEMORY_RESERVE_GIB": "900"}, "TENSORFOLD_MEMORY_RESERVE_GIB asks to leave 900.00 GiB"),
        (("--context", "513"), {}, "--context 513 is more than the model's own window of 512 tokens"),
        (("--context", "1"), {}, "--context 1 does not fit: a window holds a token of prompt and one of reply"),
    ],
)
def test_what_a_card_cannot_give_is_refused_before_a_weight_is_read(
    folders: Mapping[str, Path], words: tuple[str, ...], environment: dict[str, str], says: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        opened(folders["nemotron_h"], *words, environment=environment)
    assert says in refused.value.message and "\n" not in refused.value.message


def test_a_card_that_is_taken_by_others_is_refused_with_the_figures(folders: Mapping[str, Path]) -> None:
    with pytest.raises(RefusedError, match=r"No request fits beside the weights: .* less 4\.00 GiB left to others"):
        opened(folders["nemotron_h"], card=card_of(4.2))


@pytest.mark.parametrize("words", [(), ("--drafter", "none")])
def test_the_27b_is_not_started_without_its_drafter_unless_serial_decoding_is_asked_for(
    folders: Mapping[str, Path], words: tuple[str, ...]
) -> None:
    with pytest.raises(RefusedError, match=r"z-lab/Qwen3\.8-27B-DFlash2` brings it, or start with `--no-drafts`"):
        opened(folders["qwen3_5"], *words)
    assert opened(folders["qwen3_5"], *words, "--no-drafts").drafter is None


def test_a_family_that_cuda_does_not_serve_is_refused_before_its_weights(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "flash", tiny("qwen4_exp"), 1, "mlx", Quantized(Layout(4, 32)))
    with pytest.raises(RefusedError, match=r"Qwen3\.8 Flash Next is not served on CUDA by this version: start with"):
        opened(folder)
