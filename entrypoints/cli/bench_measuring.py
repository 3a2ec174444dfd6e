"""Measuring forms of `tensorfold bench`: a model in this process, or a server over HTTP.

Progress goes to stderr, the result to stdout. The record lies in a temporary folder of its own, never the user's.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorfold import __version__
from tensorfold.application.benchmark_prompts import Prompt, PromptSet, read_prompts
from tensorfold.application.benchmark_results import Result, result_object
from tensorfold.application.benchmark_server import ServerBenchmark, ServerMatrix
from tensorfold.application.benchmarking import Benchmark, Matrix, NotEqualError, Outcome, Question
from tensorfold.application.chat import ChatService
from tensorfold.application.errors import RequestError
from tensorfold.application.orders import ChatOrder
from tensorfold.application.ports.benchmarks import ServerFaultError
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.proving_record import RecordUnderProof
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import SamplingDefaults
from tensorfold.domain.recall.policy import OfferSettings
from tensorfold.domain.sampling import Sampling, derive_seed
from tensorfold.entrypoints.cli.bench_plots import write_plots
from tensorfold.entrypoints.cli.bench_progress import CellProgress, terminal
from tensorfold.entrypoints.cli.bench_words import table, verdict
from tensorfold.entrypoints.cli.choosing import run_with_backend
from tensorfold.entrypoints.cli.lines import put, warn
from tensorfold.entrypoints.cli.opening import Checked, check, loading_line, report_lines, schedule
from tensorfold.entrypoints.cli.record import records_below
from tensorfold.entrypoints.container import Container
from tensorfold.entrypoints.settings import cache_folder, own_path, server_key

_MODES = 3


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is measured and where the result goes."""

    prompts: PromptSet
    reply: int
    runs: int
    streams: tuple[int, ...]
    json: Path | None
    plots: Path | None


def measure(flags: argparse.Namespace) -> int:
    """Measure a model in this process; 1 when a reply was not the serial one, else 0. Raises RefusedError."""
    flags.parallel = max(flags.streams)
    settings, container = run_with_backend(flags, os.environ)
    plan = _plan(flags, container)
    notes = _load_note(container)
    checked = check(settings, container, warn)
    warn(loading_line(checked))
    with tempfile.TemporaryDirectory(prefix="tensorfold-bench-") as folder:
        record = RecordUnderProof(records_below(Path(folder), checked, container, warn, OfferSettings()))
        scheduler = schedule(checked, settings, container, warn, more_sources=(record,), recorder=record)
        progress = CellProgress(_MODES * len(plan.streams), terminal())
        scheduler.start()
        try:
            scheduler.wait_ready()
            questions, said = _questions(plan.prompts, checked, scheduler, container)
            notes += [*report_lines(checked, scheduler, settings.engine), *said]
            matrix = Matrix(questions, plan.reply, plan.runs, plan.streams)
            outcome = Benchmark(scheduler, record, container.clock(), matrix, progress).run()
        except NotEqualError as difference:
            progress.close()
            put(f"NOT EQUAL: {checked.name}, {difference.message}; nothing more was measured.")
            return 1
        finally:
            progress.close()
            scheduler.stop(10.0)
            record.rest()
    return _finish(
        _result(plan, container, outcome, notes, checked.name, checked.facts.digest, checked.backend, "scheduler"),
        plan,
        container,
    )


def measure_server(flags: argparse.Namespace) -> int:
    """Measure a server; 0. Raises RefusedError."""
    container = Container(cache=cache_folder(os.environ))
    plan = _plan(flags, container)
    server = container.chat_server(url=flags.url, key=server_key(flags.key))
    notes = _load_note(container)
    try:
        model = flags.model or server.models()[0]
    except ServerFaultError as fault:
        raise RefusedError(fault.message) from None
    progress = CellProgress(len(plan.streams), terminal())
    matrix = ServerMatrix(model, plan.prompts.prompts, plan.reply, plan.runs, plan.streams)
    benchmark = ServerBenchmark(server, container.clock(), matrix, progress)
    try:
        outcome = benchmark.run()
    finally:
        progress.close()
    notes += benchmark.notes
    return _finish(_result(plan, container, outcome, notes, model, "", "a server", "http"), plan, container)


