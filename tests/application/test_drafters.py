"""Which drafter is meant, where it is, whether it fits: `auto` never fetches or refuses, a named one does both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tensorfold.application.catalogue import ModelSources
from tensorfold.application.drafters import Drafters
from tensorfold.application.ports.checkpoints import CheckpointFacts, RefusedError
from tensorfold.domain.families import dflash2, published
from tensorfold.domain.families.catalogue import GEMMA_26B, QWEN_27B, Family
from tensorfold.domain.families.plans import DecoderPlan
from tests.domain.families.headers import written
from tests.fakes.checkpoints import FakeCheckpointReader, FakeModelHub, FakeWeightPackage

LISTED = QWEN_27B.drafters[0].repo
TARGET = QWEN_27B.reader.plan(QWEN_27B.reader.published)
CONFIG: dict[str, Any] = published.DFLASH2
HEADERS = written(dflash2.plan(CONFIG).tensors)


def facts(folder: Path, **config: Any) -> CheckpointFacts:
    return CheckpointFacts(folder, CONFIG | config, {}, HEADERS, 1, "digest")


@dataclass
class Place:
    """A hub, a folder and what was said."""

    hub: FakeModelHub
    reader: FakeCheckpointReader
    folder: Path
    said: list[str]

    def find(self, asked: str, family: Family = QWEN_27B, plan: DecoderPlan = TARGET) -> Any:
        models = ModelSources(FakeWeightPackage({}), lambda: self.hub, self.reader)
        return Drafters(models, self.reader).find(asked, family, plan, self.said.append)

    def refusal(self, asked: str, plan: DecoderPlan = TARGET) -> str:
        with pytest.raises(RefusedError) as refused:
            self.find(asked, plan=plan)
        assert "\n" not in refused.value.message and refused.value.message.endswith(".")
        return refused.value.message


@pytest.fixture
def place(tmp_path: Path) -> Place:
    hub = FakeModelHub({LISTED: tmp_path, f"{LISTED}@main": tmp_path})
    return Place(hub, FakeCheckpointReader({tmp_path: facts(tmp_path)}), tmp_path, [])


def test_the_familys_own_drafter_is_taken_where_it_is_on_this_machine(place: Place) -> None:
    assert place.find("auto") is None and place.hub.fetched == [] and place.hub.asked == set()
    place.hub.here.add(LISTED)
    found = place.find("auto")
    assert found.name == LISTED and found.plan.block == 8 and found.facts.folder == place.folder
    assert found.bound.keys() == found.plan.tensors.slots.keys() and place.said == []


def test_none_takes_none_and_a_family_without_drafters_asks_nobody(place: Place) -> None:
    place.hub.here.add(LISTED)
    assert place.find("none") is None
    assert place.find("auto", GEMMA_26B) is None


@pytest.mark.parametrize("asked", ["no such thing", "demo", "./nothing", "a/b/c", "no\nne"])
def test_a_word_that_names_no_drafter_is_refused_with_the_flag_and_asks_nobody(place: Place, asked: str) -> None:
    shown = asked.replace("\n", "?")
    told = f"--drafter {shown} is neither auto, none, a folder, nor a repository such as owner/name."
    assert place.refusal(asked) == told and place.hub.fetched == [] and place.hub.asked == set()


def test_a_repository_that_is_named_is_fetched_once(place: Place) -> None:
    for _ in range(2):
        found = place.find(f"{LISTED}@main")
        assert found.name == f"{LISTED}@main"
    assert place.hub.fetched == [(LISTED, "main")]


def test_a_folder_that_is_named_is_taken_as_it_is(place: Place) -> None:
    assert place.find(str(place.folder)).name == str(place.folder)
    assert place.hub.fetched == []


def test_a_drafter_of_another_model_is_refused_before_it_is_fetched(place: Place) -> None:
    narrow = replace(TARGET, width=2560)
    said = place.refusal(LISTED, narrow)
    assert said.startswith(f"The drafter {LISTED} cannot be used: ") and "2,560" in said
    assert place.hub.fetched == []


def test_a_checkpoint_that_is_no_drafter_is_refused(place: Place) -> None:
    place.reader.known[place.folder] = facts(place.folder, architectures=["LlamaForCausalLM"])
    assert "DFlash2" in place.refusal(str(place.folder))


def test_a_drafter_without_its_tensors_is_refused(place: Place) -> None:
    lacking = {name: header for name, header in HEADERS.items() if "candidate_selector" not in name}
    place.reader.known[place.folder] = replace(facts(place.folder), tensors=lacking)
    assert "candidate_selector" in place.refusal(str(place.folder))


def test_the_familys_own_drafter_that_does_not_fit_is_left_out_and_told_of(place: Place) -> None:
    place.hub.here.add(LISTED)
    place.reader.known[place.folder] = facts(place.folder, vocab_size=1000, dflash_config=None)
    assert place.find("auto") is None
    assert len(place.said) == 1 and place.said[0].endswith("It is left out.")
