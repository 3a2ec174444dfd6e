"""Streams that copy from records which a cut or a flipped bit damaged, against the serial replies to these requests."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from tensorfold.application.replies import Ended
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.drafting.sources import CHAINS, DraftSource, DraftSourceFactory, Widths
from tensorfold.domain.recall.index import RecordIndex
from tensorfold.domain.recall.layout import CHUNK_BYTES, LEAST_CHUNKS, MOST_CHUNKS, Ids
from tensorfold.domain.recall.policy import OfferPolicy, OfferSettings
from tensorfold.domain.recall.source import RecallSourceFactory
from tests.application.house import read, request, serving
from tests.benchmarks.crash.corpus import VOCABULARY, Corpus
from tests.benchmarks.crash.tally import Tally
from tests.fakes.hash_model import HashModel

STREAMS = 2
"""Streams at once on each record."""
_RECORDS_A_SERVER = 500


class _Record:
    """A draft source factory over the record loaded last: one server reads many records, one after the other."""

    def __init__(self) -> None:
        self._now: DraftSourceFactory | None = None

    def load(self, chunks: Mapping[int, Ids]) -> None:
        """Put the chunks into a fresh index."""
        most = min(max(LEAST_CHUNKS, len(chunks)), MOST_CHUNKS)
        index = RecordIndex(most * CHUNK_BYTES, VOCABULARY)
        for sequence in sorted(chunks):
            index.load(sequence, chunks[sequence])
        settings = OfferSettings(eager=True)
        self._now = RecallSourceFactory(index, OfferPolicy(settings), settings)

    def open(self, prompt: Sequence[int], widths: Widths = CHAINS) -> DraftSource:
        """A source of the record loaded last."""
        assert self._now is not None, "no record is loaded"
        return self._now.open(prompt, widths)


def compare(records: Sequence[Mapping[int, Ids]], corpus: Corpus, tally: Tally, seed: int) -> None:
    """On each record run streams whose text it holds, or parts of it; a reply that is not the serial one is a fault."""
    rng = random.Random(seed)
    for low in range(0, len(records), _RECORDS_A_SERVER):
        record = _Record()
        model = HashModel(corpus.law, stop_ids=())
        settings = EngineSettings(parallel=STREAMS, force_windows=True)
        with serving(model, settings=settings, sources=[record]) as scheduler:
            for chunks in records[low : low + _RECORDS_A_SERVER]:
                record.load(chunks)
                held = corpus.held(chunks)
                numbers = rng.sample(held, min(STREAMS, len(held))) or [rng.randrange(len(corpus.cases))]
                generations = [scheduler.submit(request(corpus.cases[number])) for number in numbers]
                for number, generation in zip(numbers, generations, strict=True):
                    got = read(generation)
                    tally.streams += 1
                    tally.tokens += len(got.ids)
                    if isinstance(got.end, Ended):
                        tally.copied += got.end.stats.accepted
                        tally.missed += got.end.stats.drafted - got.end.stats.accepted
                    if not got.ended or tuple(got.ids) != corpus.replies[number].tokens:
                        tally.differences += 1
                        tally.blame("streams", [f"the reply to case {number} is not the serial one"])
