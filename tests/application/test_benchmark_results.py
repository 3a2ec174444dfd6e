"""Results as files hold them: written and read back, and hostile files refused by the place of what is wrong."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.application.benchmark_results import MOST_ROWS, read_result, result_object
from tensorfold.application.ports.checkpoints import RefusedError
from tests.application.benchmark_house import result_of, row

ROWS = (
    row(),
    row("drafts", 8, 41.5, sources={"copy": (30, 20)}, round_tokens=1.5),
    row("server", 2, rounds=None, launches=None, round_tokens=None),
)
RESULT = result_of(ROWS)


def stated() -> dict[str, Any]:
    return copy.deepcopy(result_object(RESULT))


def test_a_result_is_read_back_as_it_was_written() -> None:
    assert read_result(json.loads(json.dumps(result_object(RESULT), allow_nan=False)), "r.json") == RESULT


def test_figures_are_written_as_precise_as_they_mean_anything() -> None:
    (written,) = result_object(result_of([row(rate=1 / 3, seconds=2 / 3)]))["rows"]
    assert (written["tokens_per_second"], written["seconds"]) == (0.333, 0.6667)


def test_rows_are_found_by_mode_and_streams_and_named_in_words() -> None:
    assert RESULT.row("drafts", 8) is ROWS[1] and RESULT.row("drafts", 1) is None
    assert RESULT.modes == ("serial", "drafts", "server")
    assert [one.name for one in ROWS] == ["serial, 1 stream", "drafts, 8 streams", "server, 2 streams"]


WRONG: list[tuple[tuple[Any, ...], Any, str]] = [
    (("version",), 7, "version is not a printable text of 1 to 256 characters"),
    (("version",), "", "version is not a printable text"),
    (("version",), "x\ny", "version is not a printable text"),
    (("version",), "x" * 257, "version is not a printable text"),
    (("model",), [], "model is not an object"),
    (("model", "name"), None, "model.name is not a printable text"),
    (("prompts", "names"), "a", "prompts.names is not a list of at most 512"),
    (("prompts", "names"), ["a", 1], "prompts.names[1] is not a printable text"),
    (("runs",), -1, "runs is not a whole number from 0 to 1e+15"),
    (("runs",), True, "runs is not a whole number"),
    (("runs",), 1.0, "runs is not a whole number"),
    (("runs",), 10**400, "runs is not a whole number"),
    (("rows",), {}, "rows is not a list of at most 512"),
    (("rows",), [{}] * (MOST_ROWS + 1), "rows is not a list of at most 512"),
    (("rows", 0), 3, "rows[0] is not an object"),
    (("rows", 1, "tokens_per_second"), float("nan"), "rows[1].tokens_per_second is not a number from 0 to 1e+15"),
    (("rows", 1, "tokens_per_second"), float("inf"), "rows[1].tokens_per_second is not a number"),
    (("rows", 1, "tokens_per_second"), 10**400, "rows[1].tokens_per_second is not a number"),
    (("rows", 1, "tokens_per_second"), "fast", "rows[1].tokens_per_second is not a number"),
    (("rows", 1, "tokens_per_second"), False, "rows[1].tokens_per_second is not a number"),
    (("rows", 1, "seconds"), None, "rows[1].seconds is not a number"),
    (("rows", 1, "rounds"), "many", "rows[1].rounds is not a whole number"),
    (("rows", 1, "tokens_a_round"), -0.5, "rows[1].tokens_a_round is not a number"),
    (("rows", 1, "sources"), [], "rows[1].sources is not an object"),
    (("rows", 1, "sources"), {f"s{n}": {} for n in range(65)}, "rows[1].sources is not an object of at most 64"),
    (("rows", 1, "sources"), {"a\u2028b": {}}, "a key of rows[1].sources is not a printable text"),
    (("rows", 1, "sources", "copy"), 1, "rows[1].sources.copy is not an object"),
    (("rows", 1, "sources", "copy", "kept"), None, "rows[1].sources.copy.kept is not a whole number"),
    (("notes",), ["x" * 1025], "notes[0] is not a printable text of 1 to 1024"),
]


@pytest.mark.parametrize(("path", "value", "told"), WRONG)
def test_what_is_wrong_is_named_by_its_path(path: tuple[Any, ...], value: Any, told: str) -> None:
    spoiled = stated()
    place = spoiled
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(RefusedError) as refused:
        read_result(spoiled, "r.json")
    assert refused.value.message.startswith(f"r.json is no results file: {told}")


@pytest.mark.parametrize("form", [None, 0, 2, "1", True])
def test_a_file_of_another_form_is_refused_with_what_writes_one(form: Any) -> None:
    with pytest.raises(RefusedError, match="is no results file of form 1; `tensorfold bench --json FILE` writes one"):
        read_result(stated() | {"tensorfold_bench": form}, "r.json")


def test_a_file_without_rows_or_with_a_cell_twice_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"^r.json has no row;"):
        read_result(stated() | {"rows": []}, "r.json")
    twice = replace(RESULT, rows=(ROWS[0], ROWS[0]))
    with pytest.raises(RefusedError, match=r"^r.json has a row twice;"):
        read_result(result_object(twice), "r.json")


_ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=300), st.just([]), st.just({})
)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.data())
@pytest.mark.slow
def test_a_file_spoiled_anywhere_is_read_or_refused_in_one_printable_line(data: st.DataObject) -> None:
    spoiled = stated()
    place: Any = spoiled
    for _ in range(4):
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if isinstance(place[key], dict | list) and place[key] and data.draw(st.booleans()):
            place = place[key]
            continue
        place[key] = data.draw(_ODD)
        break
    try:
        read_result(spoiled, "r.json")
    except RefusedError as refusal:
        assert refusal.message.isprintable() and refusal.message.endswith(".") and len(refusal.message) < 400
