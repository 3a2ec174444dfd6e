"""Commands where checkpoints are damaged or stored oddly, hubs never answer, and paths are written in other ways."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.huggingface.hubs import REPO
from tests.end_to_end.bad_folders import BadFolder, folders, laid
from tests.end_to_end.clients import get, post
from tests.end_to_end.commands import NO_CHECK, Ran, free_port, in_process
from tests.end_to_end.hub_place import Place, place
from tests.end_to_end.served import at_once, client_of, served, whole
from tests.synthetic.llama_checkpoints import Layout
from tests.synthetic.servable import SERVABLE, write_servable

FOLDERS = {folder.name: folder for folder in folders() if folder.kind == "checkpoint"}
DOWN, OUT = "model.layers.0.mlp.down_proj", "model.layers.0.self_attn.o_proj"
SIX: dict[str, int] = {"bits": 6, "group_size": 32}


def serve(folder: BadFolder, home: Path) -> Ran:
    return in_process(["serve", str(laid(folder, home)), "--port", str(free_port())])


def test_a_shard_that_the_index_names_and_nobody_downloaded_is_named(tmp_path: Path) -> None:
    ran = serve(FOLDERS["one_shard_missing"], tmp_path)
    assert ran.refusal_faults() == []
    assert "model-00002-of-00002.safetensors" in ran.err
    assert "download" in ran.err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("weights_cut_in_half", ("model.safetensors", "11963", "23926")),
        ("weights_cut_by_one", ("model.safetensors", "23925", "23926")),
        ("weights_empty", ("model.safetensors", "0 bytes")),
        ("weights_page", ("model.safetensors", "no safetensors file")),
        ("header_2_to_60", ("model.safetensors", str(2**60))),
        ("index_cut", ("model.safetensors.index.json",)),
    ],
)
def test_a_damaged_file_is_named_with_its_sizes_and_not_served(
    name: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    ran = serve(FOLDERS[name], tmp_path)
    assert ran.refusal_faults() == []
    assert [word for word in words if word not in ran.err] == []


def written(folder: Path, overrides: dict[str, Layout | None], change: Callable[[dict[str, Any]], None]) -> Path:
    """A quantized checkpoint with modules stored otherwise, its configuration changed."""
    folder.mkdir(parents=True)
    write_servable(folder, replace(SERVABLE, quantization=Layout(4, 32), overrides=overrides))
    config = json.loads((folder / "config.json").read_text())
    change(config["quantization"])
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def unchanged(stated: dict[str, Any]) -> None:
    pass


def unsaid(stated: dict[str, Any]) -> None:
    del stated[DOWN], stated[OUT]


def respelled(stated: dict[str, Any]) -> None:
    stated[f"language_model.{DOWN}"] = stated.pop(DOWN)
    stated[OUT.replace("model.", "model.language_model.", 1)] = stated.pop(OUT)


@pytest.mark.slow
def test_modules_of_other_widths_are_read_at_their_own_however_their_path_is_spelled(tmp_path: Path) -> None:
    stored: dict[str, Layout | None] = {DOWN: Layout(6, 32), OUT: None}
    fingerprints = set()
    with ExitStack() as stack:
        servers = []
        for change in (unchanged, unsaid, respelled):
            home = tmp_path / change.__name__
            written(home / "model", stored, change)
            servers.append(stack.enter_context(served(["serve", "model", "--port", "0"], home)))
        for server in servers:
            with client_of(server.port) as client:
                fingerprints.add(whole(client, "hello", max_tokens=60, ignore_eos=True).sha)
    assert len(fingerprints) == 1


def test_a_module_of_another_width_than_is_stated_is_refused_by_its_name(tmp_path: Path) -> None:
    folder = written(tmp_path / "model", {}, lambda stated: stated.update({DOWN: SIX}))
    ran = in_process(["serve", str(folder), "--port", str(free_port())])
    assert ran.refusal_faults() == []
    assert f"6 bits in groups of 32 for {DOWN}.weight" in ran.err
    assert "4 bits in groups of 32" in ran.err


@contextmanager
def nobody() -> Iterator[socket.socket]:
    """A place that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        listener.setblocking(False)
        yield listener


def calls(listener: socket.socket) -> int:
    """Connections that were made to it."""
    count = 0
    while True:
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


