"""A pull asks for the configuration first, refuses from it, and says what came."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tensorfold.application.catalogue import ModelSources
from tensorfold.application.checkpoint_parts import CheckpointParts
from tensorfold.application.ports.checkpoints import CheckpointFacts, RefusedError
from tensorfold.application.pulling import Pulled, Puller
from tensorfold.domain.families import catalogue, dflash2, qwen3_5
from tensorfold.domain.families.storage import TensorHeader
from tests.fakes.checkpoints import FakeCheckpointReader, FakeModelHub, FakeWeightPackage
from tests.fakes.families import family_to_come, family_with_a_side_file
from tests.synthetic.servable import SERVABLE

LLAMA = SERVABLE.config()


class House:
    """A hub whose repositories say what `configs` holds."""

    def __init__(self, folder: Path, configs: Mapping[str, Mapping[str, Any]]) -> None:
        self.folders = {name: folder / name.replace("/", "-") for name in configs}
        header = TensorHeader("w", "F32", (1,), "model.safetensors", 0, 4)
        known = {}
        for name, config in configs.items():
            self.folders[name].mkdir()
            (self.folders[name] / "model.safetensors").write_bytes(b"1234")
            known[self.folders[name]] = CheckpointFacts(self.folders[name], config, {}, {"w": header}, 4, "d")
        self.hub = FakeModelHub(self.folders)
        reader = FakeCheckpointReader(known)
        package = FakeWeightPackage({"demo": next(iter(self.folders.values()))})
        self.puller = Puller(ModelSources(package, lambda: self.hub, reader), CheckpointParts(reader))
        self.said: list[str] = []

    def pull(self, name: str) -> Pulled:
        return self.puller.pull(name, self.said.append)


def test_a_checkpoint_is_pulled_and_told_with_its_size(tmp_path: Path) -> None:
    house = House(tmp_path, {"o/n": LLAMA})
    note = "it is not on the list of tested checkpoints: it runs, and exactly, but its speed was not measured"
    assert house.pull("o/n") == Pulled("o/n", house.folders["o/n"], 4, "Llama", (note,))
    assert house.hub.asked == {"o/n"} and house.hub.fetched == [("o/n", None)]


def test_the_packages_model_is_pulled_without_the_hub(tmp_path: Path) -> None:
    house = House(tmp_path, {"o/n": LLAMA})
    assert house.pull("demo").notes == () and house.hub.asked == set()


def test_a_model_type_of_no_family_may_be_a_drafter(tmp_path: Path) -> None:
    pulled = House(tmp_path, {"o/n": {"model_type": "dflash"}}).pull("o/n")
    assert pulled.family == ""
    assert pulled.notes == ("its model_type 'dflash' is no family of this version; it may be a drafter",)


def test_a_drafter_of_no_listed_model_is_pulled_and_called_one(tmp_path: Path) -> None:
    pulled = House(tmp_path, {"o/n": dflash2.CONFIG | {"hidden_size": 4096}}).pull("o/n")
    assert (pulled.family, pulled.notes) == ("", ("it is a DFlash2 drafter for no model listed here",))


@pytest.mark.parametrize(
    ("name", "config", "says"),
    [
        (
            "turboderp/Qwen3.8-27B-exl3",
            qwen3_5.CONFIG | {"quantization_config": {"quant_method": "exl3", "bits": 3.0}},
            "Qwen3.8-27B in EXL3 is experimental and not served by this version: use Vontra/Qwen3.8-27B-MLX-4bit.",
        ),
        ("o/n", dflash2.CONFIG | {"is_causal": 2}, "is_causal as 2"),
        ("o/n", LLAMA | {"hidden_size": "wide"}, "hidden_size"),
        ("o/n", LLAMA | {"quantization_config": {"quant_method": "gptq"}}, "quant_method 'gptq'"),
        ("o/n", {"model_type": "dflash", "quantization": {"mode": "mxfp4", "bits": 4, "group_size": 32}}, "mode"),
    ],
)
def test_what_the_configuration_rules_out_is_refused_before_anything_else(
    tmp_path: Path, name: str, config: Mapping[str, Any], says: str
) -> None:
    house = House(tmp_path, {name: config})
    with pytest.raises(RefusedError) as refusal:
        house.pull(name)
    assert says in refusal.value.message and refusal.value.message.endswith(".")
    assert house.hub.fetched == []


@pytest.mark.parametrize(
    ("name", "config", "says"),
    [
        ("o/n", {"model_type": "qwen3_5"}, "o/n is a Qwen3.8-27B checkpoint, which is not part of this version; it "),
        ("o/n", dflash2.CONFIG, "o/n drafts for Qwen3.8-27B, which is not part of this version; it serves: llama"),
        (
            "z-lab/Qwen3.8-27B-DFlash2",
            {"model_type": "dflash"},
            "z-lab/Qwen3.8-27B-DFlash2 drafts for Qwen3.8-27B, which is not part of this version; it serves: llama",
        ),
    ],
)
def test_a_family_to_come_and_its_drafter_are_refused_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, config: Mapping[str, Any], says: str
) -> None:
    family_to_come(monkeypatch, catalogue.QWEN_27B)
    house = House(tmp_path, {name: config})
    with pytest.raises(RefusedError) as refusal:
        house.pull(name)
    assert says in refusal.value.message and house.hub.fetched == []


def test_the_drafter_of_a_served_family_is_pulled(tmp_path: Path) -> None:
    house = House(tmp_path, {"z-lab/Qwen3.8-27B-DFlash2": dflash2.CONFIG})
    pulled = house.pull("z-lab/Qwen3.8-27B-DFlash2")
    assert pulled.size == 4 and any("Qwen3.8-27B" in note for note in pulled.notes)


def test_all_words_are_read_before_the_first_is_pulled(tmp_path: Path) -> None:
    house = House(tmp_path, {"o/n": LLAMA})
    house.puller.check_names(["demo", "o/n", "o/n@v1"])
    for word in ("nothing", "./folder", "demo@8bit"):
        with pytest.raises(RefusedError, match=r"is not a repository such as owner/name .* nothing was downloaded\.$"):
            house.puller.check_names(["o/n", word])
    with pytest.raises(RefusedError, match="no name of a repository"):
        house.puller.check_names(["a--b/c"])


def test_a_side_file_that_is_ready_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family_with_a_side_file(monkeypatch, "mtp-4bit.safetensors")
    house = House(tmp_path, {"o/n": LLAMA})
    (house.folders["o/n"] / "mtp-4bit.safetensors").write_bytes(b"12")
    pulled = house.pull("o/n")
    assert (pulled.size, pulled.notes[0]) == (6, "mtp-4bit.safetensors is there")
