"""Every draft source and acceptance rule that a contract suite runs on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from tensorfold.application.planting import PlantedDrafts, Shape, Tally
from tensorfold.domain.drafting.copies import CopySourceFactory
from tensorfold.domain.drafting.sources import DraftSource
from tensorfold.domain.verification import accept
from tests.contracts.candidates import Candidate
from tests.contracts.drafts.acceptance_checks import AcceptanceSubject
from tests.contracts.drafts.source_checks import SourceSubject
from tests.fakes.draft_sources import OracleSource, SilentSource

VOCABULARY = 64


def _source(
    name: str, make: Callable[[Sequence[int], Sequence[int]], DraftSource], proposes: bool = True
) -> Candidate[SourceSubject]:
    return Candidate(name, lambda folder: SourceSubject(make, VOCABULARY, proposes))


def _oracle(tree: bool) -> Callable[[Sequence[int], Sequence[int]], DraftSource]:
    return lambda prompt, reply: OracleSource(len(prompt), reply, VOCABULARY, tree=tree, seed=3)


def _planted(shape: Shape) -> Callable[[Sequence[int], Sequence[int]], DraftSource]:
    return lambda prompt, reply: PlantedDrafts(
        len(prompt), reply, itertools.cycle((0, 1, 2, 5, 15, 31)), shape, VOCABULARY, Tally(), rest=5
    )


SOURCES: tuple[Candidate[SourceSubject], ...] = (
    _source("copy", lambda prompt, reply: CopySourceFactory().open(prompt)),
    _source("planted_chain", _planted("chain")),
    _source("planted_tree", _planted("tree")),
    _source("oracle_chain", _oracle(tree=False)),
    _source("oracle_tree", _oracle(tree=True)),
    _source("silent", lambda prompt, reply: SilentSource(), proposes=False),
)

ACCEPTANCE_RULES: tuple[Candidate[AcceptanceSubject], ...] = (
    Candidate("domain", lambda folder: AcceptanceSubject(accept)),
)
