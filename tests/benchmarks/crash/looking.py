"""Runs scenarios on a simulated disk and opens what a power cut at each of their moments could leave."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field

from tensorfold.domain.recall.layout import ID_BYTES, SEPARATOR, Ids
from tests.benchmarks.crash.check import Verdict, check, equal_ids, opened, read_by_a_reader
from tests.benchmarks.crash.corpus import VOCABULARY, Corpus
from tests.benchmarks.crash.disk import SimulatedDisk
from tests.benchmarks.crash.images import Image, every_image, some_images
from tests.benchmarks.crash.journal import Journal, chunk_sequence
from tests.benchmarks.crash.scenarios import SCENARIOS, Stage, going_on
from tests.benchmarks.crash.system import files_over
from tests.benchmarks.crash.tally import Tally
from tests.benchmarks.crash.writer import Shape

SHAPES = (Shape(128, 3, VOCABULARY), Shape(256, 2, VOCABULARY), Shape(256, 4, VOCABULARY), Shape(1024, 2, VOCABULARY))
LIVES = 3
"""A machine loses power at most this often in one run: the second and third cuts hit what the one before left."""
READ_EACH, FLIP_EACH, KEEP_EACH = 16, 4, 40
"""One image in so many is also read by a reader, gets a flipped bit, and is kept for streams to copy from."""


@dataclass(slots=True)
class OneOfMany:
    """One of the images it is offered, each with the same chance."""

    seen: int = 0
    chosen: tuple[Image, Verdict] | None = None

    def offer(self, image: Image, verdict: Verdict, rng: random.Random) -> None:
        """Another image."""
        self.seen += 1
        if rng.randrange(self.seen) == 0:
            self.chosen = image, verdict


@dataclass(slots=True)
class Looker:
    """Looks at every moment of what runs on a disk; `most` images of one moment, above it `sampled` by chance.

    `kept` are records as they were loaded from some images, for streams.
    """

    tally: Tally
    rng: random.Random
    corpus: Corpus
    most: int = 1500
    sampled: int = 40
    kept: list[dict[int, Ids]] = field(default_factory=list)
    _any: OneOfMany = field(default_factory=lambda: OneOfMany())
    _cut_off: OneOfMany = field(default_factory=lambda: OneOfMany())

    def run(self, name: str, shape: Shape) -> None:
        """One scenario on an empty machine, then the next lives of some of its images."""
        self._live(name, 1, SimulatedDisk(), Journal(shape.chunk_ids, VOCABULARY), shape)

    def _live(self, name: str, life: int, disk: SimulatedDisk, journal: Journal, shape: Shape) -> None:
        """One life of a machine. In half of them the calls of a system come between the disk and the record."""
        self._any, self._cut_off = OneOfMany(), OneOfMany()
        real = self.rng.random() < 0.5
        where = f"{name}, life {life}, chunks of {shape.chunk_ids}{', system calls' if real else ''}"
        with files_over(disk) if real else nullcontext(disk) as files:
            stage = Stage(disk, files, journal, shape, self._pieces(), self.rng)

            def moment(change: str) -> None:
                self._moment(f"{where}, after {change}", life, stage)
                stage.changed()

            disk.moment = moment
            (SCENARIOS[name] if life == 1 else going_on)(stage)
        self.tally.blame(where, journal.faults)
        following = [one.chosen for one in (self._any, self._cut_off) if one.chosen is not None]
        for image, verdict in following if life < LIVES else []:
            after = Journal.after(image.files or {}, verdict.loaded, shape.chunk_ids, VOCABULARY)
            self._live(name, life + 1, SimulatedDisk(image.files), after, shape)

    def _moment(self, where: str, life: int, stage: Stage) -> None:
        images = every_image(stage.disk, self.most if life == 1 else self.most // 10)
        if images is None:
            self.tally.sampled_moments += 1
            images = list(some_images(stage.disk, self.sampled, self.rng))
        else:
            self.tally.whole_moments += 1
        for image in images:
            self._look(where, life, image, stage)

    def _look(self, where: str, life: int, image: Image, stage: Stage) -> None:
        verdict = check(image, stage.journal, stage.shape)
        self.tally.saw(image, image.kind if life == 1 else f"cut {life}")
        self.tally.blame(where, verdict.broken, image)
        self.tally.never_written += verdict.never_written
        self.tally.images_with_loss += verdict.lost > 0
        self.tally.ids_lost += verdict.lost
        if verdict.broken:
            return
        seen = self.tally.all_images
        if seen % FLIP_EACH == 0:
            self._flip(where, image, verdict, stage.shape)
        if seen % READ_EACH == 0:
            self._read(where, image, verdict, stage.shape)
        if seen % KEEP_EACH == 0 and verdict.loaded:
            self.kept.append(verdict.loaded)
        # Two of the images of a run are lived on from, one of them cut off in a piece.
        self._any.offer(image, verdict, self.rng)
        if _cut_off(image, verdict):
            self._cut_off.offer(image, verdict, self.rng)

    def _flip(self, where: str, image: Image, verdict: Verdict, shape: Shape) -> None:
        """A flipped bit in one file, or many in the chunks: the record opens, and at most as many ids are others."""
        files = {name: bytearray(data) for name, data in (image.files or {}).items() if data}
        chunks = sorted(name for name in files if chunk_sequence(name) is not None)
        if not files:
            return
        in_chunks = bool(chunks) and self.rng.random() < 0.9
        count = self.rng.randint(2, 30) if in_chunks and self.rng.random() < 0.3 else 1
        for _ in range(count):
            name = self.rng.choice(chunks if in_chunks else sorted(files))
            bit = self.rng.randrange(8 * len(files[name]))
            files[name][bit // 8] ^= 1 << bit % 8
        flipped = Image((image.files or {}) | {name: bytes(data) for name, data in files.items()}, "flip")
        found, _ = opened(flipped, shape)
        self.tally.saw(flipped, "flipped bit in identity" if not in_chunks else f"flipped bit{'s' * (count > 1)}")
        if not found.broken and (differ := equal_ids(found.loaded, verdict.loaded)) > count:
            found.broken.append(f"{differ} words changed")
        self.tally.blame(f"{where}, {count} bits flipped", found.broken, flipped)
        if found.loaded and not found.broken and self.rng.random() < FLIP_EACH / KEEP_EACH * count:
            self.kept.append(found.loaded)

    def _read(self, where: str, image: Image, verdict: Verdict, shape: Shape) -> None:
        loaded = read_by_a_reader(image, shape)
        if differ := equal_ids(loaded, verdict.loaded):
            self.tally.blame(f"{where}, read only", [f"a reader sees {differ} other words than a writer"], image)

    def _pieces(self) -> Iterator[Ids]:
        while True:
            yield self.corpus.piece(self.rng)


def _cut_off(image: Image, verdict: Verdict) -> bool:
    """Whether the newest chunk ends in a piece, or in a word."""
    ids = verdict.loaded[max(verdict.loaded)].tolist() if verdict.loaded else []
    odd = any(len(data) % ID_BYTES for name, data in (image.files or {}).items() if chunk_sequence(name) is not None)
    return odd or ids[-1:] not in ([], [SEPARATOR])


def look(tally: Tally, corpus: Corpus, images: int, seed: int, most: int = 1500) -> list[dict[int, Ids]]:
    """Every scenario in every shape, by new chances again and again, until `images` different ones were opened.

    `most` as in Looker. Returns the records kept for streams.
    """
    looker = Looker(tally, random.Random(seed), corpus, most)
    runs = list(itertools.product(SCENARIOS, SHAPES))
    while len(tally.distinct) < images:
        looker.rng.shuffle(runs)
        for name, shape in runs:
            if len(tally.distinct) < images:
                looker.run(name, shape)
    return looker.kept
