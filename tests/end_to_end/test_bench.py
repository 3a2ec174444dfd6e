"""The whole command over a tiny checkpoint: measured, written, drawn, compared with a slowed run, and over HTTP."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tensorfold.application.benchmark_results import read_result
from tensorfold.application.engine import Engine
from tensorfold.application.generation import StreamFactory
from tensorfold.application.loading import load_engine
from tests.end_to_end.commands import Ran, as_process, environment_mark, in_process, marked, started
from tests.end_to_end.served import START_S, Served, served
from tests.fakes.paced_model import PacedModel
from tests.synthetic.servable import write_servable

pytestmark = pytest.mark.slow

MODES = ("serial", "drafts", "drafts with a record")
SLOW_S = 0.015
"""Many times what a launch of the tiny model takes."""
PROMPTS: tuple[dict[str, Any], ...] = (
    {"name": "again", "messages": [{"role": "user", "content": "one two one two one two"}]},
    {"name": "drawn", "messages": [{"role": "user", "content": "Heads or tails?"}], "temperature": 0.9, "top_p": 0.9},
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    (folder / "tiny").mkdir()
    write_servable(folder / "tiny")
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, PROMPTS)))
    return folder


@pytest.fixture(scope="module")
def measured(home: Path) -> Ran:
    """`bench tiny` as a user types it."""
    words = "--streams 1,2 --tokens 40 --prompts prompts.jsonl --json r.json --plots plots"
    return as_process(["bench", "tiny", *words.split()], home)


def test_it_prints_its_verdict_first_and_progress_goes_to_stderr(measured: Ran) -> None:
    assert measured.code == 0, measured.err
    lines = measured.out.splitlines()
    assert lines[0].startswith("tiny: serial decoding gives ")
    assert lines[0].endswith("; all 10 replies held against their serial reply are equal to it.")
    assert lines[1] == "" and lines[2].startswith("mode")
    cells = [line for line in measured.err.splitlines() if " of 6: " in line]
    assert [line.split(": ")[1] for line in cells] == [
        f"{mode}, {streams}" for mode in MODES for streams in ("1 stream", "2 streams")
    ]
    assert "\r" not in measured.err and all(line.startswith("[tensorfold] ") for line in measured.err.splitlines())


def test_its_result_can_be_read_and_holds_every_cell(home: Path, measured: Ran) -> None:
    result = read_result(json.loads((home / "r.json").read_text()), "r.json")
    assert [(row.mode, row.streams) for row in result.rows] == [(mode, n) for mode in MODES for n in (1, 2)]
    assert all((row.replies, row.tokens) == (2, 80) for row in result.rows)
    assert result.row("drafts with a record", 1).sources["recall"][1] > 0  # type: ignore[union-attr]
    assert (result.model, result.reply, result.prompt_names) == ("tiny", 40, ("again", "drawn"))
    assert any(note.startswith("load average") for note in result.notes)


def test_it_draws_its_charts_and_leaves_nothing_else_behind(home: Path, measured: Ran) -> None:
    assert sorted(path.name for path in (home / "plots").iterdir()) == [
        "a_stream.svg", "drafts.svg", "first_token_p50.svg", "first_token_p99.svg", "tokens_per_second.svg",
    ]  # fmt: skip
    assert not (home / "cache" / "tensorfold" / "recall").exists()
    assert sorted(os.listdir(home)) == ["cache", "err", "out", "plots", "prompts.jsonl", "r.json", "report", "tiny"]
    assert measured.left == ()


@pytest.fixture
def slowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every launch of a model loaded from now on waits."""

    def load(*given: Any, **named: Any) -> tuple[Engine, StreamFactory]:
        engine, factory = load_engine(*given, **named)
        paced = PacedModel(engine.model, time.sleep, SLOW_S)
        slow = Engine(paced, given[4], given[5], sources=named["sources"], counters=named["counters"])
        return slow, factory

    monkeypatch.setattr("tensorfold.entrypoints.cli.opening.load_engine", load)


