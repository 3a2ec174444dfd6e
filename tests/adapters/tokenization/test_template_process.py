"""The renderer's process: stopped at its limits, replaced for the next request, and never left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tensorfold.adapters.tokenization.render_limits import MIB, RenderLimits
from tensorfold.adapters.tokenization.template import SandboxedTemplate, load_template
from tensorfold.application.ports.tokenizer import TemplateError
from tests.adapters.tokenization.processes import children, gone_within

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
LIMITS = RenderLimits(memory_bytes=128 * MIB, output_bytes=1 * MIB, seconds=30)
BRIEF = replace(LIMITS, seconds=1.5)
# Does what the user says, so that one request can cost the process its life and the next need not.
OBEDIENT = """
{%- set word = messages[-1].content -%}
{%- if word == 'loop' -%}{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}
{%- elif word == 'power' -%}{{ 9 ** (9 ** 8 * messages | length) }}
{%- elif word == 'memory' -%}{{ ('a' * messages | length) * 10 ** 10 }}
{%- elif word == 'output' -%}{% for a in range(100000) %}{{ 'x' * 1000 }}{% endfor %}
{%- else -%}{{ word }}{%- endif -%}
"""


def _said(word: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": word}]


@pytest.fixture
def template(tmp_path: Path) -> Iterator[SandboxedTemplate]:
    before = children(os.getpid())
    (tmp_path / "chat_template.jinja").write_text(OBEDIENT)
    loaded = load_template(tmp_path, LIMITS)
    assert isinstance(loaded, SandboxedTemplate)
    yield loaded
    loaded.close()
    assert children(os.getpid()) == before


def _renderers(before: set[int]) -> set[int]:
    return children(os.getpid()) - before


@pytest.mark.parametrize(
    ("word", "reason"), [("memory", "needed more than 128 MiB of memory"), ("output", "output passed 1 MiB")]
)
def test_a_request_that_hits_a_limit_fails_alone(template: SandboxedTemplate, word: str, reason: str) -> None:
    with pytest.raises(TemplateError, match=reason):
        template.render(_said(word))
    assert template.render(_said("next")).text == "next"


@pytest.mark.parametrize("word", ["loop", "power"])
def test_a_request_that_takes_all_its_time_fails_alone(tmp_path: Path, word: str) -> None:
    before = children(os.getpid())
    (tmp_path / "chat_template.jinja").write_text(OBEDIENT)
    template = load_template(tmp_path, BRIEF)
    with pytest.raises(TemplateError, match=r"ran for more than 1\.5 s"):
        template.render(_said(word))
    assert template.render(_said("next")).text == "next"
    template.close()
    assert _renderers(before) == set()


def test_one_process_serves_many_renderings(tmp_path: Path, template: SandboxedTemplate) -> None:
    first = children(os.getpid())
    for number in range(20):
        assert template.render(_said(str(number))).text == str(number)
    assert children(os.getpid()) == first


def test_a_process_that_died_between_requests_is_replaced_unnoticed(tmp_path: Path) -> None:
    before = children(os.getpid())
    (tmp_path / "chat_template.jinja").write_text(OBEDIENT)
    template = load_template(tmp_path, LIMITS)
    (renderer,) = _renderers(before)
    os.kill(renderer, signal.SIGKILL)
    assert gone_within(renderer, 30)
    assert template.render(_said("next")).text == "next"
    assert _renderers(before) not in (set(), {renderer})
    template.close()
    assert _renderers(before) == set()


def test_a_process_that_dies_while_it_renders_fails_one_request(tmp_path: Path) -> None:
    before = children(os.getpid())
    (tmp_path / "chat_template.jinja").write_text(OBEDIENT)
    template = load_template(tmp_path, RenderLimits(seconds=60))
    (renderer,) = _renderers(before)
    killer = threading.Timer(0.5, os.kill, (renderer, signal.SIGKILL))
    killer.start()
    with pytest.raises(TemplateError, match="renderer ended without an answer"):
        template.render(_said("loop"))
    assert template.render(_said("next")).text == "next"
    template.close()
    assert _renderers(before) == set()


def test_closing_ends_a_rendering_in_its_middle_and_every_later_one(tmp_path: Path) -> None:
    before = children(os.getpid())
    (tmp_path / "chat_template.jinja").write_text(OBEDIENT)
    template = load_template(tmp_path, RenderLimits(seconds=60))
    said: list[str] = []

    def work() -> None:
        try:
            template.render(_said("loop"))
        except TemplateError as refusal:
            said.append(refusal.message)

    thread = threading.Thread(target=work)
    thread.start()
    closer = threading.Timer(0.5, template.close)
    closer.start()
    thread.join(30)
    closer.join(30)
    assert said == ["The chat template is closed; the server is ending."]
    with pytest.raises(TemplateError, match="is closed"):
        template.render(_said("next"))
    template.close()
    assert _renderers(before) == set()


def test_no_descriptor_is_left_by_processes_that_were_stopped(template: SandboxedTemplate) -> None:
    before = len(os.listdir("/dev/fd"))
    for _ in range(5):
        with pytest.raises(TemplateError):
            template.render(_said("memory"))
        template.render(_said("next"))
    assert len(os.listdir("/dev/fd")) == before


def test_threads_that_render_at_once_get_their_own_texts(template: SandboxedTemplate) -> None:
    wrong: list[str] = []

    def work(number: int) -> None:
        for turn in range(30):
            word = f"{number}/{turn}" * 50
            if template.render(_said(word)).text != word:
                wrong.append(word)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


ORPHANED = """
import sys
from pathlib import Path
from tensorfold.adapters.tokenization.render_limits import RenderLimits
from tensorfold.adapters.tokenization.template import load_template
template = load_template(Path(sys.argv[1]), RenderLimits(seconds=2))
print("loaded", flush=True)
template.render([{"role": "user", "content": sys.argv[2]}])
sys.stdin.read()
"""


@pytest.mark.parametrize("word", ["idle", "loop", "power"])
def test_the_process_ends_when_the_server_is_killed(tmp_path: Path, word: str) -> None:
    (tmp_path / "chat_template.jinja").write_text(OBEDIENT)
    server = subprocess.Popen(
        [sys.executable, "-c", ORPHANED, str(tmp_path), word],
        env={"PYTHONPATH": f"{ROOT / '.pkg'}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"loaded\n"
        (renderer,) = children(server.pid)
        server.kill()
    assert gone_within(renderer, 60)


@pytest.mark.skipif(not Path("/proc/self/limits").exists(), reason="reads what the system enforces from /proc")
def test_the_process_holds_its_pipe_alone_and_may_open_nothing(template: SandboxedTemplate, tmp_path: Path) -> None:
    limits = {}
    for renderer in children(os.getpid()):
        if b"render_child" in Path(f"/proc/{renderer}/cmdline").read_bytes():
            for line in Path(f"/proc/{renderer}/limits").read_text().splitlines()[1:]:
                limits[line[:26].strip()] = line[26:].split()[1]
            assert sorted(os.listdir(f"/proc/{renderer}/fd")) == ["0", "1", "2"]
            assert Path(f"/proc/{renderer}/fd/2").readlink() == Path("/dev/null")
    assert {name: limits[name] for name in ("Max open files", "Max file size", "Max core file size")} == {
        "Max open files": "3",
        "Max file size": "0",
        "Max core file size": "0",
    }
    assert limits["Max address space"] == str(LIMITS.memory_bytes)


def _impostor(folder: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """Start this script in the renderer's place; it greets as the renderer does, then gives `answer`."""
    script = folder / "impostor"
    script.write_text(f"#!/bin/sh\nprintf '\\000\\000\\000\\002{{}}'\nprintf '{answer}'\nexec sleep 600\n")
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))


