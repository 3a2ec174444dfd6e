"""`tensorfold serve MODEL`: bind, load, report, serve until a signal, end cleanly.

The address is taken before anything is loaded, so a port in use costs seconds. The first signal drains, or gives the
load up; the second ends at once. Whenever a signal comes, no traceback follows and no process stays.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from tensorfold import __version__
from tensorfold.application.chat import ChatService
from tensorfold.application.health import HealthService, Watchdog
from tensorfold.application.measures import MeasureService
from tensorfold.application.metering import Meter
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.tokenizer import ChatTemplate, TemplateError
from tensorfold.application.prompt_keeping import PromptKeeping
from tensorfold.application.recall import RecallService
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import SamplingDefaults
from tensorfold.entrypoints.cli.choosing import run_with_backend
from tensorfold.entrypoints.cli.key_file import keys_from
from tensorfold.entrypoints.cli.later_flags import refuse_flags
from tensorfold.entrypoints.cli.lines import dump_stacks, is_terminal, put, say, warn
from tensorfold.entrypoints.cli.live_line import Now, live_line
from tensorfold.entrypoints.cli.opening import (
    Checked,
    check,
    drafting,
    loading_line,
    report_lines,
    sampling_defaults,
    schedule,
)
from tensorfold.entrypoints.cli.prompt_keeping import keeping
from tensorfold.entrypoints.cli.record import open_record, recall_line
from tensorfold.entrypoints.cli.release_notices import say_first_serve, start_release_check
from tensorfold.entrypoints.cli.request_log import taken_by
from tensorfold.entrypoints.cli.signals import EndAskedError, Signals
from tensorfold.entrypoints.cli.startup_report import Ready, curl, ready_lines
from tensorfold.entrypoints.container import Container
from tensorfold.entrypoints.http.access_log import AccessRecord
from tensorfold.entrypoints.http.limits import HttpLimits
from tensorfold.entrypoints.http.listening import ListenError
from tensorfold.entrypoints.http.server import HttpServer, exposure_warning
from tensorfold.entrypoints.settings import RunSettings

_POLL_S = 0.1
_END_S = 10.0
_GIVE_UP_S = 3.0
"""How long a load that is given up may take to notice: nothing is lost by leaving it where it stands."""


class LoadEndedError(Exception):
    """The load was given up because a signal asked for the end."""


@dataclass(frozen=True, slots=True)
class _Opened:
    """What stands before the weights are read. `held` closes what is open: last, when nothing adds to the record."""

    checked: Checked
    template: ChatTemplate
    recall: RecallService | None
    keeping: PromptKeeping
    held: ExitStack


def serve(flags: argparse.Namespace, signals: Signals) -> int:
    """Serve until a signal; 0 after a clean end, 130 when a second signal cut it short. Raises RefusedError."""
    signals.on_stacks(dump_stacks)
    refuse_flags(flags)
    settings, container = run_with_backend(flags, os.environ)
    refuse_flags(flags, settings.choice.name if settings.choice else None)
    server = _listen(settings, taken_by(settings.http.request_log, container, warn))
    try:
        with keys_from(settings.http.key_file, container, server.keys, signals, say):
            server.start()
            start_release_check(settings.update, container, say)
            return _run(settings, container, server, signals)
    finally:
        server.stop(0.0)


def _listen(settings: RunSettings, taken: Callable[[Mapping[str, Any]], None]) -> HttpServer:
    limits = HttpLimits.for_load(settings.engine.parallel, settings.engine.queue)
    try:
        server = HttpServer(
            settings.http,
            limits,
            version=__version__,
            recall=settings.recall is not None,
            log=_tell,
            log_fault=_tell_fault,
            taken=taken,
        )
    except ListenError as refusal:
        raise RefusedError(refusal.message) from None
    if (warning := exposure_warning(settings.http)) is not None:
        warn(warning)
    return server


def _tell(record: AccessRecord) -> None:
    say(record.line())


def _tell_fault(where: str, broken: BaseException) -> None:
    warn(f"{where} failed: {broken!r}")


def _run(settings: RunSettings, container: Container, server: HttpServer, signals: Signals) -> int:
    began = time.monotonic()
    try:
        with signals.interrupting():
            checked = check(settings, container, say)
            say(loading_line(checked))
            for note in settings.notes:
                say(note)
            template = _template(checked, container)
    except EndAskedError:
        say("ended before the model was loaded")
        return 0
    with ExitStack() as held:
        held.callback(template.close)
        recall = open_record(checked, settings, container)
        if recall is not None:
            held.callback(recall.close)
            server.keep(recall)
        kept = keeping(checked, template, settings, container, say)
        held.callback(kept.close)
        return _serve(_Opened(checked, template, recall, kept, held), settings, container, server, signals, began)


def _serve(
    opened: _Opened, settings: RunSettings, container: Container, server: HttpServer, signals: Signals, began: float
) -> int:
    checked, recall, meter = opened.checked, opened.recall, Meter()
    scheduler = schedule(
        checked,
        settings,
        container,
        say,
        on_progress=lambda line: _progress(line, signals),
        more_sources=() if recall is None else (recall.factory,),
        recorder=recall,
        meter=meter,
        keeping=opened.keeping,
    )
    watchdog = Watchdog(scheduler, dump_stacks)
    code, patience_s = 1, _END_S
    try:
        scheduler.start()
        if not _loaded(scheduler, signals):
            code, patience_s = _give_up(scheduler, signals), 0.0
            return code
        watchdog.start()
        defaults = sampling_defaults(checked, settings)
        chat = _open(opened, settings, container, scheduler, meter, server, defaults)
        _report(opened, settings, scheduler, chat, server, defaults, time.monotonic() - began)
        say_first_serve(settings.update, container, say)
        _wait(settings, scheduler, server, signals)
        code = _end(server, signals)
        return code
    finally:
        watchdog.stop()
        if not scheduler.stop(patience_s):
            if patience_s:
                warn("the engine did not end in time; it is left inside its call")
            opened.held.close()
            _leave(server, code)


def _template(checked: Checked, container: Container) -> ChatTemplate:
    try:
        template: ChatTemplate = container.template(checked.folder)
    except TemplateError as refusal:
        raise RefusedError(refusal.message) from None
    return template


def _progress(line: str, signals: Signals) -> None:
    """Say a line of the load, or end the load there."""
    if signals.asked:
        raise LoadEndedError
    say(line)


def _loaded(scheduler: Scheduler, signals: Signals) -> bool:
    """Wait for the model; False when a signal came first."""
    try:
        while not scheduler.wait_ready(_POLL_S):
            if signals.asked:
                return False
    except LoadEndedError:
        return False
    return True


def _give_up(scheduler: Scheduler, signals: Signals) -> int:
    """End while the model loads: 0, or 130 when a second signal does not wait for the load to notice."""
    say("ending: the load is given up")
    deadline = time.monotonic() + _GIVE_UP_S
    while not scheduler.stop(_POLL_S) and time.monotonic() < deadline:
        if signals.again:
            return 130
    say("ended")
    return 0


def _leave(server: HttpServer, code: int) -> NoReturn:
    """End the process while its engine is inside a call: the interpreter's own end could crash that thread."""
    server.stop(0.0)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _open(
    opened: _Opened,
    settings: RunSettings,
    container: Container,
    scheduler: Scheduler,
    meter: Meter,
    server: HttpServer,
    defaults: SamplingDefaults,
) -> ChatService:
    checked = opened.checked
    chat = ChatService(
        scheduler,
        checked.tokenizer,
        opened.template,
        defaults,
        container.clock(),
        model_names=(checked.name, *settings.model.aliases),
        thinking=settings.model.thinking,
        effort=settings.model.effort,
        dialect=checked.described.plan.dialect,
        grammars=container.grammars(checked.tokenizer, ends) if (ends := checked.described.stop_ids) else None,
        thinking_budget=settings.model.thinking_budget,
    )
    health = HealthService(scheduler, {})
    measures = MeasureService(scheduler, meter, health.status, drafts=drafting(scheduler, settings.engine.drafts))
    server.ready(chat, health, checked.backend, measures)
    return chat


