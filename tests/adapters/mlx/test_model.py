"""The model's port where the contract suite does not look: identity, images of other engines, faults in a pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorfold.adapters.mlx.model import MlxModel
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.target_model import CapacityError, LaneWindow, ProposeSpec, RoundBatch
from tensorfold.domain.families.state import state_spec
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.windows import chain, tree
from tests.adapters.mlx.models import SLIDING, SMALL, absorb, load, rows, serial

GREEDY = Sampling()


def test_the_identity_names_weights_runtime_device_and_arithmetic(small: MlxModel[Any]) -> None:
    identity = small.identity
    assert identity.name == "tiny" and len(identity.kernels) == 64
    assert identity.runtime.startswith("mlx ") and identity.device
    assert dict(identity.extra)["rows"] == "float32"


def test_an_images_buffers_are_those_of_the_plans_state_spec(small: MlxModel[Any]) -> None:
    lane = absorb(small, list(range(1, 30)), 64)
    image = small.export(lane)
    entries = state_spec(replace(small.forward.decoder.plan, activation="float32"))
    assert [name for name, _ in image.buffers] == [entry.path for entry in entries]
    assert [len(data) for _, data in image.buffers] == [entry.bytes_at(29) for entry in entries]
    small.close(lane)


@pytest.mark.slow
def test_a_sliding_layer_exports_its_window_alone(tmp_path: Path) -> None:
    model = load(tmp_path, SLIDING)
    lane = absorb(model, [1] * 90, 128)
    sizes = [len(data) for _, data in model.export(lane).buffers]
    assert sizes[0] * 90 == sizes[2] * 20
    restored = model.restore(model.export(lane), 128)
    assert serial(model, restored, [4, 5, 6], GREEDY) == serial(model, lane, [4, 5, 6], GREEDY)


@pytest.mark.slow
def test_images_travel_between_names_but_not_between_engines(small: MlxModel[Any], tmp_path: Path) -> None:
    lane = absorb(small, [1, 2, 3], 64)
    image = small.export(lane)
    small._identity = replace(small.identity, name="another alias")
    other = small.restore(image, 64)
    assert small.export(other) == image
    small._identity = replace(small.identity, name="tiny")
    with pytest.raises(ValueError, match="another engine"):
        load(tmp_path, SLIDING).restore(image, 64)
    with pytest.raises(CapacityError, match="--context"):
        small.restore(image, 10_000)
    with pytest.raises(CapacityError, match="3 tokens"):
        small.restore(image, 2)
    small.close(lane)
    small.close(other)


def test_lanes_are_bounded_and_the_refusal_names_the_flag(small: MlxModel[Any]) -> None:
    lanes = [small.open(16) for _ in range(64)]
    with pytest.raises(CapacityError, match="--parallel"):
        small.open(16)
    with pytest.raises(CapacityError, match="--parallel"):
        small.fork(lanes[0])
    for lane in lanes:
        small.close(lane)


def test_a_pass_that_raises_leaves_every_lane_where_it_stood(small: MlxModel[Any]) -> None:
    lanes = [absorb(small, ids, 64) for ids in ([1, 2, 3], list(range(60)))]
    before = [small.export(lane) for lane in lanes]
    block = small.forward.decoder.sublayers[2]
    sound = block.op

    def broken(rows: Any, context: Any, residual: Any) -> Any:
        sound(rows, context, residual)
        raise RuntimeError("planted")

    batch = RoundBatch(
        (
            LaneWindow(lanes[0], 3, tree(4, [5, 6, 7], [0, 0, 1]), GREEDY),
            LaneWindow(lanes[1], 60, chain(5, [6, 7]), GREEDY),
        )
    )
    block.op = broken
    with pytest.raises(RuntimeError, match="planted"):
        small.launch(batch)
    with pytest.raises(RuntimeError, match="planted"):
        absorb(small, [1, 2], 8)
    block.op = sound
    assert [small.export(lane) for lane in lanes] == before
    for lane in small.lanes():
        small.close(lane)


def test_a_launch_whose_draws_fail_can_be_discarded(small: MlxModel[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    lane = absorb(small, [1, 2, 3], 64)
    before = small.export(lane)
    ticket = small.launch(RoundBatch((LaneWindow(lane, 3, chain(4, [5]), GREEDY),)))
    with monkeypatch.context() as patch:
        patch.setattr(small.forward.decoder, "host", lambda logits: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            small.collect(ticket)
    small.discard(ticket)
    assert small.export(lane) == before
    small.close(lane)


def test_only_drawn_rows_reach_the_head(small: MlxModel[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    lane = absorb(small, [1, 2, 3], 64)
    seen: list[int] = []
    head = small.forward.decoder.head

    class Counting:
        def __call__(self, hidden: Any) -> Any:
            seen.append(len(hidden))
            return head(hidden)

        def host(self, logits: Any) -> Any:
            return head.host(logits)

    monkeypatch.setattr(small.forward.decoder, "head", Counting())
    rows(small, [(lane, chain(4, drafts=[8, 9], forced=[5, 6, 7]), GREEDY)])
    assert seen == [3]
    small.close(lane)


def test_this_backend_has_no_head_of_its_own(small: MlxModel[Any]) -> None:
    lane = absorb(small, [1, 2, 3], 64)
    assert small.limits.head is None and small.propose([ProposeSpec(lane, 1, 2, GREEDY)]) == [None]
    small.close(lane)


def test_masks_that_do_not_fit_the_window_are_refused(small: MlxModel[Any]) -> None:
    lane = absorb(small, [1, 2, 3], 64)
    mask = np.full(3, 0xFFFFFFFF, np.uint32)
    with pytest.raises(ValueError, match="masks"):
        small.launch(RoundBatch((LaneWindow(lane, 3, chain(4, [5]), GREEDY, (mask,)),)))
    small.close(lane)


class Unbuilt:
    """An op that no backend knows."""


def test_what_has_no_builder_is_refused_by_name(small: MlxModel[Any], tmp_path: Path) -> None:
    from tensorfold.adapters.filesystem.checkpoints import FolderReader
    from tensorfold.adapters.mlx.loader import Loading
    from tensorfold.adapters.mlx.rows_cpu import CpuRows
    from tensorfold.adapters.mlx.runtime import current
    from tensorfold.application.loading import describe
    from tensorfold.application.ports.backend import ModelCheckpoint

    facts = FolderReader().facts(SMALL.write(tmp_path))
    told = describe(facts, "mlx", None)
    mixer, mlp = told.plan.layers[0]
    for plan in (
        replace(told.plan, layers=((mixer, replace(mlp, op=Unbuilt())),)),  # type: ignore[arg-type]
        replace(told.plan, layers=((replace(mixer, op=replace(mixer.op, softcap=7.0)), mlp),)),  # type: ignore[arg-type]
    ):
        with pytest.raises(RefusedError, match="MLX backend"):
            Loading(ModelCheckpoint(plan, told.bound, facts), current(), lambda line: None).decoder(CpuRows())
