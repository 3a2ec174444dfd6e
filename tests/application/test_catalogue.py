"""A word on the command line leads to one folder, or to one sentence; a hub is asked only when it must be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tensorfold.application.catalogue import ModelSources, RepoName, parse_repo
from tensorfold.application.checkpoint_notes import notes, special_terms
from tensorfold.application.ports.checkpoints import CheckpointFacts, ModelHub, RefusedError, Transfer
from tests.fakes.checkpoints import FakeCheckpointReader, FakeModelHub, FakeWeightPackage


def facts_of(folder: Path, **config: Any) -> CheckpointFacts:
    return CheckpointFacts(folder, config, {}, {}, 0, "digest")


class House:
    """A package, a hub with one repository, and what was checked and said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "repo"
        self.hub = FakeModelHub({"org/model": self.folder, "org/model@v2": self.folder})
        self.package = FakeWeightPackage({"demo": folder / "demo"})
        self.hubs_made = 0
        reader = FakeCheckpointReader({self.folder: facts_of(self.folder, model_type="llama")})
        self.sources = ModelSources(self.package, self._hub, reader)
        self.checked: list[Any] = []
        self.said: list[str] = []
        self.moved: list[Transfer] = []

    def _hub(self) -> ModelHub:
        self.hubs_made += 1
        return self.hub

    def locate(self, model: str) -> Path:
        return self.sources.locate(model, self.said.append, check=self.checked.append, on_transfer=self.moved.append)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_a_package_or_a_folder_needs_no_hub(house: House, tmp_path: Path) -> None:
    assert house.locate("demo") == tmp_path / "demo"
    assert house.locate(str(tmp_path)) == tmp_path
    assert house.hubs_made == 0


def test_a_repository_is_checked_by_its_config_then_fetched(house: House) -> None:
    assert house.locate("org/model@v2") == house.folder
    assert house.checked == [{"model_type": "llama"}]
    assert house.hub.fetched == [("org/model", "v2")] and house.moved
    note = "it is not on the list of tested checkpoints: it runs, and exactly, but its speed was not measured"
    assert house.said == [
        "org/model@v2 is not complete on this machine; asking the hub for the rest",
        "fetching org/model",
        f"org/model@v2: {note}",
    ]


def test_a_repository_that_is_refused_by_its_config_is_not_fetched(house: House) -> None:
    def refuse(config: Any) -> None:
        raise RefusedError("no.")

    with pytest.raises(RefusedError):
        house.sources.locate("org/model", house.said.append, check=refuse)
    assert house.hub.fetched == []


def test_a_repository_that_is_complete_here_is_taken_without_asking(house: House) -> None:
    house.hub.here.add("org/model")
    assert house.locate("org/model") == house.folder
    assert (house.checked, len(house.said), house.hub.asked) == ([], 1, set())


def test_a_folder_stands_before_a_repository_of_its_name(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "org" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert house.locate("org/model") == Path("org/model")
    assert house.locate("org/model/") == Path("org/model")
    assert house.hubs_made == 0


WORDS = ("no such thing", "a/b/c", "/x", "a/", "../b", "a/b@", "a/b@c/d", "demo@8bit", "a\x1bb")


@pytest.mark.parametrize("word", WORDS)
def test_a_word_that_names_nothing_is_refused_with_what_there_is(house: House, word: str) -> None:
    with pytest.raises(RefusedError) as refusal:
        house.locate(word)
    message = refusal.value.message
    assert "is neither a folder, nor a repository such as owner/name, nor one of demo." in message
    assert message.isprintable() and house.hubs_made == 0


def test_names_of_repositories_are_parsed() -> None:
    assert parse_repo("Owner/na-me_1.5") == RepoName("Owner/na-me_1.5", None)
    assert parse_repo("o/n@3.05bpw_h5") == RepoName("o/n", "3.05bpw_h5")
    assert str(parse_repo("o/n@v1")) == "o/n@v1" and str(parse_repo("o/n")) == "o/n"
    assert parse_repo("name") is parse_repo("-o/n") is parse_repo("o/n@") is parse_repo("o/n\n") is None


@pytest.mark.parametrize("name", ["a--b/c", "a/b--c", "a/b..c", "a/b@..", "a/b@x..y", f"a/{'b' * 95}"])
def test_names_that_could_stand_for_another_repository_are_refused(name: str) -> None:
    if "@.." in name:
        assert parse_repo(name) is None
        return
    with pytest.raises(RefusedError, match="no name of a repository"):
        parse_repo(name)


def test_terms_that_restrict_use_are_said_and_listed_ones_of_a_served_family_are_not_noted() -> None:
    assert list(notes("incoai/GLM-5.3-Flash-DFlash2", {"model_type": "llama"}))[-1] == (
        "licence: CC BY-NC-ND 4.0. The weights may not be used commercially or passed on in changed form"
    )
    assert list(notes("demo", {"model_type": "llama"})) == []
    assert special_terms("Vontra/GLM-5.3-Flash-MLX-4bit-MTP") is special_terms("o/n") is None
