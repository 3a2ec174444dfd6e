"""The composition root: the only module that names adapters, through factories that import inside.

Building the container loads nothing; a provider imports its adapter when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dependency_injector import containers, providers

from tensorfold import __version__
from tensorfold.application.catalogue import ModelSources
from tensorfold.application.checkpoint_parts import CheckpointParts
from tensorfold.application.describing import Describer
from tensorfold.application.drafters import Drafters
from tensorfold.application.ports.backend import Backend
from tensorfold.application.ports.benchmarks import BenchmarkFiles, ChatServer
from tensorfold.application.ports.checkpoints import CheckpointReader, ModelHub, WeightPackage
from tensorfold.application.ports.installation import Installation, UpdateMemory
from tensorfold.application.ports.keys import KeyFile
from tensorfold.application.ports.machine import Clock
from tensorfold.application.ports.request_file import RequestFile
from tensorfold.application.ports.services import GrammarCompiler, ReleaseFeed, ReportWriter
from tensorfold.application.ports.stores import SnapshotStore
from tensorfold.application.ports.tokenizer import ChatTemplate, Tokenizer
from tensorfold.application.prompt_keeping import Accepts, ChunkMemory
from tensorfold.application.pulling import Puller
from tensorfold.application.recall import RecallService
from tensorfold.application.releases import ProjectAddress
from tensorfold.domain.drafting.sources import DraftSourceFactory
from tensorfold.domain.recall.identity import RecordIdentity
from tensorfold.domain.recall.policy import OfferSettings


def _clock() -> Clock:
    from tensorfold.adapters.system.clock import SystemClock

    return SystemClock()


def _reader() -> CheckpointReader:
    from tensorfold.adapters.filesystem.checkpoints import FolderReader

    return FolderReader()


def _package(cache: Path) -> WeightPackage:
    from tensorfold.adapters.packages.demo import DemoPackage

    return DemoPackage(cache)


def _hub(reader: CheckpointReader, parts: CheckpointParts) -> ModelHub:
    from tensorfold.adapters.huggingface.hub import HuggingFaceHub
    from tensorfold.adapters.huggingface.settings import library_settings
    from tensorfold.adapters.system.disk import SystemDisk

    return HuggingFaceHub(library_settings(__version__), reader, parts, SystemDisk())


def _tokenizer(folder: Path) -> Tokenizer:
    from tensorfold.adapters.tokenization.tokenizer import load_tokenizer

    return load_tokenizer(folder)


def _template(folder: Path) -> ChatTemplate:
    from tensorfold.adapters.tokenization.template import load_template

    return load_template(folder)


def _grammars(tokenizer: Tokenizer, end_ids: frozenset[int]) -> GrammarCompiler:
    from tensorfold.adapters.grammar.compiler import GuidanceCompiler

    return GuidanceCompiler(tokenizer, end_ids)


def _backend(name: str, cache: Path) -> Backend:
    if name == "cuda":
        from tensorfold.adapters.cuda.backend import CudaBackend

        return CudaBackend(cache)
    from tensorfold.adapters.mlx.backend import MlxBackend

    return MlxBackend(cache)


def _copies() -> tuple[DraftSourceFactory, ...]:
    from tensorfold.domain.drafting.copies import CopySourceFactory

    return (CopySourceFactory(),)


def _recall(
    clock: Clock,
    folder: Path,
    identity: RecordIdentity,
    budget_bytes: int,
    read_only: bool,
    log: Callable[[str], None],
    offers: OfferSettings | None = None,
) -> RecallService:
    from tensorfold.adapters.filesystem.record_posix import PosixRecordFiles
    from tensorfold.adapters.filesystem.record_store import RecordStore
    from tensorfold.adapters.system.disk import SystemDisk

    disk = SystemDisk()
    store = RecordStore(
        PosixRecordFiles(folder),
        identity,
        budget_bytes=budget_bytes,
        read_only=read_only,
        free_bytes=lambda: disk.free_bytes(folder),
        clock=clock,
        log=log,
        folder=str(folder),
    )
    return RecallService(
        store, identity, directory=str(folder), budget_bytes=budget_bytes, clock=clock, log=log, offers=offers
    )


def _snapshots(folder: Path, model: str, identity: str, accepts: Accepts, log: Callable[[str], None]) -> SnapshotStore:
    from tensorfold.adapters.filesystem.snapshot_files import SnapshotFolder
    from tensorfold.adapters.filesystem.snapshot_format import SnapshotIdentity
    from tensorfold.adapters.filesystem.snapshot_store import FolderSnapshotStore

    return FolderSnapshotStore(SnapshotFolder(folder), SnapshotIdentity(model, identity), accepts, log)


def _chunks(cache: Path) -> ChunkMemory:
    from tensorfold.adapters.filesystem.chosen_chunks import FolderChunkMemory

    return FolderChunkMemory(cache / "checks")


def _benchmark_files() -> BenchmarkFiles:
    from tensorfold.adapters.filesystem.benchmark_files import FolderBenchmarkFiles

    return FolderBenchmarkFiles()


def _report_writer() -> ReportWriter:
    from tensorfold.adapters.reports.writer import SvgReportWriter

    return SvgReportWriter()


def _chat_server(clock: Clock, url: str, key: str | None) -> ChatServer:
    from tensorfold.adapters.servers.chat_server import HttpChatServer

    return HttpChatServer(url, key, clock)


def _machine() -> str:
    from tensorfold.adapters.system.machine import machine_class

    return machine_class()


def _load() -> float | None:
    from tensorfold.adapters.system.machine import load_average

    return load_average()


def _installation() -> Installation:
    from tensorfold import __version__
    from tensorfold.adapters.releases.installation import PackageInstallation

    return PackageInstallation(__version__)


def _release_feed(address: ProjectAddress) -> ReleaseFeed:
    from tensorfold.adapters.releases.feed import SiteReleaseFeed

    return SiteReleaseFeed(address)


def _update_memory(cache: Path) -> UpdateMemory:
    from tensorfold.adapters.releases.memory import FolderUpdateMemory

    return FolderUpdateMemory(cache)


def _key_file(path: Path) -> KeyFile:
    from tensorfold.adapters.filesystem.key_file import FolderKeyFile

    return FolderKeyFile(path)


def _request_file(path: Path, variable: str) -> RequestFile:
    from tensorfold.adapters.filesystem.request_file import PlainRequestFile

    return PlainRequestFile(path, variable)


class Container(containers.DeclarativeContainer):
    """Every service a command may need, each built once."""

    cache = providers.Dependency(instance_of=Path)
    clock: providers.Provider[Clock] = providers.Singleton(_clock)
    reader: providers.Provider[CheckpointReader] = providers.Singleton(_reader)
    package: providers.Provider[WeightPackage] = providers.Singleton(_package, cache)
    parts: providers.Provider[CheckpointParts] = providers.Singleton(CheckpointParts, reader)
    hub: providers.Provider[ModelHub] = providers.Singleton(_hub, reader, parts)
    models: providers.Provider[ModelSources] = providers.Singleton(ModelSources, package, hub.provider, reader)
    drafters: providers.Provider[Drafters] = providers.Singleton(Drafters, models, reader)
    puller: providers.Provider[Puller] = providers.Singleton(Puller, models, parts)
    describer: providers.Provider[Describer] = providers.Singleton(Describer, models, parts)
    tokenizer: providers.Provider[Tokenizer] = providers.Factory(_tokenizer)
    template: providers.Provider[ChatTemplate] = providers.Factory(_template)
    grammars: providers.Provider[GrammarCompiler] = providers.Factory(_grammars)
    backend: providers.Provider[Backend] = providers.Factory(_backend, cache=cache)
    sources: providers.Provider[tuple[DraftSourceFactory, ...]] = providers.Factory(_copies)
    recall: providers.Provider[RecallService] = providers.Factory(_recall, clock)
    snapshots: providers.Provider[SnapshotStore] = providers.Factory(_snapshots)
    chunks: providers.Provider[ChunkMemory] = providers.Singleton(_chunks, cache)
    benchmark_files: providers.Provider[BenchmarkFiles] = providers.Singleton(_benchmark_files)
    report_writer: providers.Provider[ReportWriter] = providers.Singleton(_report_writer)
    chat_server: providers.Provider[ChatServer] = providers.Factory(_chat_server, clock)
    machine: providers.Provider[str] = providers.Callable(_machine)
    load: providers.Provider[float | None] = providers.Callable(_load)
    installation: providers.Provider[Installation] = providers.Singleton(_installation)
    release_feed: providers.Provider[ReleaseFeed] = providers.Factory(_release_feed)
    update_memory: providers.Provider[UpdateMemory] = providers.Singleton(_update_memory, cache)
    key_file: providers.Provider[KeyFile] = providers.Factory(_key_file)
    request_file: providers.Provider[RequestFile] = providers.Factory(_request_file)
