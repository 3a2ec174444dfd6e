"""What a state spec lets the buffers of a kept state be."""

from __future__ import annotations

import pytest

from tensorfold.domain.families.state import StateEntry
from tensorfold.domain.prompts.layout import accepts

KEYS = StateEntry("layers.0.attention.keys", "keys", "bfloat16", (2, 4), per=1, window=8)
CONV = StateEntry("layers.1.delta.conv", "conv", "bfloat16", (3, 5), rows="history")
MTP = StateEntry("mtp.layers.0.attention.keys", "keys", "bfloat16", (2, 4), per=1)
DRAFTER = StateEntry("drafter.layers.0.attention.keys", "keys", "bfloat16", (1, 2), per=1)
SPEC = (KEYS, CONV, MTP, DRAFTER)


def test_buffers_of_the_spec_are_accepted_in_their_order_with_or_without_heads() -> None:
    own = [(KEYS.path, 8 * 2 * 4 * 2), (CONV.path, 30)]
    assert accepts(SPEC, 10, own)
    assert accepts(SPEC, 10, [(KEYS.path, 8 * 2 * 4 * 4), (CONV.path, 60)])
    assert accepts(SPEC, 10, [*own, (MTP.path, 9 * 16)])
    assert accepts(SPEC, 10, [*own, (MTP.path, 10 * 16), (DRAFTER.path, 10 * 4)])
    assert accepts(SPEC, 10, [*own, (DRAFTER.path, 10 * 4)])


@pytest.mark.parametrize(
    "buffers",
    [
        [],
        [(KEYS.path, 128)],
        [(CONV.path, 30), (KEYS.path, 128)],
        [(KEYS.path, 128), (CONV.path, 31)],
        [(KEYS.path, 128 + 16), (CONV.path, 30)],
        [(KEYS.path, 1 << 40), (CONV.path, 30)],
        [(KEYS.path, 128), (CONV.path, 30), (DRAFTER.path, 40), (MTP.path, 160)],
        [(KEYS.path, 128), (CONV.path, 30), ("class", 8)],
        [(KEYS.path, 128), (CONV.path, 30), (MTP.path, 8 * 16)],
        [(KEYS.path, 128), (CONV.path, 30), (CONV.path, 30)],
    ],
)
def test_anything_else_is_not(buffers: list[tuple[str, int]]) -> None:
    assert not accepts(SPEC, 10, buffers)
