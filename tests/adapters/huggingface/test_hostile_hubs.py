"""Answers of a hub that lies, refuses or attacks: one sentence of ours, and nothing written outside the cache."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tensorfold.adapters.huggingface.faults import broken_off, disk_refusal
from tensorfold.application.ports.checkpoints import RefusedError
from tests.adapters.huggingface.hubs import REPO, TOKEN, config_of, hub_over, servable_files
from tests.fakes.hub_server import Entries, HubServer, hub_server

FILES = servable_files()
SHARDS = tuple(sorted(name for name in FILES if name.endswith(".safetensors")))
BIG = SHARDS[0]
CONFIGS = ("config.json", "generation_config.json")


@pytest.fixture
def server() -> Iterator[HubServer]:
    with hub_server() as made:
        made.add(REPO, FILES)
        yield made


def refused(server: HubServer, folder: Path, repo: str = REPO, revision: str | None = None, **settings: Any) -> str:
    """The one sentence of a refused fetch, in which no word of the server's stands and no token."""
    with pytest.raises(RefusedError) as refusal:
        hub_over(server, folder, **settings).fetch(repo, revision, lambda line: None)
    message = refusal.value.message
    assert message.endswith(".") and message.isprintable() and len(message) < 600, message
    assert "library" not in message and TOKEN not in message and "Traceback" not in message
    return message


def entry(name: str, **fields: Any) -> Callable[[Entries], Entries]:
    """The list with one entry's fields changed."""
    return lambda entries: [e | fields if e["path"] == name else e for e in entries]


def added(path: object) -> Callable[[Entries], Entries]:
    return lambda entries: [*entries, {"type": "file", "path": path, "size": 1, "oid": "0" * 40}]


PATHS = ("../evil", "/etc/passwd", "a/../../evil", "a//b", "./a", "..", "C:evil", "..\\evil", "a/\0")
NO_PATHS = ("", None, 7, "x" * 2000)
TARGETS = ("../../../etc/passwd", "/etc/passwd", "x/y.safetensors", "run.py", "nope.safetensors")


@pytest.mark.parametrize("path", [*PATHS, *NO_PATHS])
def test_a_path_that_leads_out_of_the_folder_refuses_the_whole_list(
    server: HubServer, tmp_path: Path, path: object
) -> None:
    server.mischief.entries = added(path)
    message = refused(server, tmp_path)
    assert ("leads out of the folder" if path in PATHS else "without a path that can be read") in message
    assert server.files_asked() == CONFIGS


LISTS: dict[str, Any] = {
    "is not JSON": b"<html>not a hub</html>",
    "is not a JSON array": b'{"error": "a library says so"}',
    "without a path that can be read": b"[1]",
    "is larger than the": b"[" + b" " * (33 << 20) + b"]",
}


@pytest.mark.parametrize("says", LISTS)
def test_a_list_that_is_none_is_refused(server: HubServer, tmp_path: Path, says: str) -> None:
    server.mischief.list_body = LISTS[says]
    assert says in refused(server, tmp_path)
    assert server.files_asked() == CONFIGS


def test_a_deep_list_is_refused(server: HubServer, tmp_path: Path) -> None:
    server.mischief.list_body = b"[" * 200_000
    assert "is not JSON" in refused(server, tmp_path)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"size": -1}, "states two sizes"),
        ({"size": True, "lfs": None}, "states no size"),
        ({"size": 1 << 60, "lfs": None}, "states no size"),
        ({"size": "9", "lfs": None}, "states no size"),
        ({"oid": "../../x", "lfs": None}, "states no digest"),
        ({"oid": None, "lfs": None}, "states no digest"),
        ({"lfs": {"oid": "../../../x", "size": len(FILES[BIG])}}, "states no digest"),
        ({"lfs": {"oid": "0" * 40, "size": len(FILES[BIG])}}, "states no digest"),
        ({"lfs": 7}, "states no digest"),
        ({"type": "symlink"}, "is no file but a link"),
        ({"path": SHARDS[1]}, "twice"),
    ],
)
def test_sizes_digests_and_links_that_no_file_has_are_refused(
    server: HubServer, tmp_path: Path, fields: dict[str, Any], says: str
) -> None:
    server.mischief.entries = entry(BIG, **fields)
    assert says in refused(server, tmp_path)
    assert server.files_asked() == CONFIGS


