"""What a server does to its record, in short scripts: each step may be cut off at any change that reaches the disk."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tensorfold.adapters.filesystem.record_files import RecordFiles
from tensorfold.domain.recall.layout import Ids
from tests.benchmarks.crash.disk import SimulatedDisk
from tests.benchmarks.crash.journal import Journal
from tests.benchmarks.crash.writer import Shape, Writer


class Killed(BaseException):
    """The process ends between two changes; no handler of errors sees it."""


@dataclass(slots=True)
class Stage:
    """One machine: its disk, the folder on it, the truth about its record, and pieces to add.

    `left` is after how many more changes the process is killed; None: never.
    """

    disk: SimulatedDisk
    files: RecordFiles
    journal: Journal
    shape: Shape
    pieces: Iterator[Ids]
    rng: random.Random
    left: int | None = None

    def changed(self) -> None:
        """One more change reached the disk."""
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                self.left = None
                raise Killed

    def start(self, chunks: int | None = None) -> Writer:
        """A server starts, with a budget of `chunks`."""
        shape = self.shape if chunks is None else Shape(self.shape.chunk_ids, chunks, self.shape.vocabulary)
        writer = Writer(self.files, shape, self.journal)
        writer.open()
        return writer

    def add(self, writer: Writer, count: int) -> None:
        """Pieces one after the other, nothing in between."""
        for _ in range(count):
            writer.append(next(self.pieces))

    def add_chunks(self, writer: Writer, count: int) -> None:
        """Pieces until `count` more chunks were begun."""
        known = set(self.journal.chunks)
        while len(self.journal.chunks.keys() - known) < count:
            writer.append(next(self.pieces))


def first_start(stage: Stage) -> None:
    """No folder yet: identity, lock, the first chunk and its first piece."""
    writer = stage.start()
    stage.add(writer, 1)
    writer.close()


def appending(stage: Stage) -> None:
    """Pieces with idle moments between them, ended in order, and more after a new start."""
    writer = stage.start()
    stage.add(writer, 2)
    writer.idle()
    stage.add(writer, 1)
    writer.close()
    writer = stage.start()
    stage.add(writer, 2)


def rolling_over(stage: Stage) -> None:
    """A chunk fills up and the next begins."""
    writer = stage.start()
    stage.add_chunks(writer, 2)
    stage.add(writer, 1)


def evicting(stage: Stage) -> None:
    """The budget is full: the oldest chunk goes for the newest."""
    writer = stage.start()
    stage.add_chunks(writer, stage.shape.chunks + 2)


def emptying(stage: Stage) -> None:
    """The record is emptied, twice, with pieces before, between and after."""
    writer = stage.start()
    stage.add_chunks(writer, 2)
    writer.delete()
    stage.add(writer, 1)
    writer.delete()
    stage.add(writer, 2)
    writer.idle()


def short_writes(stage: Stage) -> None:
    """The disk is full in the middle of a piece, and has room again later."""
    writer = stage.start()
    stage.add(writer, stage.rng.randint(0, 2))
    for _ in range(3):
        if stage.rng.random() < 0.5:
            writer.idle()
        stage.disk.room = stage.rng.randint(1, 300)
        stage.add(writer, 2)
        stage.disk.room = None
        writer.idle()
        stage.add(writer, 1)


def smaller_budget(stage: Stage) -> None:
    """A start with a lower budget than the record was written with."""
    writer = stage.start(stage.shape.chunks + 2)
    stage.add_chunks(writer, stage.shape.chunks + 1)
    writer.close()
    writer = stage.start()
    stage.add(writer, 1)


def killed(stage: Stage) -> None:
    """The process is killed, the machine goes on, and a new server starts on what the cache holds; three times."""
    for _ in range(3):
        stage.left = stage.rng.randint(1, 12)
        try:
            writer = stage.start()
            while True:
                stage.add(writer, 1)
                if stage.rng.random() < 0.2:
                    writer.idle()
        except Killed:
            pass
    writer = stage.start()
    stage.add(writer, 1)
    writer.idle()


def anything(stage: Stage) -> None:
    """Steps by chance."""
    writer = stage.start()
    for _ in range(stage.rng.randint(3, 9)):
        step = stage.rng.random()
        if step < 0.6:
            stage.add(writer, 1)
        elif step < 0.8:
            writer.idle()
        elif step < 0.9:
            writer.delete()
        else:
            writer.close()
            writer = stage.start()


def going_on(stage: Stage) -> None:
    """A start on what a cut left: what the writer does then can be cut off again."""
    writer = stage.start()
    stage.add(writer, 1)
    writer.idle()
    stage.add(writer, 1)
    if stage.rng.random() < 0.3:
        writer.delete()
        stage.add(writer, 1)
    writer.close()


SCENARIOS: dict[str, Callable[[Stage], None]] = {
    "first start": first_start,
    "append": appending,
    "roll over": rolling_over,
    "evict": evicting,
    "delete": emptying,
    "short write": short_writes,
    "smaller budget": smaller_budget,
    "killed": killed,
    "anything": anything,
}