def _plan(flags: argparse.Namespace, container: Container) -> _Plan:
    """Everything that can be refused before a model is looked for."""
    files = container.benchmark_files()
    if flags.prompts is None:
        prompts = read_prompts(files.public_prompts(), "the public files", "the public files")
    else:
        path = own_path("--prompts", flags.prompts, "file")
        prompts = read_prompts(files.prompts(path), "a file", f"--prompts {path}")
    out = None if flags.json is None else own_path("--json", flags.json, "file")
    if out is not None:
        files.check_place(out)
    plots = None if flags.plots is None else own_path("--plots", flags.plots, "folder")
    if plots is not None and plots.exists() and not plots.is_dir():
        raise RefusedError(f"--plots {plots} is no folder.")
    return _Plan(prompts, flags.tokens, flags.runs, flags.streams, out, plots)


def _load_note(container: Container) -> list[str]:
    load = container.load()
    return [] if load is None else [f"load average at the start: {load:.1f}"]


def _questions(
    prompts: PromptSet, checked: Checked, scheduler: Scheduler, container: Container
) -> tuple[tuple[Question, ...], list[str]]:
    """The prompts as ids, as the model's chat template renders them, and what is to be said of that."""
    template = container.template(checked.folder)
    chat = ChatService(
        scheduler, checked.tokenizer, template, SamplingDefaults(), container.clock(), model_names=(checked.name,)
    )
    try:
        if template.source == "none":
            plain = [(p, tuple(checked.tokenizer.encode(_text(p)))) for p in prompts.prompts]
            return tuple(_question(*one) for one in plain), ["the model has no chat template: prompts are plain text"]
        return tuple(_question(p, _rendered(chat, p)) for p in prompts.prompts), []
    finally:
        template.close()


def _text(prompt: Prompt) -> str:
    return "\n\n".join(text for _, text in prompt.messages) + "\n\n"


def _rendered(chat: ChatService, prompt: Prompt) -> tuple[int, ...]:
    try:
        return chat.chat_ids(ChatOrder(prompt.turns()))
    except RequestError as refusal:
        raise RefusedError(f"prompt {prompt.name!r} cannot be asked: {refusal.message}") from None


def _question(prompt: Prompt, ids: tuple[int, ...]) -> Question:
    if prompt.greedy:
        return Question(prompt.name, ids, Sampling())
    seed = derive_seed(ids) if prompt.seed is None else prompt.seed
    return Question(prompt.name, ids, Sampling(seed, prompt.temperature, prompt.top_k, prompt.top_p))


def _result(
    plan: _Plan,
    container: Container,
    outcome: Outcome,
    notes: Sequence[str],
    model: str,
    weights: str,
    backend: str,
    through: str,
) -> Result:
    return Result(
        version=__version__,
        date=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(container.clock().wall())),
        model=model,
        weights=weights,
        backend=backend,
        through=through,
        machine=container.machine(),
        prompts=plan.prompts.digest,
        prompt_names=tuple(prompt.name for prompt in plan.prompts.prompts),
        prompt_source=plan.prompts.source,
        reply=plan.reply,
        runs=plan.runs,
        compared=outcome.compared,
        differences=outcome.differences,
        rows=outcome.rows,
        notes=tuple(notes),
    )


def _finish(result: Result, plan: _Plan, container: Container) -> int:
    """Print the result and write what was asked for."""
    put(verdict(result))
    put()
    for line in table(result):
        put(line)
    if plan.json is not None:
        container.benchmark_files().write(plan.json, _json(result_object(result)))
        put(f"result   {plan.json}")
    if plan.plots is not None:
        for path in write_plots(result, plan.plots, container.report_writer()):
            put(f"chart    {path}")
    return 0


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=1, allow_nan=False) + "\n"
