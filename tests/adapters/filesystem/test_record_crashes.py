"""The record under kills, power cuts and flipped bits, in short; `make prove` and the benchmark run it at length.

The last tests break a promise on purpose, so that a check that notices nothing is noticed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tensorfold.adapters.filesystem import record_format
from tests.benchmarks.crash.corpus import VOCABULARY, Corpus
from tests.benchmarks.crash.disk import SimulatedDisk
from tests.benchmarks.crash.images import KINDS
from tests.benchmarks.crash.journal import Journal
from tests.benchmarks.crash.looking import Looker, look
from tests.benchmarks.crash.replies import compare
from tests.benchmarks.crash.scenarios import SCENARIOS
from tests.benchmarks.crash.tally import Tally
from tests.benchmarks.crash.writer import Shape

ROOT = Path(__file__).parents[3]
SMALL = Shape(128, 3, VOCABULARY)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus.shared()


def looked_at(corpus: Corpus, name: str, seed: int = 1) -> Tally:
    """One scenario with few images of each moment."""
    tally = Tally(most_shown=10_000)
    Looker(tally, random.Random(seed), corpus, most=100, sampled=20).run(name, SMALL)
    return tally


def _run_here() -> dict[str, Any]:
    """How a process of the tests is started and read."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT / '.pkg'}{os.pathsep}{ROOT}"}
    return {"cwd": ROOT, "env": environment, "capture_output": True, "text": True, "timeout": 120, "check": False}


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.slow
def test_whatever_a_cut_leaves_opens_with_what_was_promised_and_nothing_else(corpus: Corpus, name: str) -> None:
    tally = looked_at(corpus, name)
    assert tally.violations == []
    assert tally.all_images > 50


@pytest.mark.slow
def test_replies_over_what_cuts_and_flipped_bits_left_are_the_serial_ones(corpus: Corpus) -> None:
    tally = Tally()
    kept = look(tally, corpus, images=1200, seed=2, most=100)
    compare(kept[:: len(kept) // 25], corpus, tally, seed=3)
    assert tally.violations == []
    assert tally.differences == 0
    assert tally.copied > 100
    assert tally.missed > 0
    assert set(tally.images) >= {*KINDS, "cut 2", "cut 3", "flipped bit", "flipped bits", "flipped bit in identity"}


@pytest.mark.slow
def test_killed_processes_lose_at_most_the_piece_they_were_writing() -> None:
    command = [sys.executable, "-m", "tests.benchmarks.recall_crash", "--kills", "20", "--images", "0", "--require"]
    done = subprocess.run(command, **_run_here())
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("recall_crash: 20 kills, 0 images")


# What must be noticed


@pytest.mark.slow
def test_a_write_that_never_reached_the_file_of_a_killed_process_is_noticed() -> None:
    faulty = (
        "import random, tempfile, pathlib\n"
        "from tensorfold.adapters.filesystem.record_posix import PosixRecordFiles\n"
        "from tests.benchmarks.crash.kills import Corpus, Killing, Tally\n"
        "PosixRecordFiles.append = lambda self, name, data: len(data)\n"
        "tally = Tally()\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    Killing(pathlib.Path(folder) / 'record', tally, Corpus.shared(), random.Random(1)).run(5)\n"
        "print(tally.broken)\n"
    )
    done = subprocess.run([sys.executable, "-c", faulty], **_run_here())
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


@pytest.mark.slow
def test_a_disk_that_forgets_what_was_synced_is_noticed(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedDisk, "sync", lambda self, name: None)
    assert "durable ids" in " ".join(looked_at(corpus, "append").violations)


@pytest.mark.slow
def test_a_folder_that_forgets_its_names_is_noticed(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedDisk, "sync_folder", lambda self: None)
    said = " ".join(looked_at(corpus, "delete").violations)
    assert "does not open" in said
    assert "none may" in said


@pytest.mark.slow
def test_zeros_that_read_as_ids_are_noticed(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = record_format.decode
    modules = [module for name, module in sys.modules.items() if "filesystem.record_" in name]
    for module in [module for module in modules if getattr(module, "decode", None) is decode]:
        monkeypatch.setattr(module, "decode", lambda data, vocabulary: decode(data, vocabulary).clip(0))
    assert looked_at(corpus, "append").never_written > 0


@pytest.mark.slow
def test_a_cut_that_is_not_durable_before_the_next_write_is_noticed(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    truncate = SimulatedDisk.truncate

    def forgetting(self: SimulatedDisk, name: str, size: int) -> None:
        truncate(self, name, size)
        self.sync = lambda name: None  # type: ignore[method-assign]

    monkeypatch.setattr(SimulatedDisk, "truncate", forgetting)
    assert looked_at(corpus, "short write").broken > 0


def test_a_piece_that_touches_its_neighbour_is_noticed() -> None:
    journal = Journal(128, VOCABULARY)
    journal.writing("00000001.ids", 0, b"\x01\0\0\0" * 4)
    assert journal.strange(1, journal.chunks[1].words[:4]) is None
    assert journal.strange(1, journal.chunks[1].words[:4] + 1) is not None