@contextmanager
def serving(here: Place, **variables: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server of the model in the cache once it serves, and its port."""
    process = here.start("serve", REPO, "--port", "0", "--context", "64", **variables)
    try:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "] serving " in line)
        yield process, int(line.partition("/v1 (")[0].rpartition(":")[2])
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("offline", ["", "1"])
def test_a_complete_model_is_served_though_neither_hub_nor_proxy_nor_releases_ever_answer(
    offline: str, tmp_path: Path
) -> None:
    with place(tmp_path) as here, nobody() as hub, nobody() as proxy, nobody() as site:
        assert here.here("pull", REPO).code == 0
        hub_url, proxy_url, site_url = (f"http://127.0.0.1:{each.getsockname()[1]}" for each in (hub, proxy, site))
        variables = {"HF_ENDPOINT": hub_url, "HTTP_PROXY": proxy_url, "HTTPS_PROXY": proxy_url, "NO_PROXY": ""}
        variables |= {"TENSORFOLD_PROJECT_URL": site_url.replace("http", "https") + "/o/n", NO_CHECK: ""}
        with serving(here, HF_HUB_OFFLINE=offline, **variables) as (_, port):
            assert [one["id"] for one in get(port, "/v1/models")[1]["data"]] == ["model"]
            assert post(port, "/v1/completions", b'{"prompt": "hello", "max_tokens": 2}').status == 200
        assert calls(hub) == 0


@pytest.mark.slow
def test_a_folder_is_the_same_model_however_its_path_is_written(tmp_path: Path) -> None:
    name = "mé model ř"
    (tmp_path / name).mkdir()
    write_servable(tmp_path / name)
    forms = (name, f"./{name}/", str(tmp_path / name) + "//", f"../{tmp_path.name}/{name}", f"~/{name}")
    with ExitStack() as stack:
        servers = []
        for number, form in enumerate(forms):
            home = tmp_path if number == 0 else tmp_path / f"home-{number}"
            home.mkdir(exist_ok=True)
            if number:
                (home / name).symlink_to(tmp_path / name)
            form = form.replace(f"../{tmp_path.name}", f"../{home.name}")
            servers.append(stack.enter_context(served(["serve", form, "--port", "0"], home)))
        ids = [get(server.port, "/v1/models")[1]["data"][0]["id"] for server in servers]
    assert ids == [name] * len(forms)


def test_one_line_says_what_a_path_lacks_when_it_names_no_folder(tmp_path: Path) -> None:
    for form in (str(tmp_path / "not here") + "/", f"~{os.sep}nowhere"):
        ran = in_process(["serve", form, "--port", str(free_port())])
        assert ran.refusal_faults() == []


@pytest.mark.slow
def test_forty_chats_over_every_thread_are_answered_while_the_record_is_looked_at_and_emptied(tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    write_servable(tmp_path / "tiny")
    contents = [f"hello {number}" for number in range(8)]
    with ExitStack() as stack:
        server = stack.enter_context(served(_recording("tiny", "record"), tmp_path))
        client = stack.enter_context(client_of(server.port))
        solo = [whole(client, content, max_tokens=8) for content in contents]
        for _ in range(5):
            assert at_once(client, contents, max_tokens=8) == solo
            assert [_record(server.port, method) for method in ("GET", "DELETE", "GET")] == [200] * 3


@pytest.mark.slow
def test_a_record_in_use_is_read_and_after_a_kill_its_lock_is_free(tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    write_servable(tmp_path / "tiny")
    record = str(tmp_path / "record")
    with ExitStack() as stack:
        first = stack.enter_context(served(_recording("tiny", record), tmp_path))
        assert first.wait_for("] recall: on,")
        first.wait_for("] serving ")
        second = stack.enter_context(served(_recording("../tiny", record), _home(tmp_path / "second")))
        assert second.wait_for("] recall: second (")
        with client_of(second.port) as client:
            assert whole(client, "hello", max_tokens=4).finish in ("stop", "length")
        assert [_record(second.port, method) for method in ("GET", "DELETE")] == [200, 409]
        first.command.kill()
        third = stack.enter_context(served(_recording("../tiny", record), _home(tmp_path / "third")))
        assert third.wait_for("] recall: on,")
        assert [_record(third.port, method) for method in ("GET", "DELETE")] == [200, 200]


def _recording(model: str, record: str) -> list[str]:
    return ["serve", model, "--port", "0", "--recall-dir", record]


def _home(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _record(port: int, method: str) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, "/v1/recall")
        return connection.getresponse().status
    finally:
        connection.close()
