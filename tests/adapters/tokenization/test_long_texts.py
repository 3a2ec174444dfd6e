"""A long text takes its own thread's time, and nobody else's."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tensorfold.adapters.tokenization.tokenizer import load_tokenizer
from tests.adapters.tokenization.small_tokenizers import byte_level, saved

TICK_S = 0.001
LEAST_TICKS = 20
"""A text that takes a hundred ticks or more to encode leaves room for these; a library that holds the lock for one."""


@pytest.mark.slow
def test_other_threads_run_while_a_long_text_is_encoded(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(saved(tmp_path, byte_level()))
    stop, ticks = threading.Event(), 0

    def tick() -> None:
        nonlocal ticks
        while not stop.wait(TICK_S):
            ticks += 1

    other = threading.Thread(target=tick)
    other.start()
    try:
        before = ticks
        ids = tokenizer.encode("the quick brown fox " * 50_000)
        during = ticks - before
    finally:
        stop.set()
        other.join()
    assert len(ids) > 100_000
    assert during >= LEAST_TICKS
