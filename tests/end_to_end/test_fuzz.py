"""Damaged bytes and bodies at a whole server: a short form of the fuzzing proof."""

from __future__ import annotations

import pytest

from tests.prove.fuzzing.campaign import run

INPUTS = 5000


@pytest.mark.slow
@pytest.mark.parametrize("half", [0, 1])
def test_nothing_that_is_sent_over_http_ends_the_server_or_changes_another_reply(half: int) -> None:
    report = run(20, range(half, INPUTS, 2))
    assert report.misses() == []
    assert report.tried == INPUTS // 2
    assert report.replies > report.tried
    assert min(report.kinds.values()) > 20
    assert len(report.kinds) == 5
