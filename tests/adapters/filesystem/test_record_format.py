"""Chunk files byte by byte: ids plus one, zeros between pieces, names of eight digits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.adapters.filesystem.record_format import chunk_name, decode, encode, first_sequence, sequence_of


def test_an_id_is_stored_plus_one_in_four_little_endian_bytes() -> None:
    ids = np.array([0, 1, 255, 248_319, -1], dtype=np.int32)
    assert encode(ids, 248_320).hex(" ", 4) == "01000000 02000000 00010000 00ca0300 00000000"
    assert decode(encode(ids, 248_320), 248_320).tolist() == ids.tolist()


def test_what_is_no_id_ends_a_piece() -> None:
    data = np.array([0, 1, 10, 11, -1, -(2**31), 2**31 - 1, 2], dtype="<i4").tobytes()
    assert decode(data, 10).tolist() == [-1, 0, 9, -1, -1, -1, -1, 1]
    assert encode(np.array([-5, 10, 9, 2**31 - 1], np.int32), 10) == encode(np.array([-1, -1, 9, -1], np.int32), 10)


def test_the_largest_vocabulary_has_all_its_ids() -> None:
    top = 2**31 - 3
    assert decode(encode(np.array([top], np.int32), top + 1), top + 1).tolist() == [top]


def test_bytes_behind_the_last_whole_value_are_ignored() -> None:
    data = encode(np.array([7, 8], np.int32), 10)
    assert [decode(data[:size], 10).tolist() for size in (0, 3, 4, 7, 8)] == [[], [], [7], [7], [7, 8]]


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.binary(max_size=400), st.integers(1, 2**31 - 2))
@pytest.mark.slow
def test_any_bytes_are_read_as_ids_of_the_vocabulary_or_ends(data: bytes, vocabulary: int) -> None:
    ids = decode(data, vocabulary)
    assert ids.dtype == np.int32 and ids.flags.writeable and len(ids) == len(data) // 4
    assert all(-1 <= token < vocabulary for token in ids.tolist())
    assert decode(encode(ids, vocabulary), vocabulary).tolist() == ids.tolist()


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.lists(st.integers(0, 999), min_size=1, max_size=40), st.data())
@pytest.mark.slow
def test_zeros_in_place_of_ids_never_read_as_ids(ids: list[int], data: st.DataObject) -> None:
    lost = data.draw(st.sets(st.integers(0, len(ids) - 1)))
    stored = bytearray(encode(np.array(ids, np.int32), 1000))
    for at in lost:
        stored[4 * at : 4 * at + 4] = bytes(4)
    assert decode(bytes(stored), 1000).tolist() == [-1 if at in lost else token for at, token in enumerate(ids)]


def test_names_have_eight_digits() -> None:
    assert [chunk_name(number) for number in (1, 28_333_333)] == ["00000001.ids", "28333333.ids"]
    assert sequence_of("00000001.ids") == 1 and sequence_of("99999999.ids") == 99_999_999


OTHER_NAMES = (
    *("", "1.ids", "000000001.ids", "00000001.IDS", "00000001.ids ", "00000001.ids\n", "0000000１.ids", "-0000001.ids"),
    *("x00000001.ids", "00000001.ids.new", "identity", "lock", "\udcff0000001.ids"),
)


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_other_names_are_no_chunks(name: str) -> None:
    assert sequence_of(name) is None


def test_a_folders_first_number_rises_with_the_time() -> None:
    now = 1_796_000_000.0
    assert first_sequence(now) == 21_816_320 and first_sequence(now + 10) == 21_816_321
    assert [first_sequence(wall) for wall in (-5.0, 0.0, 1e15)] == [1, 1, 90_000_000]