def _report(
    opened: _Opened,
    settings: RunSettings,
    scheduler: Scheduler,
    chat: ChatService,
    server: HttpServer,
    defaults: SamplingDefaults,
    seconds: float,
) -> None:
    checked = opened.checked
    for line in report_lines(checked, scheduler, settings.engine):
        say(line)
    for line in opened.keeping.lines():
        say(line)
    if opened.recall is not None:
        say(recall_line(opened.recall.report(), drafting(scheduler, settings.engine.drafts)))
    ready = Ready(
        names=chat.model_names,
        url=server.url,
        defaults=defaults,
        thinking=settings.model.thinking,
        effort=chat.effort,
        drafts=drafting(scheduler, settings.engine.drafts),
        context=chat.context,
        parallel=scheduler.parallel,
        keys=len(server.keys) if server.keys.required else None,
        metrics_open=settings.http.metrics_open,
        origins=settings.http.origins,
        seconds=seconds,
    )
    for line in ready_lines(ready):
        say(line)
    say("try it:" if ready.keys is None else "try it, with one of the keys in place of KEY:")
    put(curl(ready))


def _wait(settings: RunSettings, scheduler: Scheduler, server: HttpServer, signals: Signals) -> None:
    """Serve until the end is asked for, with a live line where a person looks."""

    def now() -> Now:
        decoding, filling, waiting = scheduler.loads()
        counters = scheduler.counters
        return Now(server.connections, decoding, filling, waiting, counters.completion_tokens, counters.filled_tokens)

    with live_line(now) if settings.live and is_terminal(sys.stdout) else nullcontext():
        signals.wait()


def _end(server: HttpServer, signals: Signals) -> int:
    say("ending: running replies may finish for a few seconds; a second Ctrl-C ends them now")
    ender = threading.Thread(target=server.stop, daemon=True)
    ender.start()
    while ender.is_alive():
        ender.join(_POLL_S)
        if signals.again:
            server.hurry()
            ender.join(_END_S)
            return 130
    say("ended")
    return 0
