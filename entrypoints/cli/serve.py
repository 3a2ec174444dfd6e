"""`tensorfold serve MODEL`: bind, load, report, serve until a signal, end cleanly.

The address is taken before anything is loaded, so a port in use costs seconds. The first signal drains, the second
ends at once.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from types import FrameType

from tensorfold import __version__
from tensorfold.application.chat import ChatService
from tensorfold.application.health import HealthService, Watchdog
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.tokenizer import ChatTemplate, TemplateError
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import SamplingDefaults
from tensorfold.entrypoints.cli.lines import dump_stacks, put, say, warn
from tensorfold.entrypoints.cli.opening import Checked, check, loading_line, report_lines, sampling_defaults, schedule
from tensorfold.entrypoints.container import Container
from tensorfold.entrypoints.http.access_log import AccessRecord
from tensorfold.entrypoints.http.limits import HttpLimits
from tensorfold.entrypoints.http.listening import ListenError
from tensorfold.entrypoints.http.server import HttpServer, exposure_warning
from tensorfold.entrypoints.settings import RunSettings, run_settings

_LOAD_POLL_S = 0.2
_END_S = 10.0


def serve(flags: argparse.Namespace) -> int:
    """Serve until a signal; 0 after a clean end, 130 when a second signal cut it short. Raises RefusedError."""
    settings = run_settings(flags, os.environ)
    container = Container(cache=settings.cache)
    signals = Signals()
    server = _listen(settings)
    server.start()
    try:
        return _run(settings, container, server, signals)
    finally:
        server.stop(0.0)


class Signals:
    """Which signals that ask for the end have come: the first sets `asked`, a further one `again`."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.again = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._take)
        if hasattr(signal, "SIGUSR1"):
            signal.signal(signal.SIGUSR1, lambda number, frame: dump_stacks("stacks, as SIGUSR1 asked"))

    def _take(self, number: int, frame: FrameType | None) -> None:
        (self.again if self.asked.is_set() else self.asked).set()


def _listen(settings: RunSettings) -> HttpServer:
    if (warning := exposure_warning(settings.http)) is not None:
        warn(warning)
    limits = HttpLimits.for_load(settings.engine.parallel, settings.engine.queue)
    try:
        return HttpServer(settings.http, limits, version=__version__, log=_tell, log_fault=_tell_fault)
    except ListenError as refusal:
        raise RefusedError(refusal.message) from None


def _tell(record: AccessRecord) -> None:
    say(record.line())


def _tell_fault(where: str, broken: BaseException) -> None:
    warn(f"{where} failed: {broken!r}")


def _run(settings: RunSettings, container: Container, server: HttpServer, signals: Signals) -> int:
    began = time.monotonic()
    checked = check(settings, container, say)
    say(loading_line(checked, settings.model.backend != "auto"))
    template = _template(checked, container)
    scheduler = schedule(checked, settings, container, say)
    watchdog = Watchdog(scheduler, dump_stacks)
    try:
        scheduler.start()
        if not _loaded(scheduler, signals):
            return 0
        watchdog.start()
        defaults = sampling_defaults(checked, settings)
        _open(checked, settings, container, scheduler, template, server, defaults)
        _report(checked, settings, scheduler, server, defaults, time.monotonic() - began)
        signals.asked.wait()
        return _end(server, signals)
    finally:
        watchdog.stop()
        if not scheduler.stop(_END_S):
            warn("the engine did not end in time; leaving it behind")
        template.close()


def _template(checked: Checked, container: Container) -> ChatTemplate:
    try:
        template: ChatTemplate = container.template(checked.folder)
    except TemplateError as refusal:
        raise RefusedError(refusal.message) from None
    return template


def _loaded(scheduler: Scheduler, signals: Signals) -> bool:
    """Wait for the model; False when a signal came first."""
    while not scheduler.wait_ready(_LOAD_POLL_S):
        if signals.asked.is_set():
            return False
    return True


def _open(
    checked: Checked,
    settings: RunSettings,
    container: Container,
    scheduler: Scheduler,
    template: ChatTemplate,
    server: HttpServer,
    defaults: SamplingDefaults,
) -> None:
    chat = ChatService(
        scheduler,
        checked.tokenizer,
        template,
        defaults,
        container.clock(),
        model_names=(checked.name, *settings.model.aliases),
        thinking=settings.model.thinking,
    )
    server.ready(chat, HealthService(scheduler, {}), checked.backend)


def _report(
    checked: Checked,
    settings: RunSettings,
    scheduler: Scheduler,
    server: HttpServer,
    defaults: SamplingDefaults,
    seconds: float,
) -> None:
    for line in report_lines(checked, scheduler, settings.engine.drafts):
        say(line)
    keys = len(settings.http.keys)
    say(f"keys: {keys} API key{'s' if keys != 1 else ''}" if keys else "keys: none, the server is open")
    sampling = (
        "greedy" if defaults.temperature <= 0 else f"temperature {defaults.temperature:g}, top-p {defaults.top_p:g}"
    )
    say(
        f"serving {checked.name} on {server.url} ({sampling} unless a request says otherwise; ready in {seconds:.1f} s)"
    )
    say("try it:")
    put(_curl(server.url, checked.name))


def _curl(url: str, model: str) -> str:
    body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "What is the capital of France?"}}]}}'
    return f"curl {url}/chat/completions -H 'Content-Type: application/json' -d '{body}'"


def _end(server: HttpServer, signals: Signals) -> int:
    say("ending: running replies may finish for a few seconds; a second Ctrl-C ends them now")
    ender = threading.Thread(target=server.stop, daemon=True)
    ender.start()
    while ender.is_alive():
        ender.join(0.1)
        if signals.again.is_set():
            server.hurry()
            ender.join(_END_S)
            return 130
    say("ended")
    return 0
