"""The documents: they link to what exists, and the flags, fields, vectors and tests they name are those of the code."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tensorfold.application.replies import ReplyStats
from tensorfold.application.text_replies import ReplyDone
from tensorfold.domain.sampling import RULE, Sampling, derive_seed, draw, keyed_hash, noise
from tensorfold.entrypoints.http.chat_request import ChatRequest
from tensorfold.entrypoints.http.completion_request import CompletionRequest
from tensorfold.entrypoints.http.envelope import figures
from tensorfold.entrypoints.http.generation_fields import StreamOptions
from tests.benchmarks.__main__ import PARTS as BENCHMARKS
from tests.command_pages import COMMANDS, commands, page
from tests.conftest import COLLECTED
from tests.promised import function_of, is_written, missing, promised_tests, promises, with_cuda_tools
from tests.prove.__main__ import PARTS as PROOFS
from tests.test_house import EXTRAS, PROJECT, distribution
from tests.tree import ROOT, files

PAGES = tuple(path for path in files() if path.suffix == ".md")
SEEN = {**os.environ, "PYTHONPATH": f"{ROOT / '.pkg'}{os.pathsep}{ROOT}"}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
ADDRESS = re.compile(r"https?://[^\s)\"'<>|]+")
INSIDE = re.compile(r"https?://(?:127\.0\.0\.1|localhost|host\.docker\.internal|HOST\b).*")
OUTSIDE = re.compile(r"https://[a-z0-9-]+(?:\.[a-z0-9-]+)+(?:/[\w./~#-]*)?")
POINTED = re.compile(r"\b((?:docs/[\w/]+|README|RUNBOOK|CHANGELOG|SECURITY|THIRD_PARTY_NOTICES)\.md)(#[\w-]+)?")
PATH = re.compile(r"`((?:domain|application|adapters|kernels|entrypoints|tests|docs)/[\w/.]*)`")


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def plain(page: str) -> str:
    """A page without its fenced code."""
    return re.sub(r"^( *)```.*?^\1```", "", page, flags=re.MULTILINE | re.DOTALL)


def anchors(page: str) -> set[str]:
    """The anchors that a page's headings get where the documents are read."""
    titles = re.findall(r"^#+ (.+)$", plain(page), re.MULTILINE)
    kept = ("".join(c for c in title.lower() if c in " -_" or unicodedata.category(c)[0] in "LN") for title in titles)
    return {title.replace(" ", "-") for title in kept}


def rows(page: str, heads: str) -> Iterator[list[str]]:
    """Cells of every row of the table whose first line is `heads`."""
    lines = page.split(heads, 1)[1].splitlines()[2:]
    for line in lines:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip().strip("|").split("|")]


