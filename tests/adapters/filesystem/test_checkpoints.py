"""What the reader says of good folders, what it never touches, and what its digest tells apart."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.adapters.filesystem import checkpoint_folder
from tensorfold.adapters.filesystem.checkpoint_folder import CheckpointFolder
from tensorfold.adapters.filesystem.checkpoint_limits import CheckpointLimits
from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.application.ports.checkpoints import CheckpointReader, RefusedError
from tests.adapters.filesystem.bad_checkpoints import (
    CONFIG,
    INDEX,
    NORM,
    SHARDS,
    TENSORS,
    WEIGHTS,
    WIDTH,
    header_of,
    write_good,
    write_good_shards,
    write_json,
    write_raw,
)

READER: CheckpointReader = FolderReader()


def made(folder: Path, write: Callable[[Path], None] = write_good) -> Path:
    folder.mkdir(parents=True)
    write(folder)
    return folder


def digest(folder: Path) -> str:
    return READER.facts(folder).digest


def test_a_good_folder_tells_its_config_tensors_and_sizes(tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    facts = READER.facts(folder)
    header, data = header_of(TENSORS)
    assert facts.folder == folder
    assert facts.config == CONFIG == READER.config(folder)
    assert facts.generation == {"bos_token_id": 1, "eos_token_id": 2}
    assert {name: (t.dtype, t.shape) for name, t in facts.tensors.items()} == TENSORS
    assert facts.weight_bytes == data
    begin = (folder / WEIGHTS).stat().st_size - data
    for name, tensor in facts.tensors.items():
        first, end = header[name]["data_offsets"]
        assert (tensor.name, tensor.file, tensor.begin, tensor.end) == (name, WEIGHTS, begin + first, begin + end)


def test_shards_hold_the_same_tensors_as_one_file(tmp_path: Path) -> None:
    facts = READER.facts(made(tmp_path / "m", write_good_shards))
    assert {name: (t.dtype, t.shape) for name, t in facts.tensors.items()} == TENSORS
    assert {t.file for t in facts.tensors.values()} == set(SHARDS)


def test_an_index_may_name_the_single_file(tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    write_json(folder / INDEX, {"metadata": {}, "weight_map": dict.fromkeys(TENSORS, WEIGHTS)})
    assert set(READER.facts(folder).tensors) == set(TENSORS)


def test_a_folder_without_generation_config_has_an_empty_one(tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    (folder / "generation_config.json").unlink()
    assert READER.facts(folder).generation == {}


@pytest.mark.parametrize("metadata", [None, {}, {"format": "mlx", "note": "[" * 5000}])
def test_header_metadata_is_free_text_or_null(tmp_path: Path, metadata: object) -> None:
    folder = made(tmp_path / "m")
    header, data = header_of(TENSORS)
    write_raw(folder / WEIGHTS, json.dumps({**header, "__metadata__": metadata}).encode() + b"   ", data)
    assert set(READER.facts(folder).tensors) == set(TENSORS)


def test_tensors_may_be_listed_in_another_order_than_their_bytes(tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    header, data = header_of(TENSORS)
    write_raw(folder / WEIGHTS, json.dumps(dict(reversed(header.items()))).encode(), data)
    tensors = list(READER.facts(folder).tensors.values())
    assert [t.begin for t in tensors] == sorted(t.begin for t in tensors)


def test_an_empty_tensor_takes_no_bytes(tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    header, data = header_of({**TENSORS, "empty": ("U8", (0, 7)), "scalar": ("U8", ())})
    write_raw(folder / WEIGHTS, json.dumps(header).encode(), data)
    tensors = READER.facts(folder).tensors
    assert (tensors["empty"].nbytes, tensors["scalar"].nbytes) == (0, 1)


def test_brackets_and_quotes_inside_texts_are_not_structure(tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    config = CONFIG | {"note": '\\"' + "[{" * 500 + '"\\'}
    write_json(folder / "config.json", config)
    assert READER.config(folder) == config


def test_a_folder_that_cannot_be_listed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    folder = made(tmp_path / "m")
    (folder / WEIGHTS).unlink()
    monkeypatch.setattr(os, "scandir", fail)
    with pytest.raises(RefusedError, match="cannot be listed"):
        READER.facts(folder)


def test_only_the_first_entries_of_a_crowded_folder_are_looked_at(tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    (folder / WEIGHTS).unlink()
    with pytest.raises(RefusedError, match="is not there, nor is"):
        FolderReader(CheckpointLimits(folder_entries=2)).facts(folder)


def hub_cache(tmp_path: Path, write: Callable[[Path], None]) -> Path:
    """A hub cache: every file of the snapshot links to a blob."""
    snapshot = made(tmp_path / "models--a--b" / "snapshots" / "0123abcd", write)
    blobs = snapshot.parent.parent / "blobs"
    blobs.mkdir()
    for number, file in enumerate(sorted(snapshot.iterdir())):
        file.rename(blobs / str(number))
        file.symlink_to(f"../../blobs/{number}")
    return snapshot


def test_a_hub_caches_links_into_its_own_blobs_are_followed(tmp_path: Path) -> None:
    plain = made(tmp_path / "m", write_good_shards)
    assert digest(hub_cache(tmp_path, write_good_shards)) == digest(plain)


def test_a_link_to_a_blob_that_was_never_fetched_counts_as_missing(tmp_path: Path) -> None:
    snapshot = hub_cache(tmp_path, write_good_shards)
    (snapshot / SHARDS[0]).resolve().unlink()
    with pytest.raises(RefusedError, match=f"1 of them are not there: {SHARDS[0]}"):
        READER.facts(snapshot)


def test_links_inside_the_folder_and_to_the_folder_are_followed(tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    (folder / "inner").mkdir()
    (folder / WEIGHTS).rename(folder / "inner" / "weights")
    (folder / WEIGHTS).symlink_to("inner/weights")
    (tmp_path / "alias").symlink_to(folder)
    assert set(READER.facts(tmp_path / "alias").tensors) == set(TENSORS)


def test_code_and_pickles_beside_good_weights_are_left_alone(tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    (folder / "modeling_evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04cposix\nsystem\n")
    os.mkfifo(folder / "pipe.bin")
    write_json(folder / "config.json", CONFIG | {"auto_map": {"AutoModel": "modeling_evil.Evil"}})
    READER.facts(folder)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("place", ["nowhere", "file", "nul\0byte", "file/inner"])
def test_what_is_not_a_folder_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RefusedError) as refused:
        READER.facts(tmp_path / place)
    assert refused.value.message.isprintable()


def test_a_folder_of_undecodable_name_is_named_in_printable_characters(tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as refused:
        READER.config(tmp_path / "line\nbreak\udcff")
    assert refused.value.message.isprintable()


def test_the_count_of_tensors_is_bounded_over_all_shards(tmp_path: Path) -> None:
    folder = made(tmp_path / "m", write_good_shards)
    assert FolderReader(CheckpointLimits(tensors=len(TENSORS))).facts(folder).tensors
    with pytest.raises(RefusedError, match="more tensors than the 10"):
        FolderReader(CheckpointLimits(tensors=len(TENSORS) - 1)).facts(folder)
    (folder / INDEX).unlink()
    single = made(tmp_path / "s")
    with pytest.raises(RefusedError, match="more tensors than the 10"):
        FolderReader(CheckpointLimits(tensors=len(TENSORS) - 1)).facts(single)


def test_an_index_over_its_limit_is_not_read(tmp_path: Path) -> None:
    folder = made(tmp_path / "m", write_good_shards)
    with pytest.raises(RefusedError, match="more than the 100 of an index"):
        FolderReader(CheckpointLimits(index_bytes=100)).facts(folder)


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path: Path) -> None:
    folder = made(tmp_path / "m")
    with CheckpointFolder(folder).open(WEIGHTS) as file:
        os.truncate(folder / WEIGHTS, 100)
        with pytest.raises(RefusedError, match="ended at byte 100 while it was being read"):
            file.read(0, file.size)


def test_a_file_that_vanishes_between_two_looks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made(tmp_path / "m")
    monkeypatch.setattr(CheckpointFolder, "has", lambda self, name: name != INDEX)
    (folder / WEIGHTS).unlink()
    with pytest.raises(RefusedError, match="cannot be opened"):
        READER.facts(folder)


def test_a_disk_that_fails_is_named_by_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    folder = made(tmp_path / "m")
    monkeypatch.setattr(os, "pread", fail)
    with pytest.raises(RefusedError, match="system error EIO"):
        READER.facts(folder)


def test_no_tensor_byte_is_read_before_every_header_is_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made(tmp_path / "m", write_good_shards)
    (folder / SHARDS[1]).write_bytes((folder / SHARDS[1]).read_bytes()[:-1])
    reads: list[tuple[str, int]] = []
    plain_read = checkpoint_folder.OpenFile.read

    def spy(self: checkpoint_folder.OpenFile, offset: int, length: int) -> bytes:
        reads.append((self.name, offset + length))
        return plain_read(self, offset, length)

    monkeypatch.setattr(checkpoint_folder.OpenFile, "read", spy)
    with pytest.raises(RefusedError):
        READER.facts(folder)
    header_end = 8 + int.from_bytes((folder / SHARDS[0]).read_bytes()[:8], "little")
    assert max(end for name, end in reads if name == SHARDS[0]) == header_end


def test_a_digest_stays_the_same_wherever_and_whenever_the_files_lie(tmp_path: Path) -> None:
    first = made(tmp_path / "m")
    second = Path(shutil.copytree(first, tmp_path / "copy"))
    (second / "generation_config.json").unlink()
    (second / "README.md").write_text("read me")
    os.utime(second / WEIGHTS, (1, 1))
    assert digest(first) == digest(second)
    assert len(digest(first)) == 64


def _flip(name: str, offset: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        data[offset] ^= 1
        (folder / name).write_bytes(data)

    return change


def _another_dtype(folder: Path) -> None:
    path = folder / WEIGHTS
    path.write_bytes(path.read_bytes().replace(b'"BF16"', b'"F16" '))


def _another_config(folder: Path) -> None:
    write_json(folder / "config.json", CONFIG | {"rope_theta": 500000.0})


@pytest.mark.parametrize("change", [_flip(WEIGHTS, -1), _flip(WEIGHTS, -WIDTH), _another_dtype, _another_config])
def test_a_digest_tells_weights_headers_and_configs_apart(tmp_path: Path, change: Callable[[Path], None]) -> None:
    folder = made(tmp_path / "m")
    before = digest(folder)
    change(folder)
    assert digest(folder) != before


def test_a_digest_samples_every_kth_tensor_of_very_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorfold.adapters.filesystem.weight_digest.SAMPLES", 6)
    folder = made(tmp_path / "m")
    facts = READER.facts(folder)
    begins = [tensor.begin for tensor in facts.tensors.values()]
    seen = []
    for begin in begins:
        _flip(WEIGHTS, begin)(folder)
        seen.append(digest(folder) != facts.digest)
        _flip(WEIGHTS, begin)(folder)
    assert seen == [index % 2 == 0 for index in range(len(TENSORS))]


_GOOD_HEADER, _DATA = header_of({name: TENSORS[name] for name in (NORM, "model.embed_tokens.weight")})
_GOOD_TEXT = json.dumps(_GOOD_HEADER).encode()


@settings(derandomize=True, deadline=None, max_examples=300)
@given(
    edits=st.lists(st.tuples(st.integers(0, len(_GOOD_TEXT) - 1), st.sampled_from(b'{}[]",:0129-.eE \\ntx\xff\x00')),
                   min_size=1, max_size=4),
    stated=st.none() | st.integers(0, len(_GOOD_TEXT) + _DATA + 16),
)  # fmt: skip
@pytest.mark.slow
def test_a_damaged_header_is_refused_or_still_describes_every_byte(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, int]], stated: int | None
) -> None:
    text = bytearray(_GOOD_TEXT)
    for at, value in edits:
        text[at] = value
    folder = made(tmp_path_factory.mktemp("fuzz") / "m")
    write_raw(folder / WEIGHTS, bytes(text), _DATA, stated)
    try:
        tensors = READER.facts(folder).tensors.values()
    except RefusedError as refused:
        assert refused.message.isprintable()
        assert "\n" not in refused.message
    else:
        size = (folder / WEIGHTS).stat().st_size
        assert sum(t.nbytes for t in tensors) == size - min(t.begin for t in tensors)
        assert max(t.end for t in tensors) == size