def _frame(reply: object) -> str:
    body = json.dumps(reply)
    return f"\\000\\000\\{len(body) >> 8:03o}\\{len(body) & 255:03o}{body}"


@pytest.mark.parametrize(
    "answer",
    [
        "\\377\\377\\377\\377",
        "\\000\\000\\000\\004nope",
        "\\000\\000\\000\\004\\377\\377\\377\\377",
        _frame([]),
        _frame({"text": 7}),
        _frame({"fault": 1}),
        _frame({"fault": "refused", "line": "x", "detail": ""}),
        "",
    ],
)
def test_an_answer_that_is_none_is_refused_and_its_process_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    before = children(os.getpid())
    (tmp_path / "chat_template.jinja").write_text("x")
    _impostor(tmp_path, monkeypatch, answer)
    with pytest.raises(TemplateError, match=r"ended without an answer|ran for more than") as refusal:
        load_template(tmp_path, BRIEF)
    assert refusal.value.message.isprintable()
    assert _renderers(before) == set()


def test_a_fault_of_an_unknown_name_is_a_plain_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "chat_template.jinja").write_text("x")
    _impostor(tmp_path, monkeypatch, _frame({"fault": "<b>", "line": 10**9, "detail": "x"}))
    with pytest.raises(TemplateError) as refusal:
        load_template(tmp_path, LIMITS)
    assert refusal.value.message == "The chat template in chat_template.jinja failed on these messages."


@pytest.mark.parametrize("executable", ["/no/such/python", "/bin/true", ""])
def test_a_renderer_that_cannot_start_says_what_must_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executable: str
) -> None:
    (tmp_path / "chat_template.jinja").write_text("x")
    monkeypatch.setattr(sys, "executable", executable)
    with pytest.raises(TemplateError, match="renderer did not start"):
        load_template(tmp_path, LIMITS)
