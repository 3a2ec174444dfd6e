"""Keys that rotate while clients ask, over the whole product and in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.key_process import renewed_in_a_process
from tests.end_to_end.rotation import house, outlive_the_key, rotate_under_load, spoil_the_file


@pytest.mark.slow
def test_no_rotation_loses_a_request_or_admits_one_wrongly(tmp_path: Path) -> None:
    with house(tmp_path) as home:
        rotate_under_load(home, 9)
        assert spoil_the_file(home) == 7
        outlive_the_key(home)
    assert home.seen.wrong == []
    served = {who for who in home.seen.answers if who.endswith("served")}
    assert {"steady served", "lasting served", "newest served", "outlived its key served"} <= served
    refused = {who for who in home.seen.answers if who.endswith("refused")}
    assert {"retired refused", "long retired refused", "not yet refused", "never refused", "nearly refused"} <= refused


@pytest.mark.slow
def test_a_server_renews_its_keys_when_told_and_by_itself(tmp_path: Path) -> None:
    renewed_in_a_process(tmp_path)
