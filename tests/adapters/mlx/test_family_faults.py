"""Each kind of state, corrupted the way it usually is, is told from a sound one in every family that holds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.adapters.mlx.forward import Forward
from tensorfold.adapters.mlx.rows_cpu import CpuRows
from tensorfold.application.ports.target_model import ProposeSpec
from tensorfold.domain.families.tensors import Weight
from tensorfold.domain.sampling import Sampling
from tests.adapters.mlx.family_faults import FAULTS, Fault
from tests.adapters.mlx.family_walk import FamilyWalk
from tests.adapters.mlx.tiny_families import TinyFamily, stepped
from tests.reference.reference_model import ReferenceModel
from tests.synthetic.plan_checkpoints import PLANS, write_values
from tests.synthetic.slot_values import SlotValues
from tests.synthetic.tiny_configs import FAMILIES, tiny

pytestmark = pytest.mark.slow
SEED, WIDEST, ENOUGH = 21, 12, 120
TOKENS = [3 + 37 * at % 250 for at in range(12)]
PAIRS = [(fault, family) for fault in FAULTS for family in fault.families]


class Tied:
    """The values of a seed, but that experts come in fours which every router scores alike, so that ties are cut."""

    def __init__(self, values: SlotValues) -> None:
        self._values = values

    def values(self, path: str, weight: Weight) -> NDArray[Any]:
        made = self._values.values(path, weight)
        if path.endswith((".router", ".router.correction")):
            made = made[np.arange(len(made)) // 4 * 4]
        return made

    def bias(self, path: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
        return self._values.bias(path, shape)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, TinyFamily]:
    made = {}
    for family in FAMILIES:
        folder = tmp_path_factory.mktemp(family)
        config = tiny(family)
        plan = PLANS[family](config)
        made[family] = TinyFamily(write_values(folder, config, Tied(SlotValues.of(plan, SEED)), "mlx"), plan)
    return made


def part(forward: Forward[Any], vocabulary: int) -> str:
    return FamilyWalk(forward, vocabulary, WIDEST, SEED).run(ENOUGH).difference


def off_the_oracle(one: TinyFamily, forward: Forward[Any]) -> bool:
    logits = stepped(forward, forward.open(64), TOKENS)
    return bool(np.abs(logits - ReferenceModel.load(one.folder, one.plan).logits(TOKENS)).max() > 1e-3)


def changed_by_drafting(forward: Forward[Any]) -> bool:
    lane = forward.open(64, drafts=True)
    forward.absorb(lane, np.asarray(TOKENS))
    assert lane.head is not None
    before = lane.head.export()
    lane.head.propose(ProposeSpec(0, 5, 3, Sampling()))
    return lane.head.export() != before


def noticed(fault: Fault, one: TinyFamily) -> bool:
    forward = one.forward(CpuRows())
    if fault.noticed_by == "walk":
        return bool(part(forward, one.plan.head.vocabulary))
    return off_the_oracle(one, forward) if fault.noticed_by == "oracle" else changed_by_drafting(forward)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_sound_family_is_taken_for_sound_by_all_who_look(family: str, written: Mapping[str, TinyFamily]) -> None:
    one = written[family]
    forward = one.forward(CpuRows())
    assert part(forward, one.plan.head.vocabulary) == "" and not off_the_oracle(one, forward)
    assert forward.head is None or not changed_by_drafting(forward)


@pytest.mark.parametrize(("fault", "family"), PAIRS, ids=[f"{fault.name}, {family}" for fault, family in PAIRS])
def test_a_planted_fault_is_noticed(fault: Fault, family: str, written: Mapping[str, TinyFamily]) -> None:
    with fault.plant():
        assert noticed(fault, written[family])


def test_every_family_has_a_fault_for_each_kind_of_its_state() -> None:
    assert {family for fault in FAULTS for family in fault.families} == set(FAMILIES)