def test_files_nobody_needs_may_be_anything(server: HubServer, tmp_path: Path) -> None:
    server.mischief.entries = lambda entries: [
        *entries, {"type": "symlink", "path": "link.py", "size": -1}, {"type": "directory", "path": "original"},
    ]  # fmt: skip
    hub_over(server, tmp_path).fetch(REPO, None, lambda line: None)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_small_file_that_is_large_is_refused_unread(server: HubServer, tmp_path: Path, name: str) -> None:
    server.mischief.entries = entry(name, size=1 << 30)
    assert f"{name} of org/model has 1,073,741,824 bytes" in refused(server, tmp_path)
    assert server.files_asked() == CONFIGS


def test_a_config_that_goes_on_and_on_is_cut(server: HubServer, tmp_path: Path) -> None:
    server.mischief.sent = {"config.json": b" " * (5 << 20)}
    assert "config.json of org/model is larger than the 4,194,304 bytes" in refused(server, tmp_path)


def test_other_bytes_than_the_list_states_are_removed_and_refused(server: HubServer, tmp_path: Path) -> None:
    server.mischief.sent = {BIG: b"\0" * len(FILES[BIG])}
    assert "came with other bytes than the hub's list states" in refused(server, tmp_path)
    assert server.mischief.sent[BIG] not in [path.read_bytes() for path in tmp_path.glob("**/blobs/*")]
    server.mischief.sent = {}
    hub_over(server, tmp_path).fetch(REPO, None, lambda line: None)


@pytest.mark.parametrize("change", [-1, 1])
def test_a_file_of_another_size_is_refused(server: HubServer, tmp_path: Path, change: int) -> None:
    server.mischief.sent = {BIG: (FILES[BIG] + b"x")[: len(FILES[BIG]) + change]}
    size = len(FILES[BIG])
    assert f"has {size:,} bytes in the hub's list and {size + change:,} where it is" in refused(server, tmp_path)


def test_a_file_that_goes_on_and_on_is_cut(server: HubServer, tmp_path: Path) -> None:
    server.mischief.surplus = {BIG: 4 << 20}
    assert f"More bytes come for {BIG} of org/model than the" in refused(server, tmp_path)
    assert all(path.stat().st_size <= len(FILES[BIG]) for path in tmp_path.glob("**/blobs/*"))


@pytest.mark.parametrize("commit", ["", "main", "../../x", "A" * 40, "0" * 39])
def test_a_commit_that_is_no_commit_is_refused(server: HubServer, tmp_path: Path, commit: str) -> None:
    server.mischief.commit = commit
    assert "does not say which commit" in refused(server, tmp_path)


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/x", "http://[::1", "http://127.0.0.1:x/"])
def test_a_redirect_to_a_place_that_is_none_is_refused(server: HubServer, tmp_path: Path, location: str) -> None:
    server.mischief.location = location
    message = refused(server, tmp_path)
    # Some versions of the HTTP library give up on an address that cannot be read before it is looked at here.
    words = ("without a safe connection", "an address that cannot be read", "cannot be used now")
    assert any(part in message for part in (words[1:] if location.startswith("http") else words[:1]))
    assert server.weights_asked() == 0


def test_a_redirect_from_a_safe_connection_to_an_open_one_is_refused(tmp_path: Path) -> None:
    class Answer:
        status_code, headers = 302, {"location": "http://elsewhere.invalid/x"}

    class Session:
        """Answers every question with a redirect to an open connection."""

        @contextmanager
        def stream(self, method: str, url: str, **given: Any) -> Iterator[Answer]:
            assert url.startswith("https://hub.invalid/")
            yield Answer()

    with hub_server() as server:
        message = refused(server, tmp_path, endpoint="https://hub.invalid", session=Session)
    assert "redirects to a place without a safe connection" in message


@pytest.mark.slow
def test_redirects_without_end_are_refused(server: HubServer, tmp_path: Path) -> None:
    server.mischief.location = f"{server.url}/{REPO}/resolve/main/{BIG}"
    assert "from place to place without end" in refused(server, tmp_path)


def test_a_list_that_goes_on_elsewhere_is_refused(server: HubServer, tmp_path: Path) -> None:
    server.mischief.page, server.mischief.next_page = 3, "https://elsewhere.invalid/api/list"
    assert "goes on at another place" in refused(server, tmp_path)


def test_a_list_without_end_is_refused(server: HubServer, tmp_path: Path) -> None:
    server.mischief.entries = lambda entries: [
        {"type": "file", "path": f"n{n}", "size": 0, "oid": "0" * 40} for n in range(300)
    ]
    server.mischief.page = 1
    assert "more than 100 pages" in refused(server, tmp_path)


