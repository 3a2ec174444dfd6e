"""What is run on the card through the whole command, run here by MLX's processor backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.gpu_verify import Verified, serving, verify_all, write


@pytest.mark.slow
def test_a_server_that_does_not_start_is_told_with_its_words(tmp_path: Path) -> None:
    write(tmp_path, "llama")
    with pytest.raises(RuntimeError, match="--context"), serving(tmp_path, "llama", ("--context", "1")):
        pass


@pytest.mark.slow
def test_the_whole_command_runs_and_a_family_that_cannot_is_told_beside_one_that_passes(tmp_path: Path) -> None:
    found = verify_all(tmp_path, "mlx", ("llama", "unknown"))
    assert found["llama"].holds, found["llama"]
    assert found["llama"].replies == 4 * 8
    assert not found["unknown"].holds
    assert "Traceback" in found["unknown"].said[0]


def test_a_family_that_drafted_nothing_or_differs_over_http_does_not_hold() -> None:
    sound = {"passed": True, "compared": 9, "replies": 8, "drafted": 4}
    assert Verified(**sound).holds  # type: ignore[arg-type]
    for fault in ({"passed": False}, {"drafted": 0}, {"unequal": 1}, {"differences": 1}, {"replies": 0}):
        assert not Verified(**{**sound, **fault}).holds  # type: ignore[arg-type]
