"""Every kind of a benchmark's files and every client of a server that a contract suite runs on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.contracts.candidates import Candidate
from tests.contracts.world.benchmark_checks import FilesSubject
from tests.contracts.world.server_checks import STATE, TEXT, TOKENS, ServerSubject
from tests.fakes.benchmarks import FakeBenchmarkFiles, FakeChatServer
from tests.fakes.chat_site import CHAT, MODELS, RECALL, Answer, ChatSite, events, piece
from tests.fakes.clock import FakeClock, MachineClock


def _fake_server(folder: Path) -> ServerSubject:
    server = FakeChatServer(FakeClock(), text=TEXT, tokens=TOKENS, state=STATE)

    def refuse() -> None:
        server.refusal = "The server is closed."

    return ServerSubject(server, refuse)


def _http_server(folder: Path) -> ServerSubject:
    from tensorfold.adapters.servers.chat_server import HttpChatServer

    usage: dict[str, Any] = {"choices": [], "usage": {"completion_tokens": TOKENS}}
    answers = {
        CHAT: Answer(events(piece(TEXT[:4]), piece(TEXT[4:]), usage)),
        MODELS: Answer(b'{"data": [{"id": "m"}]}'),
        RECALL: Answer(f'{{"state": "{STATE}"}}'.encode()),
    }
    site = ChatSite(answers)
    return ServerSubject(HttpChatServer(site.url, None, MachineClock()), answers.clear, site.close)


def _folder_files(folder: Path) -> FilesSubject:
    from tensorfold.adapters.filesystem.benchmark_files import FolderBenchmarkFiles

    return FilesSubject(FolderBenchmarkFiles(), folder)


BENCHMARK_FILES: tuple[Candidate[FilesSubject], ...] = (
    Candidate("fake", lambda folder: FilesSubject(FakeBenchmarkFiles(folder), folder)),
    Candidate("folder", _folder_files),
)
CHAT_SERVERS: tuple[Candidate[ServerSubject], ...] = (
    Candidate("fake", _fake_server),
    Candidate("http", _http_server),
)
