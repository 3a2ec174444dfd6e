"""Draft sources and acceptance rules that break one promise each."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tensorfold.domain.drafting.sources import Proposal
from tensorfold.domain.verification import Acceptance, accept
from tests.contracts.drafts import acceptance_checks, source_checks
from tests.contracts.drafts.acceptance_checks import AcceptanceSubject
from tests.contracts.drafts.source_checks import SourceSubject
from tests.contracts.lies import Lie
from tests.fakes.broken_sources import ForeignIdSource, OverlongSource
from tests.fakes.draft_sources import KnowingSource, OracleSource

_calls = itertools.count()


def _source(make: Callable[[int, Any], Any]) -> Callable[[Path], SourceSubject]:
    return lambda folder: SourceSubject(lambda prompt, reply: make(len(prompt), reply))


class _Unsteady(KnowingSource):
    """Proposes something else to each stream that is opened; its chances rise with depth."""

    def __init__(self, prompt: int, reply: Any) -> None:
        super().__init__(prompt, reply, 64, "unsteady")
        self._turn = next(_calls)

    def propose(self, tokens: Any, limit: int) -> Proposal | None:
        """Two drafts, whatever the limit, under another name."""
        return Proposal("other", (self._turn % 64, 1), (0.1, 0.9))


DRAFT_LIES: tuple[Lie, ...] = (
    (source_checks.proposals_fit_the_round, _source(lambda n, reply: ForeignIdSource(n, reply, 64, "foreign"))),
    (source_checks.proposals_fit_the_round, _source(lambda n, reply: OverlongSource(n, reply, 64, "long"))),
    (source_checks.chances_never_rise_along_a_branch, _source(_Unsteady)),
    (source_checks.equal_streams_get_equal_proposals, _source(_Unsteady)),
    (source_checks.its_name_is_on_its_proposals, _source(_Unsteady)),
    (source_checks.its_name_is_on_its_proposals, _source(lambda n, reply: OracleSource(n, reply[:0], 64))),
    (source_checks.no_room_means_no_drafts, _source(_Unsteady)),
)


def _rule(change: Callable[..., Acceptance]) -> Callable[[Path], AcceptanceSubject]:
    return lambda folder: AcceptanceSubject(change)


ACCEPTANCE_LIES: tuple[Lie, ...] = (
    (acceptance_checks.it_equals_the_plain_rule, _rule(lambda w, d, room, stops: accept(w, d, room + 1, stops))),
    (acceptance_checks.it_equals_the_plain_rule, _rule(lambda w, d, room, stops: accept(w, d, room, frozenset()))),
    (
        acceptance_checks.it_equals_the_plain_rule,
        _rule(lambda w, d, room, stops: accept(w.truncated(len(w) - 1), d, room, stops)),
    ),
    (acceptance_checks.at_least_one_token_comes_back, _rule(lambda w, d, room, stops: Acceptance((), ()))),
    (
        acceptance_checks.a_stop_inside_a_right_run_ends_it_at_every_place,
        _rule(lambda w, d, room, stops: accept(w, d, room, frozenset())),
    ),
)
