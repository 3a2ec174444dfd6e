"""The records of the GPU benchmark's parts: they merge, each with its own commit, and their series become plots."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import gpu, gpu_parts
from tests.benchmarks.gpu_parts import PARTS, Found
from tests.benchmarks.gpu_proof import Proved
from tests.benchmarks.gpu_proof_runs import Outcome
from tests.benchmarks.gpu_report import gather, merge

ROUNDS = {"device ms": {1: 5.0, 16: 6.0, 2: 5.1}, "record": "off"}
MODEL = {"rounds": ROUNDS, "values": {"serial tokens/s": 200.0, "copied tokens/s": 4000.0}, "copied": {"record": "on"}}
SERVING = {"streams": {"tokens/s": {1: 200.0, 8: 1500.0}, "record": "off"}}


def run(name: str, figures: dict[str, Any], folder: Path, commit: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(gpu, "card", lambda: "a card")
    return gpu.run(name, lambda cubins: Found(figures, "figures"), folder, folder, commit)


def test_parts_of_different_commits_merge_and_each_says_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("qwen", MODEL, tmp_path, "aaaa", monkeypatch)
    assert run("qwen-serving", SERVING, tmp_path, "bbbb", monkeypatch)
    merged = json.loads((tmp_path / "gpu.json").read_text())
    assert merged["commits"] == ["aaaa", "bbbb"]
    assert {name: part["commit"] for name, part in merged["parts"].items()} == {"qwen": "aaaa", "qwen-serving": "bbbb"}
    assert capsys.readouterr().out.splitlines()[-1].startswith("qwen-serving: figures; record: off (")


def test_runs_of_several_folders_are_gathered_and_the_last_of_a_part_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, part, commit in (("a", "qwen", "aaaa"), ("b", "qwen", "bbbb"), ("c", "qwen-serving", "cccc")):
        (tmp_path / folder).mkdir()
        run(part, MODEL if part == "qwen" else SERVING, tmp_path / folder, commit, monkeypatch)
    merged = gather(tmp_path / "all", [tmp_path / folder / "gpu.json" for folder in "abc"])
    assert {name: part["commit"] for name, part in merged["parts"].items()} == {"qwen": "bbbb", "qwen-serving": "cccc"}
    assert (tmp_path / "all" / "streams.svg").exists()


def test_a_part_that_runs_again_takes_the_place_of_its_older_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("qwen", MODEL, tmp_path, "aaaa", monkeypatch)
    run("qwen", MODEL, tmp_path, "cccc", monkeypatch)
    assert merge(tmp_path)["commits"] == ["cccc"]


def test_series_become_plots_that_name_card_commit_and_the_records_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("qwen", MODEL, tmp_path, "aaaa", monkeypatch)
    run("qwen-serving", SERVING, tmp_path, "aaaa", monkeypatch)
    assert {path.name for path in tmp_path.glob("*.svg")} == {"rounds.svg", "streams.svg", "speeds-qwen.svg"}
    drawn = (tmp_path / "speeds-qwen.svg").read_text()
    assert "a card, aaaa" in drawn
    assert "synthetic weights of true geometry" in drawn
    assert "record: off; on" in drawn


def test_a_missed_figure_is_an_exit_code_only_where_it_is_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "card", lambda: "a card")
    monkeypatch.setitem(PARTS, "ceilings", lambda cubins: Found({}, "missed", met=False))
    words = ["gpu", "--part", "ceilings", "--out", str(tmp_path)]
    for more, code in ((["--require"], 1), ([], 0)):
        monkeypatch.setattr("sys.argv", [*words, *more])
        assert gpu.main() == code


def test_a_part_that_raises_says_why_and_has_no_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def part(cubins: Path) -> Found:
        raise ValueError("no card here")

    monkeypatch.setattr(gpu, "card", lambda: "a card")
    assert not gpu.run("qwen", part, tmp_path, tmp_path, "aaaa")
    record = json.loads((tmp_path / "gpu.json").read_text())["parts"]["qwen"]
    assert (record["met"], record["figures"], record["words"]) == (False, {}, "FAILED: ValueError: no card here")


def test_figures_of_any_part_can_be_merged_with_those_that_are_series(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof = Outcome(proved={"llama": Proved(compared=3)}).figures()
    empty = {"rounds": {"device ms": {}, "record": "off"}, "streams": "none"}
    for name, figures in (("proof-tiny", proof), ("llama", empty), ("nemotron", {}), ("qwen-serving", SERVING)):
        run(name, figures, tmp_path, "aaaa", monkeypatch)
    assert {path.name for path in tmp_path.glob("*.svg")} == {"streams.svg"}


def test_every_part_names_the_records_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("qwen", MODEL, tmp_path, "aaaa", monkeypatch)
    run("check", {"matrices": []}, tmp_path, "aaaa", monkeypatch)
    run("memory", {"record": "off", "qwen": {"record": "off"}}, tmp_path, "aaaa", monkeypatch)
    parts = json.loads((tmp_path / "gpu.json").read_text())["parts"]
    assert {name: part["record"] for name, part in parts.items()} == {
        "qwen": "off; on", "check": "none, kernels alone", "memory": "off",
    }  # fmt: skip


def test_what_is_timed_runs_alone_and_what_is_not_side_by_side() -> None:
    groups = list(gpu.grouped(PARTS))
    assert [name for group in groups for name in group if name in PARTS] and sorted(sum(groups, ())) == sorted(PARTS)
    assert ("proof-tiny", "proof-true") in groups
    assert ("qwen",) in groups
    # Kernels are compiled before a model is timed.
    order = [name for group in groups for name in group]
    assert order.index("compile") < order.index("llama")
    assert list(gpu.grouped(["verify", "qwen", "compile"])) == [("verify", "compile"), ("qwen",)]


@pytest.mark.slow
def test_all_parts_run_in_processes_of_their_own_and_one_that_fails_leaves_the_others_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # Without a card no part does: each says so in its own process.
    words = ["gpu", "--part", "all", "--only", "ceilings,check,compile", "--out", str(tmp_path), "--require"]
    monkeypatch.setattr("sys.argv", words)
    assert gpu.main() == 1
    said = capfd.readouterr().out.splitlines()
    assert said[0] == "== ceilings"
    assert "== check, compile" in said
    assert said[-1].startswith("ceilings FAILED")
    assert "check FAILED" in said[-1] and "compile FAILED" in said[-1]
    assert (tmp_path / "check.log").exists()


@pytest.mark.slow
def test_a_part_that_takes_too_long_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def started(name: str, *rest: object) -> subprocess.Popen[bytes]:
        sleeps = f"sleep 60 & echo $! > {tmp_path / 'child'}; wait"
        return subprocess.Popen(["sh", "-c", sleeps], start_new_session=True)

    monkeypatch.setattr(gpu, "_started", started)
    monkeypatch.setattr(gpu, "_PART_S", 0.2)
    monkeypatch.setattr("sys.argv", ["gpu", "--part", "all", "--only", "qwen", "--out", str(tmp_path)])
    assert gpu.main() == 1
    assert "qwen: FAILED: it took more than 0 s" in capsys.readouterr().out
    stat = Path("/proc") / (tmp_path / "child").read_text().strip() / "stat"
    until = time.monotonic() + 5
    while stat.exists() and " Z " not in stat.read_text() and time.monotonic() < until:
        time.sleep(0.02)
    assert time.monotonic() < until


def test_a_part_that_nobody_knows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["gpu", "--part", "all", "--only", "qwne"])
    with pytest.raises(SystemExit):
        gpu.main()


def test_a_kernels_checks_and_times_are_its_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Module:
        @staticmethod
        def check(folder: Path) -> list[str]:
            return ["one"] if folder == tmp_path else []

        @staticmethod
        def measure() -> dict[str, dict[int, float]]:
            """Seconds by rows."""
            return {"kernel": {1: 2e-6, 8: 3e-6}}

    monkeypatch.setattr(gpu_parts, "import_module", lambda name: Module)
    found = gpu_parts.kernels("any", tmp_path)
    assert (found.met, found.words) == (False, "1 checks failed ['one']; 2 times: Seconds by rows.")
    assert found.figures["times"] == {"kernel": {"1": 2e-6, "8": 3e-6}}
