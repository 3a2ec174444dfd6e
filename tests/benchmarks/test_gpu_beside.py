"""Tasks in processes of their own: each result comes, and one that raises, dies or does not end costs only itself."""

from __future__ import annotations

import os
import time

import pytest

from tests.benchmarks.gpu_beside import FailedError, beside


def work(task: str) -> str:
    if task == "raises":
        raise ValueError("of its own making")
    if task == "dies":
        os._exit(7)
    if task == "hangs":
        time.sleep(60)
    return task.upper()


@pytest.mark.slow
def test_a_task_that_raises_dies_or_hangs_costs_its_own_result_alone() -> None:
    began = time.monotonic()
    found = dict(beside(work, ("fine", "raises", "dies", "hangs"), 4.0))
    assert found["fine"] == "FINE"
    assert {name: type(one) for name, one in found.items() if name != "fine"} == dict.fromkeys(
        ("raises", "dies", "hangs"), FailedError
    )
    assert "ValueError: of its own making" in str(found["raises"])
    assert "ended with 7" in str(found["dies"])
    assert "too long" in str(found["hangs"])
    assert time.monotonic() - began < 20
