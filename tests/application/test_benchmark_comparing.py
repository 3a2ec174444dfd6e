"""Two results side by side: ratios, what is slower, what cannot be compared, and a changelog's paragraph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tensorfold.application.benchmark_comparing import Comparison, compare, paragraph, placed
from tensorfold.application.benchmark_results import Result
from tensorfold.application.ports.checkpoints import RefusedError
from tests.application.benchmark_house import result_of, row

NAMES = ("a.json", "b.json")
BEFORE = result_of([row(), row(streams=2, rate=18.0), row("drafts", rate=20.0)])
AFTER = result_of([row(rate=9.5), row(streams=2, rate=16.0), row("drafts", rate=40.0)], version="1.3.0")


def compared(before: Result = BEFORE, after: Result = AFTER, tolerance: float = 0.1) -> Comparison:
    return compare(before, after, NAMES, tolerance)


def test_a_cell_is_slower_when_it_lost_more_than_the_tolerance() -> None:
    assert [pair.ratio for pair in compared().pairs] == [0.95, pytest.approx(0.889, abs=1e-3), 2.0]
    assert [pair.after.name for pair in compared().slower] == ["serial, 2 streams"]
    assert [pair.after.name for pair in compared(tolerance=0.04).slower] == ["serial, 2 streams", "serial, 1 stream"]
    assert compared(tolerance=0.12).slower == ()


def test_first_tokens_are_set_side_by_side_where_there_is_a_time() -> None:
    later = result_of([row(first_p50_s=0.75)])
    assert compare(result_of([row()]), later, NAMES, 0.1).pairs[0].first_ratio == 1.5
    none = result_of([row(first_p50_s=0.0)])
    assert compare(none, later, NAMES, 0.1).pairs[0].first_ratio is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"through": "http"}, "one was measured in process, the other over HTTP, 'scheduler' and 'http'"),
        ({"model": "other"}, "the models are not the same, 'tiny' and 'other'"),
        ({"weights": ""}, "the weights are not the same"),
        ({"backend": "cuda"}, "the backends are not the same, 'mlx' and 'cuda'"),
        ({"machine": "Darwin arm64"}, "the machines are not of one class"),
        ({"prompts": "sha256:0"}, "the prompts are not the same"),
        ({"reply": 25}, "the lengths of the replies are not the same (--tokens), '24' and '25'"),
        ({"runs": 2}, "the runs are not the same (--runs), '1' and '2'"),
        ({"rows": BEFORE.rows[:2]}, "the cells are not the same (--streams), 3 cells and 2 cells"),
        (
            {"rows": (replace(BEFORE.rows[0], record="seen"), *BEFORE.rows[1:])},
            "the cells are not the same",
        ),
        (
            {"rows": tuple(replace(one, record="seen") for one in BEFORE.rows)},
            "the record's states of 'serial' are not the same, 'none' and 'seen'",
        ),
    ],
)
def test_results_that_did_not_measure_the_same_are_refused_with_what_differs(change: dict[str, Any], told: str) -> None:
    for pair in ((BEFORE, replace(BEFORE, **change)), (replace(BEFORE, **change), BEFORE)):
        with pytest.raises(RefusedError) as refused:
            compared(*pair)
        assert refused.value.message.startswith("a.json and b.json cannot be compared: ")
        assert refused.value.message.endswith(".")
    with pytest.raises(RefusedError) as refused:
        compared(BEFORE, replace(BEFORE, **change))
    assert told in refused.value.message


def test_a_result_with_unequal_replies_or_without_speed_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"^b.json cannot be compared: 2 of its replies were not the serial ones"):
        compared(after=replace(AFTER, differences=2))
    still = replace(BEFORE, rows=(row(rate=0.0), *BEFORE.rows[1:]))
    with pytest.raises(RefusedError, match=r"^a.json cannot be compared: serial, 1 stream has 0 tokens per second"):
        compared(still)


def test_differences_of_a_server_are_no_reason_not_to_compare_it() -> None:
    server = result_of([row("server")], through="http", differences=1)
    assert compare(server, server, NAMES, 0.1).slower == ()


def test_what_two_results_may_differ_in_is_version_date_notes_and_where_prompts_lay() -> None:
    other = replace(BEFORE, version="9.9.9", date="later", notes=(), prompt_source="a file", compared=1)
    assert compared(BEFORE, other).slower == ()


def test_the_paragraph_names_versions_machine_prompts_every_cell_and_what_is_slower() -> None:
    lines = paragraph(compared())
    text = "\n".join(lines)
    assert lines[0] == "### Measurements"
    assert "tiny on Linux x86_64, Some Processor, 2 cores, 16 GiB" in text and "sha256:cdcdcdcdcdcd" in text
    assert "| Mode | Streams | Tokens/s, 1.2.3 | Tokens/s, 1.3.0 | Ratio | First token p50, ms |" in lines
    assert "| serial | 2 | 18.0 | 16.0 | 0.89 | 500 to 500 |" in lines
    assert lines[-1] == "Slower by more than 10%: serial, 2 streams (0.89)."
    assert "Slower" not in "\n".join(paragraph(compared(tolerance=0.5)))


def test_a_paragraph_of_one_version_says_before_and_after() -> None:
    assert "| Mode | Streams | Tokens/s, before | Tokens/s, after |" in "\n".join(paragraph(compared(BEFORE, BEFORE)))


def test_no_text_of_a_result_can_leave_its_cell_of_a_table() -> None:
    odd = replace(BEFORE, model="a|b`<script>", rows=(row("x|y"),))
    lines = paragraph(compared(odd, odd))
    assert "a/b'(script)" in lines[2]
    assert all(line.count("|") == 7 for line in lines if line.startswith("|"))


CHANGES = "# Changes\n\n## 1.3.0 - soon\n\n- New.\n\n\n## 1.2.3 - before\n\n- Old.\n"


def test_a_paragraph_goes_to_the_end_of_the_newest_section() -> None:
    text = placed(CHANGES, ["### Measurements", "", "Fast."], "C.md")
    assert text == (
        "# Changes\n\n## 1.3.0 - soon\n\n- New.\n\n### Measurements\n\nFast.\n\n## 1.2.3 - before\n\n- Old.\n"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "### Measurements\n"),
        (" \n", "### Measurements\n"),
        ("## 1\n\n- Old.\n\n", "## 1\n\n- Old.\n\n### Measurements\n"),
        ("Just text.", "Just text.\n\n### Measurements\n"),
    ],
)
def test_a_changelog_without_more_sections_ends_with_the_paragraph(before: str | None, after: str) -> None:
    assert placed(before, ["### Measurements"], "C.md") == after


def test_a_section_that_has_its_measurements_is_refused() -> None:
    once = placed(CHANGES, ["### Measurements"], "C.md")
    with pytest.raises(RefusedError, match=r"^C.md has '### Measurements' in its newest section already"):
        placed(once, ["### Measurements"], "C.md")
    newer = once.replace("# Changes\n", "# Changes\n\n## 1.4.0\n\n- Newer.\n")
    assert placed(newer, ["### Measurements"], "C.md").count("### Measurements") == 2
