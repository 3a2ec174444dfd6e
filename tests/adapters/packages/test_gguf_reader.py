"""GGUF headers: what is read from good ones, and that bad ones are refused in one line and bounded memory."""

from __future__ import annotations

import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.adapters.packages.gguf_reader import GgufFile
from tensorfold.application.ports.checkpoints import RefusedError
from tests.adapters.packages.gguf_samples import Sample, gguf, string, value

TENSOR = Sample("F32", (2, 3), struct.pack("<6f", *range(6)))
GOOD = gguf({"general.architecture": "llama"}, {"a": TENSOR})


def opened(tmp_path: Path, data: bytes) -> GgufFile:
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    return GgufFile(path)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [8, 32, 64])
def test_both_versions_and_any_alignment_are_read(tmp_path: Path, version: int, alignment: int) -> None:
    metadata = {
        "general.alignment": alignment, "text": "é", "flag": True, "number": 7, "float": 0.5,
        "texts": ["a", "bc"], "numbers": [1, 2, 3], "floats": [0.5, 1.5], "none": [],
    }  # fmt: skip
    tensors = {"a": TENSOR, "b": Sample("Q8_0", (32,), bytes(34)), "c": TENSOR}
    with opened(tmp_path, gguf(metadata, tensors, version, alignment)) as file:
        assert file.metadata == metadata
        assert {name: (t.type.name, t.shape) for name, t in file.tensors.items()} == {
            name: (t.kind, t.shape) for name, t in tensors.items()
        }
        assert all(t.begin % alignment == 0 for t in file.tensors.values())
        for name, tensor in tensors.items():
            assert file.read_rows(file.tensors[name], 0, file.tensors[name].rows).tobytes() == tensor.data
        assert file.read_rows(file.tensors["c"], 1, 2).tobytes() == TENSOR.data[12:]


def test_every_number_type_is_read(tmp_path: Path) -> None:
    codes = {0: ("B", 200), 1: ("b", -2), 2: ("H", 60000), 3: ("h", -3), 4: ("I", 1 << 31), 5: ("i", -5), 6: ("f", 0.5),
             7: ("?", True), 10: ("Q", 1 << 63), 11: ("q", -(1 << 62)), 12: ("d", 1e300)}  # fmt: skip
    entries = [string(f"key{code}") + struct.pack(f"<I{kind}", code, item) for code, (kind, item) in codes.items()]
    data = b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries)
    with opened(tmp_path, data) as file:
        assert file.metadata == {f"key{code}": item for code, (_, item) in codes.items()}


def header(metadata: bytes = b"", keys: int = 0, infos: bytes = b"", tensors: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + metadata + infos + bytes(64)


def key(item: bytes) -> bytes:
    return header(string("k") + item, keys=1)


def info(name: str | bytes = "a", dims: tuple[int, ...] = (4,), code: int = 0, offset: int = 0) -> bytes:
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, code, offset)


