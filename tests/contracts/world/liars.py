"""Machines, stores, links, services and sources of weights that break one promise each."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tensorfold.application.ports.checkpoints import Transfer
from tensorfold.application.ports.services import Release
from tensorfold.application.ports.stores import StoredChunk, StoreState
from tests.contracts.lies import Lie, lying, lying_part
from tests.contracts.registry_world import HUBS, PACKAGES, READERS, RECALLS
from tests.contracts.world import (
    checkpoint_checks,
    feed_and_report_checks,
    hub_checks,
    link_checks,
    machine_checks,
    package_checks,
    recall_checks,
    snapshot_checks,
)
from tests.contracts.world.feed_and_report_checks import ServiceSubject
from tests.contracts.world.link_checks import LinkSubject
from tests.contracts.world.machine_checks import MachineSubject
from tests.contracts.world.recall_checks import RecallSubject
from tests.contracts.world.snapshot_checks import SnapshotSubject
from tests.fakes.clock import FakeClock
from tests.fakes.machine import FakeDisk, FakeMemory
from tests.fakes.ranks import FakeRankLink, rank_pair
from tests.fakes.services import FakeReleaseFeed, FakeReportWriter
from tests.fakes.stores import FakeRecallStore, FakeSnapshotStore

_calls = itertools.count()


def _memory(**methods: Any) -> Callable[[Path], MachineSubject]:
    def build(folder: Path) -> MachineSubject:
        memory = lying(FakeMemory, **methods)()
        return MachineSubject(folder, memory=memory, use=lambda size: memory.allocate(size) or (lambda: None))

    return build


MACHINE_LIES: tuple[Lie, ...] = (
    (
        machine_checks.the_steady_clock_never_goes_back,
        lambda folder: MachineSubject(folder, lying(FakeClock, monotonic=lambda self: -float(next(_calls)))()),
    ),
    (machine_checks.the_calendar_is_in_unix_seconds, lambda folder: MachineSubject(folder, FakeClock(wall=0.0))),
    (
        machine_checks.free_space_is_told_for_folders_that_do_not_exist_yet,
        lambda folder: MachineSubject(folder, disk=lying(FakeDisk, free_bytes=lambda self, path: int(path.exists()))()),
    ),
    (machine_checks.memory_figures_are_bytes_or_unknown, _memory(cached=lambda self: -1)),
    (machine_checks.memory_in_use_is_counted_and_given_back, _memory()),
    (machine_checks.a_limit_says_whether_it_binds, _memory(limit=lambda self, size: None)),
    (
        machine_checks.a_limit_of_freed_bytes_says_whether_it_binds_and_holds,
        _memory(limit_cache=lambda self, size: "yes"),
    ),
)


def _recall(**methods: Any) -> Callable[[Path], RecallSubject]:
    def build(folder: Path) -> RecallSubject:
        honest = RECALLS[0].build(folder)
        kind = lying(FakeRecallStore, **methods)

        def lie(make: Callable[[], Any]) -> Callable[[], Any]:
            def made() -> Any:
                store = make()
                store.__class__ = kind
                return store

            return made

        return replace(honest, store=lie(honest.store), reader=lie(honest.reader), other=lie(honest.other))

    return build


_open, _append, _chunks, _delete = (
    FakeRecallStore.open,
    FakeRecallStore.append,
    FakeRecallStore.chunks,
    FakeRecallStore.delete_all,
)


def _open_always(self: FakeRecallStore) -> Any:
    self.folder.writer = None
    return _open(self)


def _open_writing(self: FakeRecallStore) -> Any:
    self._read_only = False
    return _open(self)


def _open_any(self: FakeRecallStore) -> Any:
    self.folder.tokenizer = ""
    return _open(self)


def _append_behind(self: FakeRecallStore, ids: Any) -> Any:
    added = _append(self, ids)
    return replace(added, parts=tuple(replace(part, offset=part.offset + 1) for part in added.parts))


def _append_first(self: FakeRecallStore, ids: Any) -> Any:
    added = _append(self, ids)
    return replace(added, parts=added.parts[:1])


def _forget_numbers(self: FakeRecallStore) -> Any:
    self.folder.last = 0
    return _delete(self)


def _delete_quietly(self: FakeRecallStore) -> Any:
    return replace(_delete(self), state="on")


RECALL_LIES: tuple[Lie, ...] = (
    (
        recall_checks.a_fresh_record_is_on_and_empty,
        _recall(chunks=lambda self: iter([StoredChunk(1, np.array([1], np.int32))])),
    ),
    (
        recall_checks.pieces_are_kept_in_order_over_closing,
        _recall(chunks=lambda self: (replace(chunk, ids=chunk.ids[::-1]) for chunk in _chunks(self))),
    ),
    (recall_checks.a_piece_lies_where_its_parts_say, _recall(append=_append_behind)),
    (recall_checks.a_piece_is_cut_where_its_chunk_ends, _recall(append=_append_first)),
    (
        recall_checks.the_oldest_chunks_make_room,
        _recall(append=lambda self, ids: replace(_append(self, ids), evicted=())),
    ),
    (recall_checks.a_second_store_reads_and_does_not_write, _recall(open=_open_always)),
    (recall_checks.a_reader_changes_nothing_and_takes_no_lock, _recall(open=_open_writing)),
    (recall_checks.another_tokenizer_is_refused, _recall(open=_open_any)),
    (recall_checks.a_trouble_pauses_and_passes, _recall(sync=lambda self: StoreState("on", 8))),
    (
        recall_checks.deleting_leaves_an_empty_record_that_goes_on,
        _recall(delete_all=lambda self: replace(self.state(), bytes_on_disk=0)),
    ),
    (recall_checks.deleting_leaves_an_empty_record_that_goes_on, _recall(delete_all=_forget_numbers)),
    (recall_checks.a_chunk_that_stays_is_named_until_it_goes, _recall(delete_all=_delete_quietly)),
    (recall_checks.closing_twice_is_harmless, _recall(close=lambda self: None)),
)


def _snapshots(**methods: Any) -> Callable[[Path], SnapshotSubject]:
    def build(folder: Path) -> SnapshotSubject:
        store = lying(FakeSnapshotStore, **methods)()
        return SnapshotSubject(lambda: store, store.spoil)

    return build


_load = FakeSnapshotStore.load


def _load_less(self: FakeSnapshotStore, key: str) -> Any:
    image = _load(self, key)
    return image and replace(image, buffers=image.buffers[:1])


SNAPSHOT_LIES: tuple[Lie, ...] = (
    (snapshot_checks.a_saved_image_is_loaded_whole, _snapshots(load=_load_less)),
    (snapshot_checks.a_missing_image_is_none, _snapshots(load=lambda self, key: _load(self, key) or b"")),
    (snapshot_checks.images_are_listed_newest_first, _snapshots(touch=lambda self, key: None)),
    (snapshot_checks.a_damaged_image_is_not_loaded, _snapshots(load=lambda self, key: self._images[key][1])),
    (snapshot_checks.the_oldest_of_a_kind_go, _snapshots(prune=lambda self, kind, most, most_bytes=None: None)),
)


class _TrustingLink(FakeRankLink):
    """Takes messages as they come, and nothing for an empty message."""

    def receive(self) -> tuple[int, bytes]:
        return self.incoming.messages.popleft() if self.incoming.messages else (0, b"")


def _links(kind: type[FakeRankLink]) -> Callable[[Path], LinkSubject]:
    def build(folder: Path) -> LinkSubject:
        zero, one = rank_pair()
        one.__class__ = kind
        wire = one.incoming
        return LinkSubject(zero, one, zero.close, wire.lose, wire.swap, wire.repeat)

    return build


LINK_LIES: tuple[Lie, ...] = (
    (
        link_checks.messages_arrive_whole_in_order_and_numbered,
        _links(lying(FakeRankLink, receive=lambda self: (0, FakeRankLink.receive(self)[1]))),
    ),
    (link_checks.a_lost_message_is_noticed, _links(_TrustingLink)),
    (link_checks.messages_out_of_order_are_noticed, _links(_TrustingLink)),
    (link_checks.a_repeated_message_is_noticed, _links(_TrustingLink)),
    (link_checks.a_peer_that_hung_up_is_noticed, _links(_TrustingLink)),
)

SERVICE_LIES: tuple[Lie, ...] = (
    (
        feed_and_report_checks.a_release_has_a_comparable_tag,
        lambda folder: ServiceSubject(folder, feed=FakeReleaseFeed(Release("latest", "notes"))),
    ),
    (
        feed_and_report_checks.a_release_brings_its_changelog_and_an_unknown_tag_none,
        lambda folder: ServiceSubject(
            folder,
            feed=lying(FakeReleaseFeed, changelog=lambda self, tag, timeout: "")(Release("v1.0.0", "notes")),
        ),
    ),
    (
        feed_and_report_checks.a_report_is_one_file_that_names_every_figure,
        lambda folder: ServiceSubject(
            folder,
            writer=lying(FakeReportWriter, write=lambda self, path, title, figures: path.write_text(title))(),
        ),
    ),
)


def _facts(**changes: Callable[[Any], Any]) -> Any:
    def facts(self: Any, folder: Path) -> Any:
        told = self.known[folder]
        return replace(told, **{name: change(told) for name, change in changes.items()})

    return facts


SOURCE_LIES: tuple[Lie, ...] = (
    (
        checkpoint_checks.facts_are_whole_and_say_the_same_twice,
        lying_part(READERS[0], "reader", facts=_facts(weight_bytes=lambda told: 7)),
    ),
    (
        checkpoint_checks.a_digest_tells_weights_apart,
        lying_part(READERS[0], "reader", facts=_facts(digest=lambda told: "same")),
    ),
    (checkpoint_checks.bad_folders_are_refused_in_one_sentence, lying_part(READERS[0], "reader", facts=_facts())),
    (
        checkpoint_checks.the_files_of_the_weights_are_named,
        lying_part(READERS[0], "reader", weight_files=lambda self, folder: ["other.safetensors"]),
    ),
    (
        hub_checks.a_repository_is_cached_once_it_was_fetched,
        lying_part(HUBS[0], "hub", cached=lambda self, repo, revision: self.folders.get(repo)),
    ),
    (
        hub_checks.a_repository_is_known_once_its_configuration_is_here,
        lying_part(HUBS[0], "hub", known=lambda self, repo, revision: self.cached(repo, revision)),
    ),
    (
        hub_checks.a_download_tells_how_far_it_is,
        lying_part(HUBS[0], "hub", fetch=lambda self, repo, revision, say, moved=None: moved(Transfer(2, 1))),
    ),
    (
        hub_checks.an_unknown_repository_is_refused_in_one_sentence,
        lying_part(HUBS[0], "hub", fetch_config=lambda self, repo, revision: self.folders[repo]),
    ),
    (
        package_checks.a_name_is_provided_once,
        lying_part(PACKAGES[0], "package", provide=lambda self, name, say: say("again") or self._folders[name]),
    ),
    (
        package_checks.what_is_told_of_a_name_is_what_its_files_say,
        lying_part(PACKAGES[0], "package", describe=lambda self, name: ({"model_type": "other"}, {})),
    ),
    (
        package_checks.an_unknown_name_is_refused_in_one_sentence,
        lying_part(PACKAGES[0], "package", provide=lambda self, name, say: self._folders[name]),
    ),
)