def names(name: str) -> str:
    """A package's name as installers compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_of_a_document_leads_somewhere(path: Path) -> None:
    broken = []
    for target in LINK.findall(plain(path.read_text(encoding="utf-8"))):
        if re.match(r"https?:", target):
            continue
        name, _, anchor = target.partition("#")
        found = (path.parent / name).resolve() if name else path
        if not found.exists() or (anchor and anchor not in anchors(found.read_text(encoding="utf-8"))):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_is_of_the_one_form_that_is_followed(path: Path) -> None:
    words = plain(path.read_text(encoding="utf-8"))
    assert len(LINK.findall(words)) == words.count("](")
    assert re.findall(r"^\[[^\]]+\]:|<(?:a|img)\b|<https?:", words, re.MULTILINE) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_table_begins_with_its_heads(path: Path) -> None:
    """A blank line inside a table makes its other rows text."""
    lines = ["", *plain(path.read_text(encoding="utf-8")).splitlines(), ""]
    begun = [at for at, line in enumerate(lines) if line.startswith("|") and not lines[at - 1].startswith("|")]
    assert [lines[at] for at in begun if not re.fullmatch(r"\|( -+ \|)+", lines[at + 1])] == []


def test_every_outside_address_is_a_safe_one_of_a_named_host() -> None:
    named = {address.rstrip(".,:;`'") for page in PAGES for address in ADDRESS.findall(page.read_text("utf-8"))}
    outside = {address for address in named if not INSIDE.fullmatch(address)}
    assert len(outside) > 1
    assert [address for address in sorted(outside) if not OUTSIDE.fullmatch(address)] == []


@pytest.mark.slow
def test_every_page_that_the_code_points_to_exists() -> None:
    named = {
        (path.relative_to(ROOT).as_posix(), *pointed)
        for path in (*files(),)
        if path.suffix == ".py" or path.name == "Makefile"
        for pointed in POINTED.findall(path.read_text(encoding="utf-8"))
    }
    assert len(named) > 5
    assert [one for one in sorted(named) if not points(*one[1:])] == []


def points(name: str, anchor: str) -> bool:
    """Whether a page of this name has this anchor, where one is named."""
    found = ROOT / name
    return found.exists() and (not anchor or anchor.removeprefix("#") in anchors(found.read_text(encoding="utf-8")))


def test_every_document_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    listed = {(index.parent / target.partition("#")[0]).resolve() for target in LINK.findall(text("docs/README.md"))}
    assert {path for path in PAGES if path != index} - listed == set()


def test_every_file_that_a_document_names_exists() -> None:
    named = {(page.relative_to(ROOT).as_posix(), name) for page in PAGES for name in PATH.findall(page.read_text())}
    assert len(named) > 50
    assert [(page, name) for page, name in sorted(named) if not (ROOT / name).exists() and "FAMILY" not in name] == []


@pytest.fixture
def collected(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Every test that pytest finds: in this run, or, where this run is a part, in the files that promises name.

    Files of the CUDA tests import torch: the run that has it says whether each of their promised tests ran.
    """
    nodes = request.config.stash[COLLECTED]
    named = {test.partition("::")[0] for test in promised_tests() if not with_cuda_tools(test)}
    wanted = sorted(name for name in named if (ROOT / name).exists())
    if set(wanted) <= {node.partition("::")[0] for node in nodes}:
        return nodes
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *wanted]
    said = subprocess.run(command, cwd=ROOT, env=SEEN, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout[-2000:]
    return tuple(line for line in said.stdout.splitlines() if "::" in line)


def test_every_promise_names_a_test_or_a_command() -> None:
    assert len(promises()) > 100
    assert [promise.sentence for promise in promises() if not promise.tests and not promise.commands] == []


def test_every_promise_leads_to_a_test_that_pytest_finds(collected: tuple[str, ...]) -> None:
    assert len(promised_tests()) > 100
    assert [test for test in missing(collected) if not (with_cuda_tools(test) and is_written(test))] == []


def test_a_promise_whose_test_is_gone_is_noticed(collected: tuple[str, ...]) -> None:
    gone = sorted(promised_tests() - set(missing(collected)))[0]
    assert gone in missing(node for node in collected if function_of(node) != gone)


def test_every_command_that_a_promise_names_runs_something() -> None:
    named = {command for promise in promises() for command in promise.commands}
    assert len(named) > 5
    assert [command for command in sorted(named) if not runs(*command)] == []
    assert not runs("make prove", "PART=nothing") and not runs("python -m tests.nothing", "")


def runs(command: str, rest: str) -> bool:
    """Whether a command of a promise is there: a target of the Makefile with its part, or a module that runs."""
    if command.startswith("make "):
        target, part = command.removeprefix("make "), rest.removeprefix("PART=")
        parts = {"prove": set(PROOFS), "bench": set(BENCHMARKS)}.get(target, set())
        return re.search(rf"^{target}:", text("Makefile"), re.MULTILINE) is not None and (not rest or part in parts)
    module = ROOT / Path(*command.removeprefix("python -m ").split("."))
    files = (module.with_suffix(".py"), module / "__main__.py")
    return any(file.exists() and "__main__" in file.read_text(encoding="utf-8") for file in files)


def test_a_file_that_a_promise_names_alone_is_run_by_a_command_beside_it() -> None:
    alone = [(promise.sentence, promise.files) for promise in promises() if promise.files and not promise.commands]
    assert alone == []
    assert [file for promise in promises() for file in promise.files if not (ROOT / file).exists()] == []


def test_the_readme_points_to_the_promises_and_to_the_packages_own_address() -> None:
    readme, address = text("README.md"), PROJECT["urls"]["Repository"]
    assert "docs/promises.md" in LINK.findall(readme)
    assert set(re.findall(r"https://github\.com/\S+?(?=\.git\b|[\s')])", readme + text("RUNBOOK.md"))) == {address}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_commands_page_has_the_parsers_flags(command: str) -> None:
    assert page(command) == text(f"docs/{command}.md"), "run `python -m tests.command_pages --write`"


def test_every_command_has_a_page() -> None:
    assert set(commands()) == set(COMMANDS)


def test_every_environment_variable_that_is_read_is_described() -> None:
    read = set(re.findall(r'environment\.get\("([A-Z_]+)"', text("entrypoints/settings.py")))
    assert len(read) >= 3
    described = {cells[0].strip("`") for cells in rows(text("docs/serve.md"), "| Variable | Meaning |")}
    assert read == described


def test_every_field_of_a_request_is_described() -> None:
    fields = {*ChatRequest.model_fields, *CompletionRequest.model_fields, *StreamOptions.model_fields}
    described = set(re.findall(r"`(\w+)`", text("docs/api.md")))
    assert fields - described == set()


def test_the_table_of_fields_has_each_where_it_is_read() -> None:
    chat, completion = set(ChatRequest.model_fields), set(CompletionRequest.model_fields)
    table = list(rows(text("docs/api.md"), "| Field | `/v1/chat/completions` | `/v1/completions` | Without it |"))
    stated = [(name, *cells[1:3]) for cells in table for name in re.findall(r"`(\w+)`", cells[0])]
    assert len(stated) == len({name for name, *_ in stated}) == len(chat | completion)
    assert {name for name, chats, _ in stated if chats != "no"} == chat
    assert {name for name, _, completes in stated if completes != "no"} == completion
    accepted = rows(text("docs/api.md"), "| Field | Accepted |")
    neutral = {name for cells in accepted for name in re.findall(r"`(\w+)`", cells[0])}
    elsewhere = {"functions", "function_call", "add_special_tokens", "suffix"}
    assert {name for name, *routes in stated if "neutral" in routes} == neutral | elsewhere


def test_every_key_of_the_tensorfold_block_is_described() -> None:
    reply: Any = SimpleNamespace(drafts=True, greedy=True)
    block = figures(reply, ReplyDone("stop", ReplyStats(1, 1), "0" * 12), "mlx", [1])
    described = {
        name for cells in rows(text("docs/api.md"), "| Key | Holds |") for name in re.findall(r"`(\w+)`", cells[0])
    }
    assert set(block) == described


def test_the_page_on_sampling_has_the_rules_own_vectors() -> None:
    page = text("docs/sampling.md")
    assert f"`{RULE}`" in page
    seeds = list(rows(page, "| prompt ids | salt 0 | salt 1 |"))
    for ids, without, salted in seeds:
        prompt = [int(part) for part in ids.split(",") if part]
        assert [derive_seed(prompt), derive_seed(prompt, 1)] == [int(without), int(salted)]
    values = list(rows(page, "| seed | position | id | h | u | g |"))
    for seed, position, token, bits, uniform, value in values:
        key = (int(seed), int(position), np.array([int(token)]))
        assert int(keyed_hash(*key)[0]) == int(bits, 16)
        assert (int(bits, 16) >> 11) * 2.0**-53 + 2.0**-54 == float(uniform)
        assert noise(*key)[0] == pytest.approx(float(value), rel=1e-15)
    assert (len(seeds), len(values)) == (3, 5)


def test_the_page_on_sampling_draws_what_the_rule_draws() -> None:
    page = text("docs/sampling.md")
    stated = re.search(r"Draws of the logits `([^`]+)`", page)
    assert stated is not None
    logits = np.array([float(part) for part in stated.group(1).split(",")], np.float32)
    draws = list(rows(page, "| seed | temperature | top_k | top_p | min_p | tokens |"))
    for seed, temperature, top_k, top_p, min_p, tokens in draws:
        sampling = Sampling(int(seed), float(temperature), int(top_k), float(top_p), float(min_p))
        assert [draw(logits, position, sampling) for position in range(12)] == [int(t) for t in tokens.split(",")]
    assert len(draws) == 3


def test_every_library_asked_for_is_in_the_notices() -> None:
    asked = {names(distribution(line)) for line in (*PROJECT["dependencies"], *itertools.chain(*EXTRAS.values()))}
    page = text("THIRD_PARTY_NOTICES.md")
    noted = {names(cell.split(",")[0].strip()) for cell in re.findall(r"^\| ([^|]+) \|", page, re.MULTILINE)}
    assert asked - noted - {"tensorfold"} == set()
