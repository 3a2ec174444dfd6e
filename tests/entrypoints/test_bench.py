"""`tensorfold bench` short of a model: which flags go together, what is refused before anything is loaded, words."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tensorfold.adapters.reports.writer import SvgReportWriter
from tensorfold.application.benchmark_comparing import compare
from tensorfold.application.benchmark_results import Result, result_object
from tensorfold.application.benchmarking import Benchmark, NotEqualError
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.entrypoints.cli import bench_measuring, bench_progress
from tensorfold.entrypoints.cli.bench_plots import charts, write_plots
from tensorfold.entrypoints.cli.bench_progress import CellProgress
from tensorfold.entrypoints.cli.bench_words import comparison_table, comparison_verdict, table, verdict
from tensorfold.entrypoints.cli.parser import parse
from tests.application.benchmark_house import result_of, row
from tests.end_to_end.commands import in_process
from tests.synthetic.servable import write_servable

ROWS = (
    row(rate=10.0),
    row(streams=8, rate=40.0),
    row("drafts", rate=25.0, sources={"copy": (30, 20)}),
    row("drafts", 8, rate=50.0, sources={"copy": (9, 3)}),
    row("drafts with a record", rate=60.0, record="seen", sources={"copy": (5, 1), "recall": (30, 29)}),
    row("drafts with a record", 8, rate=70.0, record="seen", sources={"recall": (30, 30)}),
)
RESULT = result_of(ROWS)
SERVER = result_of(
    [row("server", rate=11.0, rounds=None, launches=None, round_tokens=None)], through="http", compared=4, weights=""
)


# -- flags ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "name a MODEL to measure, or give --url, --compare or --memory-classes"),
        (["demo", "--key", "k"], "--key goes with --url"),
        (["demo", "--tolerance", "5"], "--tolerance goes with --compare"),
        (["demo", "--changelog", "C.md"], "--changelog goes with --compare"),
        (["--url", "http://x", "--backend", "mlx"], "--backend does not go with --url"),
        (["--url", "http://x", "--context", "9"], "--context does not go with --url"),
        (["demo", "--compare", "a", "b"], "MODEL does not go with --compare"),
        (["--compare", "a", "b", "--url", "http://x"], "--url does not go with --compare"),
        (["--compare", "a", "b", "--streams", "1"], "--streams does not go with --compare"),
        (["--compare", "a", "b", "--json", "c"], "--json does not go with --compare"),
        (["--compare", "a"], "expected 2 arguments"),
        (["demo", "--memory-classes"], "MODEL does not go with --memory-classes"),
        (["--memory-classes", "--tokens", "9"], "--tokens does not go with --memory-classes"),
        (["demo", "--streams", "0"], "0 is not from 1 to 64"),
        (["demo", "--streams", "1,1"], "'1,1' says a number twice"),
        (["demo", "--streams", ""], "'' is not an integer from 1 to 64"),
        (["demo", "--streams", ",".join(map(str, range(1, 18)))], "17 numbers are more than 16"),
        (["demo", "--tokens", "7"], "7 is not from 8 to 65536"),
        (["demo", "--runs", "0"], "0 is not from 1 to 100"),
        (["--compare", "a", "b", "--tolerance", "nan"], "nan is not from 0 to 100"),
    ],
)
def test_flags_that_do_not_go_together_are_refused_in_one_line(words: list[str], told: str) -> None:
    ran = in_process(["bench", *words])
    assert ran.code == 2 and told in ran.err
    assert ran.err.count("\n") == 1 and "`tensorfold bench --help` shows what there is." in ran.err


def test_numbers_of_streams_rise_whatever_their_order() -> None:
    assert parse(["bench", "demo", "--streams", "8, 1,2"]).streams == (1, 2, 8)
    assert parse(["bench", "demo"]).streams == (1, 2, 4, 8)


# -- refusals ------------------------------------------------------------------------------------------------------


@pytest.fixture
def nothing_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any) -> Any:
        raise AssertionError("a model was looked for")

    monkeypatch.setattr(bench_measuring, "check", fail)


@pytest.mark.usefixtures("nothing_is_looked_for")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--prompts", "none.jsonl"], "none.jsonl is not there."),
        (["--prompts", "odd.jsonl"], "odd.jsonl, line 2 needs a name of 1 to 40 printable characters."),
        (["--prompts", ""], "--prompts is empty; give it a file, or leave it out."),
        (["--json", "none/r.json"], "none is no folder, so nothing can be written there."),
        (["--json", "."], " is a folder; name a file."),
        (["--plots", "odd.jsonl"], "odd.jsonl is no folder."),
    ],
)
def test_files_that_cannot_be_used_are_refused_before_a_model_is_looked_for(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    good = {"name": "a", "messages": [{"role": "user", "content": "x"}]}
    (tmp_path / "odd.jsonl").write_text(f"{json.dumps(good)}\n{json.dumps(good | {'name': ''})}\n")
    ran = in_process(["bench", "demo", *words])
    assert ran.refusal_faults() == [] and ran.err.endswith(f"{told}\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--url", "x"], "--url 'x' is no address such as http://127.0.0.1:8080/v1."),
        (["--url", "http://x", "--key", "two words"], "--key holds a key that is not 1 to 512 printable ASCII"),
        (
            ["--url", "http://127.0.0.1:1/v1"],
            "the server at 127.0.0.1:1 takes no connections; start it, or name another --url.",
        ),
        (
            ["m", "--url", "http://127.0.0.1:1"],
            "the server at 127.0.0.1:1 takes no connections; start it, or name another --url.",
        ),
    ],
)
def test_a_server_that_cannot_be_asked_is_refused_in_one_line(words: list[str], told: str) -> None:
    ran = in_process(["bench", *words])
    assert ran.refusal_faults() == [] and told in ran.err and "two words" not in ran.err


@pytest.mark.slow
def test_a_reply_that_is_not_the_serial_one_fails_the_command_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unequal(self: Benchmark) -> Any:
        raise NotEqualError("drafts, 2 streams: the reply to prompt 'a' leaves the serial reply at token 5: expected")

    monkeypatch.setattr(Benchmark, "run", unequal)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "tiny").mkdir()
    write_servable(tmp_path / "tiny")
    out = tmp_path / "r.json"
    ran = in_process(["bench", str(tmp_path / "tiny"), "--prompts", str(_short(tmp_path)), "--json", str(out)])
    assert ran.code == 1 and not out.exists()
    assert ran.out == (
        "NOT EQUAL: tiny, drafts, 2 streams: the reply to prompt 'a' leaves the serial reply at token 5: expected; "
        "nothing more was measured.\n"
    )


def _short(folder: Path) -> Path:
    path = folder / "short.jsonl"
    path.write_text(json.dumps({"name": "a", "messages": [{"role": "user", "content": "Hi."}]}))
    return path


# -- words ---------------------------------------------------------------------------------------------------------


def test_the_verdict_is_one_sentence_with_what_was_found() -> None:
    assert verdict(RESULT) == (
        "tiny: serial decoding gives 10.0 tokens/s on 1 stream, drafts 2.50 times that and a record that has seen the "
        "prompts 6.00 times that, 8 streams together 2.00 times that of 1 stream with drafts; all 33 replies held "
        "against their serial reply are equal to it."
    )


def test_the_verdict_of_one_cell_and_of_a_model_without_drafts_says_so() -> None:
    serial = replace(RESULT, rows=ROWS[:2])
    assert "1 stream, drafts are off here, 8 streams together 4.00 times that of 1 stream; all" in verdict(serial)
    assert "together" not in verdict(replace(RESULT, rows=ROWS[::2]))


@pytest.mark.parametrize(
    ("compared", "differences", "told"),
    [
        (0, 0, "no greedy prompt was asked twice, so no reply was compared"),
        (4, 0, "all 4 repeated greedy replies are equal to the first one"),
        (4, 3, "3 of 4 repeated greedy replies differ from the first one"),
    ],
)
def test_the_verdict_of_a_server_says_what_could_be_compared(compared: int, differences: int, told: str) -> None:
    said = verdict(replace(SERVER, compared=compared, differences=differences))
    assert said == f"tiny: the server gives 11.0 tokens/s on 1 stream; {told} (nothing else can be compared over HTTP)."


def test_the_table_has_a_line_for_each_cell_and_says_where_and_with_what_it_was_measured() -> None:
    lines = table(RESULT)
    assert lines[0].split()[:2] == ["mode", "streams"] and len({line.find("tokens/s") for line in lines[:1]}) == 1
    assert lines[5].split()[-4:] == ["copy", "1/5,", "recall", "29/30"]
    assert lines[1].endswith("none") and lines[7] == ""
    facts = "\n".join(lines[8:])
    for told in (RESULT.machine, RESULT.prompts, "drafts with a record: seen", "3 of 24 tokens", *RESULT.notes):
        assert told in facts


def test_what_a_server_does_not_tell_is_a_dash() -> None:
    assert table(SERVER)[1].split()[-3:] == ["-", "-", "-"]


def test_a_comparison_names_what_is_slower_or_the_least_ratio() -> None:
    slowed = replace(RESULT, rows=(replace(ROWS[0], rate=5.0), *ROWS[1:]))
    both = compare(RESULT, slowed, ("a", "b"), 0.1)
    told = "SLOWER: 1 of 6 cells lost more than 10% of their speed: serial, 1 stream (0.50)."
    assert comparison_verdict(both) == told
    assert [line.endswith("SLOWER") for line in comparison_table(both)] == [False, True, *[False] * 5]
    same = compare(RESULT, RESULT, ("a", "b"), 0.025)
    assert comparison_verdict(same) == (
        "No cell of 6 lost more than 2.5% of its speed; the least ratio is 1.00, serial, 1 stream."
    )


# -- progress ------------------------------------------------------------------------------------------------------


def test_without_a_terminal_each_cell_is_one_plain_line() -> None:
    lines: list[str] = []
    progress = CellProgress(2, None, lines.append)
    progress.began("serial", 1, 3)
    progress.replied(1)
    progress.measured(ROWS[0])
    progress.close()
    assert lines == ["1 of 2: serial, 1 stream: 10.0 tokens/s, first token p50 0.500 s"]


def test_on_a_terminal_the_running_cell_is_redrawn_and_wiped_before_its_line() -> None:
    screen = io.StringIO()
    progress = CellProgress(2, screen, lambda line: print(line, file=screen))
    progress.began("drafts", 8, 3)
    progress.replied(2)
    progress.measured(ROWS[1])
    wipe = "\r\x1b[2K"
    assert screen.getvalue() == (
        f"{wipe}1 of 2: drafts, 8 streams: 0 of 3 replies{wipe}1 of 2: drafts, 8 streams: 2 of 3 replies{wipe}"
        "1 of 2: serial, 8 streams: 40.0 tokens/s, first token p50 0.500 s\n"
    )


def test_a_terminal_that_went_away_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    progress = CellProgress(1, screen, lambda line: None)
    screen.close()
    progress.began("serial", 1, 1)
    monkeypatch.setattr("sys.stderr", screen)
    assert bench_progress.terminal() is None


# -- charts --------------------------------------------------------------------------------------------------------


def test_each_chart_holds_a_line_for_each_mode_and_says_what_was_measured(tmp_path: Path) -> None:
    written = write_plots(RESULT, tmp_path / "plots", SvgReportWriter())
    names = ["tokens_per_second", "a_stream", "first_token_p50", "first_token_p99", "drafts"]
    assert [path.stem for path in written] == names
    for path in written:
        said = ElementTree.parse(path).findtext("{http://www.w3.org/2000/svg}desc") or ""
        assert RESULT.machine in said and RESULT.version in said and "seen" in said
    speeds = dict(next(charts(RESULT))[2])
    assert speeds["drafts"] == {"1": 25.0, "8": 50.0}


def test_drafts_are_summed_over_the_cells_of_a_mode() -> None:
    *_, (name, _, figures) = charts(RESULT)
    assert name == "drafts"
    assert figures["verified"] == {
        "drafts: copy": 39, "drafts with a record: copy": 5, "drafts with a record: recall": 60,
    }  # fmt: skip
    assert figures["kept"]["drafts: copy"] == 23


def test_a_result_without_drafts_has_no_chart_of_them() -> None:
    assert "drafts" not in [name for name, _, _ in charts(SERVER)]


# -- comparing -----------------------------------------------------------------------------------------------------


def _written(folder: Path, name: str, result: Result) -> str:
    path = folder / name
    path.write_text(json.dumps(result_object(result)))
    return str(path)


def test_comparing_prints_the_verdict_the_table_and_the_paragraph_and_fails_for_a_slower_cell(tmp_path: Path) -> None:
    before = _written(tmp_path, "a.json", RESULT)
    after = _written(tmp_path, "b.json", replace(RESULT, rows=(replace(ROWS[0], rate=8.0), *ROWS[1:])))
    ran = in_process(["bench", "--compare", before, after])
    assert ran.code == 1 and ran.err == ""
    told = "SLOWER: 1 of 6 cells lost more than 10% of their speed: serial, 1 stream (0.80)."
    assert ran.out.startswith(f"{told}\n\nmode")
    assert "\n\n### Measurements\n\n" in ran.out
    allowed = in_process(["bench", "--compare", before, after, "--tolerance", "20"])
    assert allowed.code == 0 and allowed.out.startswith("No cell of 6 lost more than 20% of its speed")


def test_the_paragraph_goes_into_a_changelog_that_is_named(tmp_path: Path) -> None:
    before = _written(tmp_path, "a.json", RESULT)
    changelog = tmp_path / "C.md"
    changelog.write_text("# Changes\n\n## 2\n\n- New.\n\n## 1\n\n- Old.\n")
    ran = in_process(["bench", "--compare", before, before, "--changelog", str(changelog)])
    assert ran.code == 0 and ran.out.endswith(f"the paragraph is in {changelog}\n") and "###" not in ran.out
    text = changelog.read_text()
    assert text.index("## 2") < text.index("### Measurements") < text.index("## 1")
    again = in_process(["bench", "--compare", before, before, "--changelog", str(changelog)])
    assert again.refusal_faults() == [] and "already" in again.err and changelog.read_text() == text


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"machine": "Darwin arm64"}, "the machines are not of one class"),
        ({"rows": tuple(replace(one, record="none") for one in ROWS)}, "the record's states of 'drafts with a record'"),
    ],
)
def test_results_that_cannot_be_compared_are_refused_in_one_line(
    change: dict[str, Any], told: str, tmp_path: Path
) -> None:
    before = _written(tmp_path, "a.json", RESULT)
    ran = in_process(["bench", "--compare", before, _written(tmp_path, "b.json", replace(RESULT, **change))])
    assert ran.refusal_faults() == [] and told in ran.err


@pytest.mark.parametrize(
    "text",
    [b"", b"{}", b"[1]", b'{"tensorfold_bench": 1}', b'{"a": NaN}', b"\xff", b"[" * 100_000, b" " * ((1 << 20) + 1)],
)
def test_a_hostile_results_file_is_refused_in_one_line(text: bytes, tmp_path: Path) -> None:
    before = _written(tmp_path, "a.json", RESULT)
    (tmp_path / "b.json").write_bytes(text)
    for pair in ((before, str(tmp_path / "b.json")), (str(tmp_path / "b.json"), before)):
        ran = in_process(["bench", "--compare", *pair])
        assert ran.refusal_faults() == [] and "b.json" in ran.err


def test_a_changelog_in_no_folder_is_refused(tmp_path: Path) -> None:
    before = _written(tmp_path, "a.json", RESULT)
    ran = in_process(["bench", "--compare", before, before, "--changelog", str(tmp_path / "none" / "C.md")])
    assert ran.refusal_faults() == [] and "is no folder" in ran.err


def test_a_name_that_no_line_can_show_is_shown_escaped(tmp_path: Path) -> None:
    before = _written(tmp_path, "a\n.json", RESULT)
    after = _written(tmp_path, "b.json", replace(RESULT, runs=2))
    ran = in_process(["bench", "--compare", before, after])
    assert ran.refusal_faults() == [] and "\\n" in ran.err


def test_a_prompt_that_the_template_refuses_is_refused_by_its_name() -> None:
    from tensorfold.application.benchmark_prompts import Prompt
    from tensorfold.application.errors import RequestError

    class Chat:
        def chat_ids(self, order: Any) -> Any:
            raise RequestError("The template takes no system message.")

    with pytest.raises(RefusedError, match=r"^prompt 'p' cannot be asked: The template takes no system message\.$"):
        bench_measuring._rendered(Chat(), Prompt("p", (("system", "x"),)))  # type: ignore[arg-type]
