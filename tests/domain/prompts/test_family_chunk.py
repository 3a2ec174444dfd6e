"""The chunk of a family that names several."""

from __future__ import annotations

import pytest

from tensorfold.domain.prompts.family_chunk import card_chunks, choose_chunk

SIZES = (8192, 4096, 2048)


@pytest.mark.parametrize(
    ("most", "tensor_units", "before", "chosen"),
    [
        (8192, True, None, 8192),
        (8192, False, None, 4096),
        (4096, True, None, 4096),
        (2048, True, None, 2048),
        (0, True, None, 2048),
        (8192, True, 4096, 4096),
        (4096, True, 8192, 4096),
        (8192, False, 8192, 4096),
        (8192, True, 1000, 8192),
    ],
)
def test_the_largest_that_fits_is_taken_and_what_was_taken_stays_while_it_fits(
    most: int, tensor_units: bool, before: int | None, chosen: int
) -> None:
    assert choose_chunk(SIZES, lambda size: size <= most, tensor_units=tensor_units, before=before) == chosen


def test_without_tensor_units_and_a_small_chunk_the_smallest_is_taken() -> None:
    assert choose_chunk((9000, 8192, 6000), lambda size: True, tensor_units=False) == 6000
    assert choose_chunk((9000, 8192, 6000), lambda size: False, tensor_units=True) == 6000
    assert choose_chunk((4096, 2048), lambda size: False, tensor_units=True) == 2048


def test_a_family_with_one_chunk_has_that_one() -> None:
    assert choose_chunk((2048,), lambda size: False, tensor_units=False) == 2048
    with pytest.raises(ValueError, match="at least one"):
        choose_chunk((), lambda size: True, tensor_units=True)


def test_on_a_card_that_streams_share_chunks_are_half_as_long() -> None:
    assert card_chunks(1) == (4096, 2048, 1024)
    assert card_chunks(2) == card_chunks(64) == (2048, 1024)
