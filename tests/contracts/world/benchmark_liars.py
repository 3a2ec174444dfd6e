"""Files and servers of a benchmark that break one promise each, beside the check that must notice it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tensorfold.application.ports.benchmarks import ServerFaultError
from tests.contracts.lies import Lie, lying_part
from tests.contracts.registry_benchmarks import BENCHMARK_FILES, CHAT_SERVERS
from tests.contracts.world import benchmark_checks, server_checks
from tests.fakes.benchmarks import FakeBenchmarkFiles, FakeChatServer

_FILES, _SERVER = BENCHMARK_FILES[0], CHAT_SERVERS[0]


def _more_each_time(self: Any) -> Any:
    self.times = getattr(self, "times", 0) + 1
    stated = {"name": f"hi {self.times}", "messages": [{"role": "user", "content": "Hi."}]}
    return (("public, line 1", stated),)


def _never_again(self: Any, path: Any, text: str) -> None:
    self.files.setdefault(path, text)


def _numbered_from_the_first_prompt(self: Any, path: Any) -> Any:
    prompts = FakeBenchmarkFiles.prompts(self, path)
    return tuple((f"{path}, line {number}", stated) for number, (_, stated) in enumerate(prompts, start=1))


def _writing_to_see(self: Any, path: Any) -> None:
    FakeBenchmarkFiles.check_place(self, path)
    self.files[path] = ""


def _late(self: Any, request: Any) -> Any:
    return replace(FakeChatServer.reply(self, request), first_s=3.0)


def _uncounted(self: Any, request: Any) -> Any:
    return replace(FakeChatServer.reply(self, request), tokens=None)


def _rude(self: Any, request: Any) -> Any:
    raise ServerFaultError("KeyError: 'choices'")


BENCHMARK_LIES: tuple[Lie, ...] = (
    (
        benchmark_checks.public_prompts_can_be_asked_and_never_change,
        lying_part(_FILES, "files", public_prompts=_more_each_time),
    ),
    (benchmark_checks.what_was_written_last_is_read, lying_part(_FILES, "files", write=_never_again)),
    (
        benchmark_checks.what_was_written_last_is_read,
        lying_part(_FILES, "files", prompts=_numbered_from_the_first_prompt),
    ),
    (
        benchmark_checks.a_file_that_is_not_there_is_refused_by_name,
        lying_part(_FILES, "files", result=lambda self, path: {}),
    ),
    (
        benchmark_checks.a_place_is_refused_before_anything_is_written_there,
        lying_part(_FILES, "files", check_place=lambda self, path: None),
    ),
    (
        benchmark_checks.a_place_is_refused_before_anything_is_written_there,
        lying_part(_FILES, "files", check_place=_writing_to_see),
    ),
    (server_checks.a_reply_is_its_text_its_count_and_its_times, lying_part(_SERVER, "server", reply=_late)),
    (server_checks.a_reply_is_its_text_its_count_and_its_times, lying_part(_SERVER, "server", reply=_uncounted)),
    (
        server_checks.a_server_names_its_models_and_its_record,
        lying_part(_SERVER, "server", models=lambda self: ()),
    ),
    (server_checks.what_a_server_refuses_is_one_sentence, lying_part(_SERVER, "server", reply=_rude)),
    (
        server_checks.what_a_server_refuses_is_one_sentence,
        lying_part(_SERVER, "server", record_state=lambda self: "on"),
    ),
)