def test_a_slowed_second_run_fails_the_comparison_which_names_the_cell(
    home: Path, measured: Ran, slowed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    words = "--streams 1,2 --tokens 40 --prompts prompts.jsonl --json slow.json"
    ran = in_process(["bench", "tiny", *words.split()])
    assert ran.code == 0, ran.err
    compared = in_process(["bench", "--compare", "r.json", "slow.json", "--tolerance", "40"])
    (home / "slow.json").unlink()
    assert compared.code == 1
    assert compared.out.startswith("SLOWER: ") and "serial, 1 stream (0." in compared.out.splitlines()[0]
    assert "### Measurements" in compared.out


@pytest.fixture(scope="module")
def server(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    room = tmp_path_factory.mktemp("server")
    (room / "tiny").symlink_to(home / "tiny")
    with served(["serve", "tiny", "--port", "0", "--api-key", "k1", "--recall-dir", "record"], room) as running:
        yield running


def test_a_server_is_measured_over_http_with_the_same_prompts(home: Path, server: Served, tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").symlink_to(home / "prompts.jsonl")
    url = f"http://127.0.0.1:{server.port}/v1"
    words = "--key k1 --streams 1,2 --tokens 24 --runs 2 --prompts prompts.jsonl --json s.json --plots plots"
    ran = as_process(["bench", "--url", url, *words.split()], tmp_path)
    assert ran.code == 0, ran.err
    first = ran.out.splitlines()[0]
    assert first.startswith("tiny: the server gives ") and "all 3 repeated greedy replies are equal" in first
    assert "k1" not in ran.out + ran.err + (tmp_path / "s.json").read_text()
    result = read_result(json.loads((tmp_path / "s.json").read_text()), "s.json")
    assert [(row.key, row.tokens) for row in result.rows] == [
        (("server", "the server's, on", 1), 96),
        (("server", "the server's, on", 2), 96),
    ]
    assert (result.through, result.weights, result.compared, result.differences) == ("http", "", 3, 0)
    assert len(list((tmp_path / "plots").iterdir())) == 4


def test_a_wrong_key_and_a_wrong_path_are_named(server: Served, tmp_path: Path) -> None:
    base = f"http://127.0.0.1:{server.port}"
    for words, told in (
        (["--url", base, "--key", "k2"], "answered /models with status 401; give its key with --key."),
        (["tiny", "--url", f"{base}/other", "--key", "k1"], "status 404; look at the path of --url."),
    ):
        ran = in_process(["bench", *words])
        assert ran.refusal_faults() == [] and told in ran.err


def test_an_interrupt_while_a_cell_runs_ends_it_and_leaves_nothing(home: Path, tmp_path: Path) -> None:
    for name in ("tiny", "cache", "prompts.jsonl"):
        (tmp_path / name).symlink_to(home / name)
    mark = environment_mark()
    words = "--streams 1,2 --tokens 100 --runs 5 --prompts prompts.jsonl --json r.json"
    with (tmp_path / "out").open("w") as out:
        command = started(["bench", "tiny", *words.split()], tmp_path, out, mark)
        deadline = time.monotonic() + START_S
        while "1 of 6: " not in command.errors():
            assert command.running() and time.monotonic() < deadline, command.errors()
            time.sleep(0.02)
        command.interrupt()
        code, _ = command.finish()
    assert code == 130 and marked(mark) == ()
    assert (tmp_path / "out").read_text() == "" and not (tmp_path / "r.json").exists()


def test_a_model_without_a_chat_template_is_measured_on_plain_text(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_servable(tmp_path)
    stated = json.loads((tmp_path / "tokenizer_config.json").read_text())
    del stated["chat_template"]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(stated))
    ran = in_process(
        ["bench", str(tmp_path), "--prompts", str(home / "prompts.jsonl"), "--streams", "1", "--tokens", "8"]
    )
    assert ran.code == 0, ran.err
    assert "note     the model has no chat template: prompts are plain text" in ran.out


def test_a_prompt_that_does_not_fit_the_models_window_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    ran = in_process(["bench", "tiny", "--prompts", "prompts.jsonl", "--tokens", "505"])
    assert ran.code == 1 and ran.out == ""
    told = ran.err.splitlines()[-1]
    assert told.startswith("tensorfold: prompt 'again' has ") and told.endswith("or other prompts (--prompts).")
