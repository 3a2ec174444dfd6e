"""Every clock, disk, allocator, store, link, feed, writer, reader, hub and package that a contract suite runs on."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tensorfold.application.ports.checkpoints import CheckpointFacts, WeightPackage
from tensorfold.application.ports.services import Release
from tensorfold.domain.families.storage import TensorHeader
from tensorfold.domain.recall.identity import RecordIdentity
from tests.contracts.candidates import Candidate
from tests.contracts.world.checkpoint_checks import ReaderSubject
from tests.contracts.world.feed_and_report_checks import ServiceSubject
from tests.contracts.world.hub_checks import HubSubject
from tests.contracts.world.link_checks import LinkSubject
from tests.contracts.world.machine_checks import MachineSubject
from tests.contracts.world.package_checks import PackageSubject
from tests.contracts.world.recall_checks import RecallSubject
from tests.contracts.world.snapshot_checks import SnapshotSubject
from tests.fakes.checkpoints import FakeCheckpointReader, FakeModelHub, FakeWeightPackage
from tests.fakes.clock import FakeClock
from tests.fakes.machine import FakeDisk, FakeMemory
from tests.fakes.ranks import rank_pair
from tests.fakes.services import FakeReleaseFeed, FakeReportWriter
from tests.fakes.stores import FakeRecallStore, FakeRecordFolder, FakeSnapshotStore


def _fake_machine(folder: Path, binds: bool = True) -> MachineSubject:
    memory = FakeMemory(binds=binds)

    def use(size: int) -> Callable[[], None]:
        memory.allocate(size)
        return lambda: memory.free(size)

    return MachineSubject(folder, FakeClock(), FakeDisk(), memory, use)


def _system(folder: Path) -> MachineSubject:
    from tensorfold.adapters.system.clock import SystemClock
    from tensorfold.adapters.system.disk import SystemDisk

    return MachineSubject(folder, SystemClock(), SystemDisk())


def _mlx_memory(folder: Path, cpu: bool) -> MachineSubject:
    import mlx.core as mx

    from tensorfold.adapters.mlx.memory import MlxMemory

    def use(size: int) -> Callable[[], None]:
        held = [mx.zeros((size,), mx.uint8)]
        mx.eval(held)
        return held.clear

    return MachineSubject(folder, memory=MlxMemory(cpu=cpu), use=use)


MACHINES: tuple[Candidate[MachineSubject], ...] = (
    Candidate("fake", _fake_machine),
    Candidate("fake_of_unknown_memory", partial(_fake_machine, binds=False)),
    Candidate("system", _system),
    Candidate("mlx_of_a_cpu", partial(_mlx_memory, cpu=True)),
    Candidate("mlx_as_of_a_gpu", partial(_mlx_memory, cpu=False)),
)


def _fake_recall(folder: Path) -> RecallSubject:
    record = FakeRecordFolder()
    make = partial(FakeRecallStore, record, chunk_ids=512, most_chunks=3)

    def hinder(on: bool) -> None:
        record.trouble = "the disk is full" if on else ""

    def stick(sequence: int | None) -> None:
        record.stuck = set() if sequence is None else {sequence}

    reader, other = partial(make, read_only=True), partial(make, tokenizer="another")
    return RecallSubject(make, reader, other, hinder, stick, chunk_ids=512, most_chunks=3)


def _posix_recall(folder: Path) -> RecallSubject:
    from tensorfold.adapters.filesystem.record_posix import PosixRecordFiles
    from tensorfold.adapters.filesystem.record_store import RecordStore
    from tests.fakes.record_files import FaultyRecordFiles

    disk, stuck = FakeDisk(), set[str]()

    def make(read_only: bool = False, digit: str = "a") -> RecordStore:
        files = FaultyRecordFiles(PosixRecordFiles(folder / "record"))
        files.fails = lambda call, name: errno.EPERM if call == "remove" and name in stuck else None
        return RecordStore(
            files,
            RecordIdentity(digit * 64, 1_000_000, "model"),
            budget_bytes=3 * 4 * 512,
            read_only=read_only,
            free_bytes=lambda: disk.free_bytes(folder),
            clock=FakeClock(),
            log=lambda line: None,
            folder=str(folder / "record"),
            chunk_ids=512,
        )

    def hinder(on: bool) -> None:
        disk.free = 4 * 2**30 - on

    def stick(sequence: int | None) -> None:
        stuck.clear()
        if sequence is not None:
            stuck.add(f"{sequence:08d}.ids")

    reader, other = partial(make, read_only=True), partial(make, digit="b")
    return RecallSubject(make, reader, other, hinder, stick, chunk_ids=512, most_chunks=3)


def _fake_snapshots(folder: Path) -> SnapshotSubject:
    store = FakeSnapshotStore()
    return SnapshotSubject(lambda: store, store.spoil)


def _folder_snapshots(folder: Path) -> SnapshotSubject:
    from tensorfold.adapters.filesystem.snapshot_files import SnapshotFolder
    from tensorfold.adapters.filesystem.snapshot_format import SnapshotIdentity
    from tensorfold.adapters.filesystem.snapshot_store import FolderSnapshotStore

    def make() -> FolderSnapshotStore:
        identity = SnapshotIdentity("model", "model | runtime | kernels | grid2048")
        return FolderSnapshotStore(SnapshotFolder(folder / "kept"), identity, lambda n, b: True, lambda line: None)

    def spoil(key: str) -> None:
        path = folder / "kept" / f"{key}.safetensors"
        data = path.read_bytes()
        path.write_bytes(data[:-40] + bytes([data[-40] ^ 1]) + data[-39:])

    return SnapshotSubject(make, spoil)


RECALLS: tuple[Candidate[RecallSubject], ...] = (Candidate("fake", _fake_recall), Candidate("posix", _posix_recall))
SNAPSHOTS: tuple[Candidate[SnapshotSubject], ...] = (
    Candidate("fake", _fake_snapshots),
    Candidate("folder", _folder_snapshots),
)


def _fake_link(folder: Path) -> LinkSubject:
    zero, one = rank_pair()
    wire = one.incoming
    return LinkSubject(zero, one, zero.close, wire.lose, wire.swap, wire.repeat)


LINKS: tuple[Candidate[LinkSubject], ...] = (Candidate("fake", _fake_link),)


def _site_feed(folder: Path) -> ServiceSubject:
    from tensorfold.adapters.releases.feed import SiteReleaseFeed
    from tensorfold.application.releases import read_address
    from tests.fakes.release_site import ReleaseSite

    site = ReleaseSite()
    site.announce("v1.2.3")
    site.publish("v1.2.3", b"# Changes\n\n## 1.2.3\n")
    address = read_address(site.page)
    assert address is not None
    return ServiceSubject(folder, feed=SiteReleaseFeed(address))


def _svg_writer(folder: Path) -> ServiceSubject:
    from tensorfold.adapters.reports.writer import SvgReportWriter

    return ServiceSubject(folder, writer=SvgReportWriter())


SERVICES: tuple[Candidate[ServiceSubject], ...] = (
    Candidate(
        "fake_feed",
        lambda folder: ServiceSubject(folder, feed=FakeReleaseFeed(Release("v1.2.3", "notes"), "## 1.2.3\n")),
    ),
    Candidate("fake_feed_out_of_reach", lambda folder: ServiceSubject(folder, feed=FakeReleaseFeed())),
    Candidate("site", _site_feed),
    Candidate("fake_writer", lambda folder: ServiceSubject(folder, writer=FakeReportWriter())),
    Candidate("svg_writer", _svg_writer),
)


def _fake_reader(folder: Path) -> ReaderSubject:
    def facts(name: str) -> CheckpointFacts:
        header = TensorHeader("model.norm.weight", "F32", (8,), "model.safetensors", 64, 96)
        config = {"model_type": "llama"}
        return CheckpointFacts(folder / name, config, {}, {header.name: header}, 32, f"digest of {name}")

    known = {folder / name: facts(name) for name in ("good", "other")}
    return ReaderSubject(FakeCheckpointReader(known), folder / "good", folder / "other", (folder / "nowhere",))


def _folder_reader(folder: Path) -> ReaderSubject:
    from tensorfold.adapters.filesystem.checkpoints import FolderReader
    from tests.adapters.filesystem import bad_checkpoints

    paths = {name: folder / name for name in ("good", "other", "empty")}
    for path in paths.values():
        path.mkdir()
    bad_checkpoints.write_good(paths["good"])
    bad_checkpoints.write_good_shards(paths["other"])
    (paths["empty"] / "config.json").write_text("[", encoding="utf-8")
    return ReaderSubject(FolderReader(), paths["good"], paths["other"], (paths["empty"], folder / "nowhere"))


READERS: tuple[Candidate[ReaderSubject], ...] = (
    Candidate("fake", _fake_reader),
    Candidate("folder", _folder_reader),
)


def _configured(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}", encoding="utf-8")
    return folder


def _fake_hub(folder: Path) -> HubSubject:
    return HubSubject(FakeModelHub({"org/model": _configured(folder / "model")}), "org/model")


def _fake_package(folder: Path) -> PackageSubject:
    return PackageSubject(FakeWeightPackage({name: _configured(folder / name) for name in ("tiny", "tiny@4bit")}))


def tiny_package(folder: Path) -> WeightPackage:
    """The demo's package over a two-layer model of seeded weights, its cache below `folder`."""
    import hashlib
    from dataclasses import replace

    from tensorfold.adapters.packages.demo import DemoPackage
    from tensorfold.adapters.packages.package_source import SMOLLM2
    from tests.adapters.packages.gguf_samples import Llama

    file = folder / "tiny.gguf"
    file.write_bytes(Llama().build())
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    source = replace(SMOLLM2, member_bytes=file.stat().st_size, member_sha256=digest)
    return DemoPackage(folder / "cache", source, find=lambda wanted: file)


def _loopback_hub(folder: Path) -> HubSubject:
    from tests.adapters.huggingface.hubs import REPO, hub_over, servable_files
    from tests.fakes.hub_server import HubServer

    server = HubServer()
    server.add(REPO, servable_files())
    return HubSubject(hub_over(server, folder), REPO, server.close)


HUBS: tuple[Candidate[HubSubject], ...] = (Candidate("fake", _fake_hub), Candidate("loopback", _loopback_hub))
PACKAGES: tuple[Candidate[PackageSubject], ...] = (
    Candidate("fake", _fake_package),
    Candidate("demo", lambda folder: PackageSubject(tiny_package(folder))),
)