HUGE = 1 << 62
BAD: list[tuple[str, bytes, str]] = [
    ("empty", b"", "is not a GGUF file"),
    ("a_page", b"<!DOCTYPE html><html></html>", "is not a GGUF file"),
    ("version_1", header(version=1), "has GGUF version 1"),
    ("version_4", header(version=4), "has GGUF version 4"),
    ("big_endian", b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    ("many_tensors", header(tensors=HUGE), "states 4611686018427387904 tensors"),
    ("many_keys", header(keys=HUGE), "and 4611686018427387904 keys"),
    ("keys_past_the_file", header(keys=4)[:24], "states 8 bytes at byte 24, past its 24 bytes"),
    ("tensors_past_the_file", header(tensors=65536), "has a tensor name that is not"),
    ("long_key", header(struct.pack("<Q", HUGE), keys=1), "states a string of 4611686018427387904 bytes"),
    ("key_past_the_file", header(struct.pack("<Q", 1000), keys=1), "states 1000 bytes"),
    ("key_not_utf8", header(string(b"\xff") + value(1), keys=1), "not UTF-8"),
    ("key_control", header(string("a\nb") + value(1), keys=1), "a key that is not"),
    ("key_twice", header((string("k") + value(1)) * 2, keys=2), "has the key k twice"),
    ("value_type_unknown", key(struct.pack("<I", 13)), "the value type 13"),
    ("text_long", key(struct.pack("<IQ", 8, 1 << 21)), "states a string of 2097152 bytes"),
    ("array_long", key(struct.pack("<IIQ", 9, 0, HUGE)), "states 4611686018427387904 values in k"),
    ("array_past_the_file", key(struct.pack("<IIQ", 9, 12, 1 << 20)), "states 8388608 bytes"),
    ("texts_past_the_file", key(struct.pack("<IIQ", 9, 8, 1 << 20)), "states 1048576 strings in k"),
    ("array_of_arrays", key(struct.pack("<IIQ", 9, 9, 1)), "array of the value type 9"),
    ("array_type_unknown", key(struct.pack("<IIQ", 9, 77, 1)), "array of the value type 77"),
    ("alignment_0", header(string("general.alignment") + value(0), keys=1), "general.alignment"),
    ("alignment_12", header(string("general.alignment") + value(12), keys=1), "general.alignment"),
    ("alignment_huge", header(string("general.alignment") + value(1 << 30), keys=1), "general.alignment"),
    ("alignment_text", header(string("general.alignment") + value("32"), keys=1), "general.alignment"),
    ("name_empty", header(infos=info(""), tensors=1), "a tensor name that is not"),
    ("name_long", header(infos=info("n" * 129), tensors=1), "a tensor name that is not"),
    ("name_control", header(infos=info("a\x1b[2J"), tensors=1), "a tensor name that is not"),
    ("name_twice", header(infos=info() + info(offset=32), tensors=2), "has the tensor a twice"),
    ("no_axes", header(infos=info(dims=()), tensors=1), "0 axes"),
    ("many_axes", header(infos=string("a") + struct.pack("<I", 1 << 31), tensors=1), "2147483648 axes"),
    ("axis_0", header(infos=info(dims=(0, 4)), tensors=1), "the shape [4, 0]"),
    ("axis_huge", header(infos=info(dims=(1 << 63, 1 << 63)), tensors=1), "which F32 cannot have"),
    ("product_past_the_file", header(infos=info(dims=((1 << 31) - 1,) * 4), tensors=1), "places the tensor a up to"),
    ("row_not_whole_blocks", header(infos=info(dims=(33,), code=2), tensors=1), "the shape [33], which Q4_0"),
    (
        "type_q6_k",
        header(infos=info(dims=(256,), code=14), tensors=1),
        "the tensor a as Q6_K; converted are BF16",
    ),
    ("type_unknown", header(infos=info(code=4096), tensors=1), "as number 4096"),
    ("offset_unaligned", header(infos=info(offset=4), tensors=1), "off its alignment of 32"),
    ("offset_past_the_file", header(infos=info(offset=1 << 40), tensors=1), "places the tensor a up to"),
    ("offset_wraps", header(infos=info(offset=(1 << 64) - 32), tensors=1), "places the tensor a up to"),
    ("overlap", header(infos=info() + info("b"), tensors=2), "over another one"),
    ("cut", GOOD[:-1], "places the tensor a up to"),
]


@pytest.mark.parametrize(("data", "words"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_a_bad_header_is_refused_in_one_line_and_bounded_memory(tmp_path: Path, data: bytes, words: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(RefusedError) as refused:
            opened(tmp_path, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert words in refused.value.message
    assert refused.value.message.isprintable()
    assert str(tmp_path) in refused.value.message
    assert peak < 16 << 20


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: None, lambda path: path.symlink_to("/dev/null")])
def test_what_is_not_a_regular_file_is_refused(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "model.gguf")
    with pytest.raises(RefusedError, match=r"not a regular file|cannot be opened"):
        GgufFile(tmp_path / "model.gguf")


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path: Path) -> None:
    data = gguf({}, {"a": Sample("F32", (64, 1024), bytes(64 * 4096))})
    with opened(tmp_path, data) as file:
        os.truncate(tmp_path / "model.gguf", len(data) - 1)
        assert len(file.read_rows(file.tensors["a"], 0, 63)) == 63
        with pytest.raises(RefusedError, match="ended inside the tensor a"):
            file.read_rows(file.tensors["a"], 63, 64)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(edits=st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=4))
@pytest.mark.slow
def test_a_damaged_file_is_refused_or_keeps_every_tensor_inside(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[int, int]]
) -> None:
    data = bytearray(GOOD)
    for at, byte in edits:
        data[at] = byte
    try:
        file = opened(tmp_path_factory.mktemp("fuzz"), bytes(data))
    except RefusedError as refused:
        assert refused.message.isprintable()
    else:
        with file:
            for tensor in file.tensors.values():
                assert len(file.read_rows(tensor, 0, tensor.rows)) == tensor.rows