def test_a_token_goes_to_the_hub_and_never_to_its_store(server: HubServer, tmp_path: Path) -> None:
    server.tokens = (TOKEN,)
    server.add(REPO, FILES, gated=True, let_in=(TOKEN,))
    hub_over(server, tmp_path, token=lambda: TOKEN).fetch(REPO, None, lambda line: None)
    assert {asked.token for asked in server.requests if asked.store} == {""}
    assert {asked.token for asked in server.requests if not asked.store} == {TOKEN}


def test_gated_without_and_with_a_token_missing_and_private_are_told_apart(server: HubServer, tmp_path: Path) -> None:
    server.tokens = (TOKEN,)
    server.add(REPO, FILES, gated=True)
    server.add("org/private", FILES, private=True)
    keyed: dict[str, Any] = {"token": lambda: TOKEN}
    says = {
        (REPO, None): "org/model is gated; accept its terms on its page of the hub, then give that account's token",
        (REPO, TOKEN): "org/model is gated, and the account of this token has not been let in; accept its terms",
        ("org/private", None): "org/private: the hub shows no such repository; check the name, or, if it is private, "
        "give a token in HF_TOKEN.",
        ("org/nothing", TOKEN): "org/nothing: the hub shows no such repository; check the name, or, if it is private, "
        "give a token in HF_TOKEN that may read it.",
    }
    for (repo, token), words in says.items():
        assert words in refused(server, tmp_path, repo, **(keyed if token else {}))
    assert server.files_asked() == ()


def test_an_unknown_revision_is_told_from_an_unknown_repository(server: HubServer, tmp_path: Path) -> None:
    message = refused(server, tmp_path, REPO, "nope")
    assert message == "org/model@nope: the hub has the repository but no such revision; name a branch, tag or commit."


def test_a_token_the_hub_does_not_take_leaves_public_repositories(server: HubServer, tmp_path: Path) -> None:
    said: list[str] = []
    hub_over(server, tmp_path, token=lambda: TOKEN).fetch(REPO, None, said.append)
    assert said[0] == "the hub does not take the token in HF_TOKEN, or the stored one; asking without a token"
    for repo in ("org/nothing", "org/gated"):
        server.add("org/gated", FILES, gated=True)
        message = refused(server, tmp_path, repo, token=lambda: TOKEN)
        assert f"{repo}: the hub does not take the token in HF_TOKEN, or the stored one" in message


def test_a_repository_without_a_config_is_no_checkpoint(server: HubServer, tmp_path: Path) -> None:
    server.add("org/data", {"README.md": b""})
    assert refused(server, tmp_path, "org/data").startswith("org/data has no config.json on the hub")


@pytest.mark.parametrize(
    ("status", "headers", "says"),
    [
        (403, {}, "the hub forbids access (403)"),
        (418, {}, "answered with status 418"),
        (429, {"Retry-After": "600"}, "limits how often it is asked; try again in 600 seconds"),
        (503, {}, "cannot be used now: it answered 503"),
        (429, {}, "cannot be used now: it limits how often it is asked"),
    ],
)
def test_other_answers_are_sentences_too(
    server: HubServer, tmp_path: Path, status: int, headers: dict[str, str], says: str
) -> None:
    server.mischief.status = {"config.json": [(status, headers)] * 9}
    assert says in refused(server, tmp_path)


def without(*names: str) -> dict[str, bytes]:
    return {name: data for name, data in FILES.items() if name not in names}


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (without(SHARDS[1]), f"has not all of its weights on the hub: {SHARDS[1]} is not there"),
        (without(*SHARDS[1:]), f"{SHARDS[1]}, {SHARDS[2]} are not there"),
        (without("tokenizer.json"), "lacks tokenizer.json on the hub"),
        (without("model.safetensors.index.json"), "lacks model.safetensors on the hub"),
        (without(*SHARDS, "model.safetensors.index.json") | {"pytorch_model.bin": b"x"}, "lacks model.safetensors"),
        ({"config.json": config_of(FILES, model_type="other"), "model.bin": b"x"}, "holds no safetensors file"),
    ],
)
@pytest.mark.slow
def test_what_lacks_is_named_before_a_weight_is_fetched(
    server: HubServer, tmp_path: Path, files: dict[str, bytes], says: str
) -> None:
    server.repositories.clear()
    server.add(REPO, files)
    assert says in refused(server, tmp_path)
    assert server.weights_asked() == 0


