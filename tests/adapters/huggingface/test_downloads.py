"""A checkpoint comes whole or in parts that are gone on from, whatever the hub does; nothing else is asked for."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tensorfold.application.ports.checkpoints import RefusedError, Transfer
from tests.adapters.huggingface.hubs import REPO, config_of, hub_over, parts_of, servable_files
from tests.fakes.hub_server import HubServer, hub_server
from tests.fakes.machine import FakeDisk

FILES = servable_files()
SHARDS = tuple(sorted(name for name in FILES if name.endswith(".safetensors")))
BIG = SHARDS[0]


@pytest.fixture
def server() -> Iterator[HubServer]:
    with hub_server() as made:
        made.add(REPO, FILES)
        yield made


def quiet(line: str) -> None:
    """Nobody listens."""


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def partials(folder: Path) -> list[int]:
    return parts_of(folder / "hub")


@pytest.mark.slow
def test_only_the_configuration_is_asked_for_at_first(server: HubServer, tmp_path: Path) -> None:
    folder = hub_over(server, tmp_path).fetch_config(REPO, None)
    assert contents(folder) == {name: FILES[name] for name in ("config.json", "generation_config.json")}
    assert server.files_asked() == ("config.json", "generation_config.json")


def test_a_checkpoint_comes_whole_and_is_not_asked_for_again(server: HubServer, tmp_path: Path) -> None:
    hub = hub_over(server, tmp_path)
    folder = hub.fetch(REPO, None, quiet)
    assert contents(folder) == FILES == contents(hub.cached(REPO, None) or Path())
    assert server.weights_asked() == sum(len(FILES[name]) for name in SHARDS)
    server.forget()
    moved: list[Transfer] = []
    assert hub_over(server, tmp_path).fetch(REPO, None, quiet, moved.append) == folder
    assert server.files_asked() == ("config.json", "generation_config.json")
    assert moved[-1].done == moved[-1].total == sum(map(len, FILES.values()))


def test_code_pickles_and_folders_are_never_asked_for(server: HubServer, tmp_path: Path) -> None:
    strangers = {"modeling_x.py": b"import os", "pytorch_model.bin": b"\x80", "original/model.safetensors": b"x",
                 "README.md": b"words", "notes.safetensors": b"no shard of the index"}  # fmt: skip
    server.add(REPO, {**FILES, **strangers})
    assert contents(hub_over(server, tmp_path).fetch(REPO, None, quiet)) == FILES
    assert not set(server.files_asked()) & set(strangers)


def test_a_download_that_breaks_off_goes_on_from_its_last_byte(server: HubServer, tmp_path: Path) -> None:
    server.mischief.cuts = {BIG: [100_000, 7, 0]}
    said: list[str] = []
    folder = hub_over(server, tmp_path).fetch(REPO, None, said.append)
    assert contents(folder) == FILES
    assert server.asked[BIG] == len(FILES[BIG]) and partials(tmp_path) == []
    assert f"{BIG}: the connection broke off; going on from byte 100,007" in said


def test_a_later_process_goes_on_where_an_earlier_one_ended(server: HubServer, tmp_path: Path) -> None:
    server.mischief.cuts = {BIG: [50_000, *[0] * 20]}
    with pytest.raises(RefusedError, match="cannot be used now"):
        hub_over(server, tmp_path).fetch(REPO, None, quiet)
    assert max(partials(tmp_path)) == 50_000
    assert hub_over(server, tmp_path).cached(REPO, None) is None
    server.mischief.cuts = {}
    kept = sum(partials(tmp_path))
    before = server.weights_asked()
    assert contents(hub_over(server, tmp_path).fetch(REPO, None, quiet)) == FILES
    whole = sum(path.stat().st_size for path in (tmp_path / "hub").glob("**/blobs/*") if len(path.name) == 64)
    assert before >= kept and server.weights_asked() == whole


def test_a_part_that_was_damaged_is_fetched_anew(server: HubServer, tmp_path: Path) -> None:
    server.mischief.cuts = {BIG: [50_000, *[0] * 20]}
    with pytest.raises(RefusedError):
        hub_over(server, tmp_path).fetch(REPO, None, quiet)
    for path in (tmp_path / "hub").glob("**/*.incomplete"):
        path.write_bytes(b"\0" * path.stat().st_size)
    server.mischief.cuts = {}
    assert contents(hub_over(server, tmp_path).fetch(REPO, None, quiet)) == FILES


def test_a_part_longer_than_the_file_is_fetched_anew(server: HubServer, tmp_path: Path) -> None:
    server.mischief.cuts = {BIG: [1, *[0] * 20]}
    with pytest.raises(RefusedError):
        hub_over(server, tmp_path).fetch(REPO, None, quiet)
    for path in (tmp_path / "hub").glob("**/*.incomplete"):
        path.write_bytes(b"\0" * 1_000_000)
    server.mischief.cuts = {}
    assert contents(hub_over(server, tmp_path).fetch(REPO, None, quiet)) == FILES


def test_a_hub_that_ignores_ranges_sends_the_file_from_its_beginning(server: HubServer, tmp_path: Path) -> None:
    server.mischief.cuts, server.mischief.ignores_ranges = {BIG: [70_000]}, True
    moved: list[Transfer] = []
    assert contents(hub_over(server, tmp_path).fetch(REPO, None, quiet, moved.append)) == FILES
    assert server.asked[BIG] == 70_000 + len(FILES[BIG])
    assert moved[-1].done == moved[-1].total


def test_a_tired_hub_and_its_store_are_asked_again(server: HubServer, tmp_path: Path) -> None:
    server.mischief.status = {
        "config.json": [(503, {}), (429, {"Retry-After": "3"})],
        "": [(500, {}), (502, {})],
        BIG: [(403, {}), (503, {}), (429, {"Retry-After": "1"})],
    }
    assert contents(hub_over(server, tmp_path).fetch(REPO, None, quiet)) == FILES


def test_a_list_on_several_pages_is_read_to_its_end(server: HubServer, tmp_path: Path) -> None:
    server.mischief.page = 3
    assert contents(hub_over(server, tmp_path).fetch(REPO, None, quiet)) == FILES


def test_a_revision_is_kept_apart_and_the_main_branch_is_untouched(server: HubServer, tmp_path: Path) -> None:
    other = {**FILES, "generation_config.json": b'{"temperature": 0.5}'}
    repository = server.add(REPO, other, "3.05bpw_h5")
    hub = hub_over(server, tmp_path)
    folder = hub.fetch(REPO, "3.05bpw_h5", quiet)
    assert contents(folder) == other and folder.name == repository.commit("3.05bpw_h5")
    assert hub.cached(REPO, "3.05bpw_h5") == folder == hub.cached(REPO, folder.name)
    assert contents(hub.fetch(REPO, None, quiet)) == FILES
    by_commit = hub_over(server, tmp_path / "other").fetch(REPO, repository.commit("3.05bpw_h5"), quiet)
    assert contents(by_commit) == other and not (by_commit.parents[1] / "refs" / "main").exists()


def test_a_branch_moves_only_when_the_newer_commit_is_whole(server: HubServer, tmp_path: Path) -> None:
    older = hub_over(server, tmp_path).fetch(REPO, None, quiet)
    server.add(REPO, {**FILES, **servable_files(2), "generation_config.json": b"{}"})
    name = sorted(servable_files(2))[2]
    server.mischief.cuts = {shard: [10] + [0] * 20 for shard in servable_files(2) if shard.endswith(".safetensors")}
    hub = hub_over(server, tmp_path)
    hub.fetch_config(REPO, None)
    with pytest.raises(RefusedError):
        hub.fetch(REPO, None, quiet)
    assert name and hub.cached(REPO, None) == older
    server.mischief.cuts = {}
    newer = hub_over(server, tmp_path).fetch(REPO, None, quiet)
    assert newer != older and hub.cached(REPO, None) == newer


def test_offline_what_is_complete_is_taken_and_the_rest_refused_by_name(server: HubServer, tmp_path: Path) -> None:
    offline = hub_over(server, tmp_path, offline=True)
    with pytest.raises(RefusedError, match=r"^org/model is not complete on this machine, and HF_HUB_OFFLINE"):
        offline.fetch_config(REPO, None)
    folder = hub_over(server, tmp_path).fetch(REPO, None, quiet)
    server.forget()
    said: list[str] = []
    assert offline.fetch(REPO, None, said.append) == folder == offline.fetch_config(REPO, None)
    assert said == ["HF_HUB_OFFLINE is set: taking org/model as it is on this machine"]
    os.unlink(folder / BIG)
    with pytest.raises(RefusedError, match=rf"\(missing: {BIG}\), and HF_HUB_OFFLINE"):
        offline.fetch(REPO, None, quiet)
    assert server.requests == []


def test_a_hub_out_of_reach_leaves_what_is_complete(server: HubServer, tmp_path: Path) -> None:
    away = "http://127.0.0.1:9"
    with pytest.raises(RefusedError, match="nothing listens there"):
        hub_over(server, tmp_path, endpoint=away).fetch(REPO, None, quiet)
    folder = hub_over(server, tmp_path).fetch(REPO, None, quiet)
    said: list[str] = []
    hub = hub_over(server, tmp_path, endpoint=away)
    assert hub.fetch(REPO, None, said.append) == folder == hub.fetch_config(REPO, None)
    assert said[0].endswith("nothing listens there; taking org/model as it is on this machine")


@pytest.mark.slow
def test_a_hub_that_never_answers_is_given_up(server: HubServer, tmp_path: Path) -> None:
    gate = threading.Event()
    server.mischief.hold = {BIG: (0, gate)}
    with pytest.raises(RefusedError, match="it stopped answering"):
        hub_over(server, tmp_path, timeout=0.05).fetch(REPO, None, quiet)
    gate.set()


def test_a_cache_without_refs_counts_by_its_newest_snapshot_when_nobody_can_be_asked(
    server: HubServer, tmp_path: Path
) -> None:
    folder = hub_over(server, tmp_path).fetch(REPO, None, quiet)
    (folder.parents[1] / "refs" / "main").unlink()
    offline, away = hub_over(server, tmp_path, offline=True), hub_over(server, tmp_path, endpoint="http://127.0.0.1:9")
    assert offline.cached(REPO, None) == folder == away.fetch(REPO, None, quiet)
    assert offline.cached(REPO, "v2") is None
    server.forget()
    online = hub_over(server, tmp_path)
    assert online.cached(REPO, None) is None and online.known(REPO, None) == folder
    assert online.fetch(REPO, None, quiet) == folder == hub_over(server, tmp_path).cached(REPO, None)
    assert server.weights_asked() == 0


def test_another_branch_never_stands_in_for_the_main_one(server: HubServer, tmp_path: Path) -> None:
    server.add(REPO, servable_files(1), "v2")
    hub_over(server, tmp_path).fetch(REPO, "v2", quiet)
    offline = hub_over(server, tmp_path, offline=True)
    assert offline.cached(REPO, "v2") is not None and offline.cached(REPO, None) is offline.known(REPO, None) is None
    with pytest.raises(RefusedError, match="HF_HUB_OFFLINE"):
        offline.fetch(REPO, None, quiet)


def test_a_ref_that_is_no_commit_points_nowhere(server: HubServer, tmp_path: Path) -> None:
    folder = hub_over(server, tmp_path).fetch(REPO, None, quiet)
    for text in (b"../../../../etc", b"\xff", b""):
        (folder.parents[1] / "refs" / "main").write_bytes(text)
        assert hub_over(server, tmp_path).cached(REPO, None) is None


@pytest.mark.slow
def test_the_hubs_own_library_finds_what_was_downloaded(server: HubServer, tmp_path: Path) -> None:
    from huggingface_hub import snapshot_download, try_to_load_from_cache

    folder = hub_over(server, tmp_path).fetch(REPO, None, quiet)
    cache = str(tmp_path / "hub")
    assert snapshot_download(REPO, cache_dir=cache, local_files_only=True) == str(folder)
    assert try_to_load_from_cache(REPO, BIG, cache_dir=cache) == str(folder / BIG)


def test_what_the_hubs_own_library_downloaded_is_complete(server: HubServer, tmp_path: Path) -> None:
    from huggingface_hub import snapshot_download

    made = snapshot_download(
        REPO, cache_dir=tmp_path / "hub", endpoint=server.url, token=False, allow_patterns=["*.json", "model-*"]
    )
    folder = Path(made)
    server.forget()
    hub = hub_over(server, tmp_path)
    assert hub.cached(REPO, None) == folder == hub.fetch(REPO, None, quiet)
    assert server.files_asked() == ("config.json", "generation_config.json")


def test_two_downloads_at_once_fetch_each_byte_once(server: HubServer, tmp_path: Path) -> None:
    gate = threading.Event()
    server.mischief.hold = {BIG: (50_000, gate)}
    said: list[str] = []
    folders: list[Path] = []
    first = threading.Thread(target=lambda: folders.append(hub_over(server, tmp_path).fetch(REPO, None, quiet)))
    first.start()
    while not server.asked[BIG]:
        time.sleep(0.005)

    def waiting(line: str) -> None:
        said.append(line)
        gate.set()

    folders.append(hub_over(server, tmp_path).fetch(REPO, None, waiting))
    first.join()
    assert said[0] == "another process is downloading org/model; waiting for it"
    assert folders[0] == folders[1] and contents(folders[0]) == FILES
    assert server.weights_asked() == sum(len(FILES[name]) for name in SHARDS)


def test_a_disk_without_room_is_refused_before_the_first_weight(server: HubServer, tmp_path: Path) -> None:
    weights = sum(len(FILES[name]) for name in SHARDS)
    with pytest.raises(RefusedError, match=r"needs 0\.32 MB more in .*, where 0\.32 MB are free; make room, or name"):
        hub_over(server, tmp_path, FakeDisk(weights - 1)).fetch(REPO, None, quiet)
    assert server.weights_asked() == 0
    hub_over(server, tmp_path, FakeDisk(weights)).fetch(REPO, None, quiet)


def test_room_is_needed_only_for_what_lacks(server: HubServer, tmp_path: Path) -> None:
    server.mischief.cuts = {name: [40_000, *[0] * 20] for name in SHARDS}
    with pytest.raises(RefusedError, match="cannot be used now"):
        hub_over(server, tmp_path).fetch(REPO, None, quiet)
    server.mischief.cuts = {}
    left = sum(len(FILES[name]) for name in SHARDS) - sum(partials(tmp_path))
    with pytest.raises(RefusedError, match="make room"):
        hub_over(server, tmp_path, FakeDisk(left - 1)).fetch(REPO, None, quiet)
    hub_over(server, tmp_path, FakeDisk(left)).fetch(REPO, None, quiet)


@pytest.mark.slow
def test_an_interrupt_leaves_parts_and_no_thread_that_writes(server: HubServer, tmp_path: Path) -> None:
    gate = threading.Event()
    server.mischief.hold = {BIG: (100_000, gate)}

    def interrupt(moved: Transfer) -> None:
        if 100_000 in partials(tmp_path):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hub_over(server, tmp_path).fetch(REPO, None, quiet, interrupt)
    assert 100_000 in partials(tmp_path)
    server.mischief.hold = {}
    before = server.asked[BIG]
    assert contents(hub_over(server, tmp_path).fetch(REPO, None, quiet)) == FILES
    assert server.asked[BIG] - before == len(FILES[BIG]) - 100_000
    gate.set()


def test_a_drafter_of_no_known_family_brings_all_its_weights_and_needs_no_tokenizer(
    server: HubServer, tmp_path: Path
) -> None:
    drafter = {"config.json": config_of(FILES, model_type="dflash"), "a.safetensors": b"12", "b.safetensors": b"3"}
    server.add("org/drafter", {**drafter, "train.py": b""})
    hub = hub_over(server, tmp_path)
    assert contents(hub.fetch("org/drafter", None, quiet)) == drafter
    assert hub.cached("org/drafter", None) is not None


def test_a_cache_may_lie_below_any_name(server: HubServer, tmp_path: Path) -> None:
    hub = hub_over(server, tmp_path / "žluťoučký kůň, 数学")
    assert contents(hub.fetch(REPO, None, quiet)) == FILES and hub.cached(REPO, None) is not None


def test_two_names_of_the_same_bytes_bring_them_once(server: HubServer, tmp_path: Path) -> None:
    same = dict.fromkeys(("a.safetensors", "b.safetensors", "c.safetensors"), b"the same bytes" * 9000)
    files = {"config.json": config_of(FILES, model_type="dflash"), **same}
    server.add("org/drafter", files)
    moved: list[Transfer] = []
    folder = hub_over(server, tmp_path).fetch("org/drafter", None, quiet, moved.append)
    assert contents(folder) == files and server.weights_asked() == 14 * 9000
    assert moved[-1] == Transfer(14 * 9000 + len(files["config.json"]), 14 * 9000 + len(files["config.json"]))
