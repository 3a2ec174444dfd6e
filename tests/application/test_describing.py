"""A model is told from its configuration files alone; what is on this machine is told without asking anybody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.application.catalogue import ModelSources
from tensorfold.application.checkpoint_parts import CheckpointParts
from tensorfold.application.describing import Described, DescribedDrafter, Describer, Here, checkpoints, families
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families import dflash2, glm5_next, nemotron_h, qwen3_5
from tensorfold.domain.families.catalogue import FAMILIES, GLM_FLASH, QWEN_27B
from tensorfold.domain.families.exl3_block import Exl3
from tests.fakes.checkpoints import FakeModelHub, FakeWeightPackage
from tests.fakes.families import family_to_come, family_with_a_side_file
from tests.synthetic.servable import SERVABLE, write_servable


class House:
    """A hub with `org/model`, a package with `demo`, over real folders."""

    def __init__(self, folder: Path, config: dict[str, Any] | None = None) -> None:
        self.model, self.demo = folder / "model", folder / "demo"
        for place in (self.model, self.demo):
            place.mkdir()
            write_servable(place)
        if config is not None:
            (self.model / "config.json").write_text(json.dumps(config))
        self.hub = FakeModelHub({"org/model": self.model})
        self.package = FakeWeightPackage({"demo": self.demo})
        reader = FolderReader()
        sources = ModelSources(self.package, lambda: self.hub, reader)
        self.describer = Describer(sources, CheckpointParts(reader))

    def told(self, model: str = "org/model") -> Described:
        found = self.describer.describe(model)
        assert isinstance(found, Described)
        return found


def test_a_repository_is_told_by_its_configuration(tmp_path: Path) -> None:
    house = House(tmp_path)
    told = house.told()
    config = SERVABLE.config()
    assert (told.model_type, told.family.title, told.side_files, told.license) == ("llama", "Llama", (), None)
    assert told.facts.layers == config["num_hidden_layers"] and told.plan.width == config["hidden_size"]
    assert told.plan.context == config["max_position_embeddings"] and told.facts.experts == 0
    assert told.weight_bytes == FolderReader().facts(house.model).weight_bytes
    assert [run.backend for run in told.backends if not run.refusal] == ["mlx"]
    assert told.quantization is None and told.exl3 is None
    assert house.hub.fetched == [] and house.hub.asked == {"org/model"}


def test_a_folder_is_told_with_what_it_lacks(tmp_path: Path) -> None:
    house = House(tmp_path)
    assert house.told(str(house.model)).here == Here(house.model) and house.told(str(house.model)).here.complete
    (house.model / "tokenizer.json").unlink()
    here = house.told(str(house.model)).here
    assert here.missing == ("tokenizer.json",) and not here.complete


def test_a_packages_model_is_told_before_it_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(tmp_path)
    monkeypatch.setattr(house.package, "describe", lambda name: (SERVABLE.config(), {}))
    told = house.told("demo")
    assert (told.here, told.license is not None and told.license.name) == (Here(None), "Apache-2.0")
    house.package.provide("demo", lambda line: None)
    assert house.told("demo").here == Here(house.demo)
    monkeypatch.setattr(house.package, "describe", lambda name: None)
    with pytest.raises(RefusedError, match="demo is not on this machine yet; `tensorfold pull demo` brings it"):
        house.told("demo")


@pytest.mark.slow
def test_a_model_of_a_listed_family_is_told_with_who_serves_it(tmp_path: Path) -> None:
    config = {"model_type": "qwen3_5", "text_config": qwen3_5.CONFIG, "quantization": {"bits": 6, "group_size": 64}}
    told = House(tmp_path, config).told()
    mlx, cuda = told.backends
    assert (mlx.backend, mlx.refusal, cuda.backend) == ("mlx", "", "cuda")
    assert cuda.refusal.startswith("Qwen3.8-27B is read by CUDA in 4 bits in groups of 64, but config.json states 6")


def test_a_family_to_come_is_told_by_its_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = family_to_come(monkeypatch, QWEN_27B)
    config = {"model_type": "qwen3_5", "text_config": qwen3_5.CONFIG, "quantization": {"bits": 4, "group_size": 64}}
    house = House(tmp_path, config)
    told = house.told()
    assert (told.family, told.model_type, told.plan.width) == (later, "qwen3_5", 5120)
    assert told.facts.state.token == 65_536
    assert told.weight_bytes is not None and 15e9 < told.weight_bytes < 16e9
    assert all("is not served by this version" in run.refusal for run in told.backends)
    assert house.hub.fetched == []


def test_weights_in_exl3_are_told_with_their_branch_and_refused(tmp_path: Path) -> None:
    block = {"quant_method": "exl3", "bits": 4.0, "head_bits": 6, "codebook": "mcg"}
    house = House(tmp_path, qwen3_5.CONFIG | {"quantization_config": block})
    house.hub.folders["turboderp/Qwen3.8-27B-exl3@4.00bpw"] = house.model
    told = house.told("turboderp/Qwen3.8-27B-exl3@4.00bpw")
    assert (told.exl3, told.quantization, told.weight_bytes) == (Exl3(4.0, 6.0, 0.0, "mcg"), None, None)
    assert {"in EXL3 is experimental and not served by this version" in run.refusal for run in told.backends} == {True}
    assert told.license is not None and house.hub.fetched == []


def test_a_side_file_is_told_by_the_config_alone(tmp_path: Path) -> None:
    assert House(tmp_path, nemotron_h.CONFIG).told().side_files == ("mtp-4bit.safetensors",)


def test_a_drafter_is_told_with_the_model_it_fits(tmp_path: Path) -> None:
    house = House(tmp_path, dflash2.GLM_CONFIG)
    house.hub.folders["incoai/GLM-5.3-Flash-DFlash2"] = house.model
    told = house.describer.describe("incoai/GLM-5.3-Flash-DFlash2")
    assert isinstance(told, DescribedDrafter)
    assert (told.target, told.drafter.taps[0].form) == (GLM_FLASH, "stream_mean")
    assert told.state is not None and told.state.window == 2047
    assert told.license is not None and "commercially" in told.license.special


def test_a_drafter_of_no_listed_model_is_told_without_one(tmp_path: Path) -> None:
    told = House(tmp_path, dflash2.CONFIG | {"hidden_size": 4096}).describer.describe("org/model")
    assert isinstance(told, DescribedDrafter)
    assert (told.target, told.state, told.license) == (None, None, None)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({}, "config.json lacks model_type"),
        ({"model_type": "bert"}, "model_type is 'bert', which is no family known here; this version serves: llama"),
        (qwen3_5.CONFIG | {"hidden_size": "x"}, "hidden_size"),
        (glm5_next.CONFIG | {"quantization_config": {"quant_method": "fp8"}}, "quant_method 'fp8'"),
        ({"architectures": ["DFlash2DraftModel"]}, "lacks hidden_size"),
        (SERVABLE.config() | {"quantization": {"bits": 7, "group_size": 64}}, "bits"),
        (SERVABLE.config() | {"quantization_config": {"quant_method": "exl3", "bits": 3.0}}, "quant_method 'exl3'"),
        (SERVABLE.config() | {"vocab_size": 0}, "vocab_size"),
    ],
)
def test_what_cannot_be_told_is_refused_in_one_sentence(tmp_path: Path, config: dict[str, Any], says: str) -> None:
    with pytest.raises(RefusedError) as refusal:
        House(tmp_path, config).told()
    assert says in refusal.value.message and refusal.value.message.endswith(".")


def test_a_word_that_names_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="is neither a folder, nor a repository"):
        House(tmp_path).told("nothing")


def test_what_is_here_is_known_without_asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(tmp_path)
    here = house.describer.here
    assert [here(name).complete for name in ("demo", "org/model", "nothing")] == [False] * 3
    house.package.provide("demo", lambda line: None)
    house.hub.here.add("org/model")
    assert [here(name).complete for name in ("demo", "org/model")] == [True, True] and house.hub.asked == set()
    family_with_a_side_file(monkeypatch, "mtp.safetensors")
    assert here("org/model").missing == ("mtp.safetensors",)
    (house.model / "config.json").write_text("{")
    assert here("org/model") == Here(None)


def test_names_of_checkpoints_are_what_pull_takes() -> None:
    assert checkpoints(QWEN_27B) == [
        "Vontra/Qwen3.8-27B-MLX-4bit",
        "turboderp/Qwen3.8-27B-exl3@3.00bpw",
        "turboderp/Qwen3.8-27B-exl3@4.00bpw",
    ]
    assert set(families()) == set(FAMILIES)
    served = [family.served for family in families()]
    assert served == sorted(served, reverse=True) and True in served