@pytest.mark.parametrize(
    "target", ["../../../etc/passwd", "/etc/passwd", "x/y.safetensors", "run.py", "nope.safetensors"]
)
def test_an_index_that_names_no_shard_of_the_repository_is_refused(
    server: HubServer, tmp_path: Path, target: str
) -> None:
    index = json.loads(FILES["model.safetensors.index.json"])
    index["weight_map"][next(iter(index["weight_map"]))] = target
    server.add(REPO, {**FILES, "model.safetensors.index.json": json.dumps(index).encode()})
    message = refused(server, tmp_path)
    assert "a shard is a plain file name" in message or "lacks nope.safetensors on the hub" in message
    assert server.weights_asked() == 0


def test_a_folder_of_the_cache_that_is_a_link_is_not_written_through(server: HubServer, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    root = tmp_path / "hub" / "models--org--model"
    root.mkdir(parents=True)
    (root / "blobs").symlink_to(tmp_path / "elsewhere")
    assert "is a link; remove it" in refused(server, tmp_path)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_part_or_a_file_that_is_a_link_is_not_written_through(server: HubServer, tmp_path: Path) -> None:
    folder = hub_over(server, tmp_path).fetch(REPO, None, lambda line: None)
    victim = tmp_path / "victim"
    victim.write_bytes(b"v" * len(FILES[BIG]))
    blob = (folder / BIG).resolve()
    blob.unlink()
    (folder / BIG).unlink()
    (folder / BIG).symlink_to(victim)
    blob.symlink_to(victim)
    assert hub_over(server, tmp_path).fetch(REPO, None, lambda line: None) == folder
    assert (folder / BIG).read_bytes() == FILES[BIG] and victim.read_bytes() == b"v" * len(FILES[BIG])
    blob.unlink()
    blob.with_name(f"{blob.name}.tensorfold.incomplete").symlink_to(victim)
    assert "could not be kept in" in refused(server, tmp_path)
    assert victim.read_bytes() == b"v" * len(FILES[BIG])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_that_may_not_be_written_is_refused(server: HubServer, tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir(mode=0o500)
    assert "this user may not write there" in refused(server, tmp_path)


def test_a_cache_in_the_place_of_a_file_is_refused(server: HubServer, tmp_path: Path) -> None:
    (tmp_path / "hub").write_text("")
    assert "could not be kept in" in refused(server, tmp_path)


def test_an_address_that_is_none_is_refused_without_the_password_in_it(server: HubServer, tmp_path: Path) -> None:
    message = refused(server, tmp_path, endpoint="nowhere")
    assert message.startswith("The hub at nowhere cannot be used now: its address cannot be read;")
    message = refused(server, tmp_path, endpoint="http://me:secret@127.0.0.1:9/mirror")
    assert message.startswith("The hub at http://127.0.0.1:9/mirror cannot be used now: nothing listens there;")


def test_a_cache_whose_name_cannot_be_shown_is_refused_on_one_line(server: HubServer, tmp_path: Path) -> None:
    place = tmp_path / "two\nlines"
    place.write_text("")
    assert "two?lines" in refused(server, tmp_path, cache=place)


def test_faults_of_disks_and_connections_have_words_of_our_own() -> None:
    for error, words in ((28, "the disk is full"), (13, "may not write"), (5, "system error EIO")):
        assert words in disk_refusal(Path("cache"), OSError(error, "a library's words")).message

    class ConnectError(Exception):
        """As the HTTP libraries name theirs."""

    class ReadTimeout(type("TimeoutException", (Exception,), {})):  # type: ignore[misc]
        """Likewise."""

    class ProxyError(Exception):
        """Likewise."""

    class DecodingError(Exception):
        """Likewise."""

    class ConnectTimeout(type("TimeoutException", (Exception,), {})):  # type: ignore[misc]
        """Likewise."""

    said: dict[str, Exception] = {
        "its certificate is not trusted here": ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED]"),
        "nothing listens there": ConnectError("[Errno 111] Connection refused"),
        "its name is not known here": ConnectError("[Errno -2] Name or service not known"),
        "no connection could be made": ConnectError("?"),
        "it stopped answering": ReadTimeout(),
        "it did not answer in time": ConnectTimeout(),
        "the proxy refused": ProxyError(),
        "its answer cannot be read": DecodingError(),
        "the connection broke off": Exception("?"),
    }
    for words, fault in said.items():
        assert broken_off(fault).reason.endswith(words)
