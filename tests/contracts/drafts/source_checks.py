"""A draft source: proposals that can be run as they are, from the stream's own tokens, round after round."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tensorfold.domain.drafting.sources import JOINED, DraftSource, Proposal


@dataclass(frozen=True, slots=True)
class SourceSubject:
    """`make(prompt, reply)` opens a source for a stream whose reply will be `reply`; ids are below `vocabulary`."""

    make: Callable[[Sequence[int], Sequence[int]], DraftSource]
    vocabulary: int = 64
    proposes: bool = True


@dataclass(frozen=True, slots=True)
class _Round:
    """One round of a stream as the checks saw it."""

    limit: int
    proposal: Proposal | None
    tokens: tuple[int, ...]


def _texts(subject: SourceSubject, seed: int) -> tuple[list[int], list[int]]:
    """A prompt and a reply that repeats parts of both, as replies do."""
    rng = random.Random(seed)
    prompt = [rng.randrange(subject.vocabulary) for _ in range(rng.randint(1, 60))]
    reply = [rng.randrange(subject.vocabulary) for _ in range(20)]
    while len(reply) < 160:
        text = prompt + reply
        at = rng.randrange(len(text))
        reply += text[at : at + rng.randint(8, 40)] or [0]
    return prompt, reply


def _rounds(subject: SourceSubject, seed: int) -> list[_Round]:
    """A reply decoded with the source: every draft that equals the reply is kept, at least one token lands a round."""
    prompt, reply = _texts(subject, seed)
    rng = random.Random(seed + 1)
    source = subject.make(prompt, reply)
    tokens = list(prompt)
    rounds: list[_Round] = []
    done = 0
    while done < len(reply):
        limit = rng.choice((1, 2, 3, 7, 15, 31))
        before = tuple(tokens)
        proposal = source.propose(tokens, min(limit, len(reply) - done))
        assert tuple(tokens) == before
        rounds.append(_Round(min(limit, len(reply) - done), proposal, before))
        kept = _kept(proposal, reply[done:]) if proposal is not None else 0
        tokens += reply[done : done + kept + 1]
        done += kept + 1
        verified = proposal if proposal is not None and len(proposal) else None
        source.observe(verified.source if verified else None, len(verified) if verified else 0, kept, tokens)
    return rounds


def _kept(proposal: Proposal, reply: Sequence[int]) -> int:
    parents = proposal.parents or range(len(proposal.tokens))
    row = kept = 0
    for index, (token, parent) in enumerate(zip(proposal.tokens, parents, strict=True)):
        if kept < len(reply) - 1 and parent == row and token == reply[kept]:
            row, kept = index + 1, kept + 1
    return kept


def proposals_fit_the_round(subject: SourceSubject) -> None:
    """No more drafts than asked, ids of the vocabulary, one chance each, parents before children."""
    for seed in range(6):
        for each in _rounds(subject, seed):
            offer = each.proposal
            if offer is None:
                continue
            assert isinstance(offer, Proposal) and 0 < len(offer.tokens) <= each.limit
            assert all(type(t) is int and 0 <= t < subject.vocabulary for t in offer.tokens)
            assert len(offer.chances) == len(offer.tokens) and all(0.0 <= c <= 1.0 for c in offer.chances)
            if offer.parents is not None:
                assert len(offer.parents) == len(offer.tokens)
                assert all(0 <= parent <= row for row, parent in enumerate(offer.parents))


def chances_never_rise_along_a_branch(subject: SourceSubject) -> None:
    """A draft is kept only with the drafts above it."""
    for seed in range(6):
        for each in _rounds(subject, seed):
            if each.proposal is None:
                continue
            chances = (1.0, *each.proposal.chances)
            parents = each.proposal.parents or range(len(each.proposal.tokens))
            assert all(chances[row + 1] <= chances[parent] + 1e-12 for row, parent in enumerate(parents))


def equal_streams_get_equal_proposals(subject: SourceSubject) -> None:
    """Nothing but the stream decides."""
    for seed in range(3):
        assert _rounds(subject, seed) == _rounds(subject, seed)


def its_name_is_on_its_proposals(subject: SourceSubject) -> None:
    """One plain name; the source has something to say on a reply that repeats itself."""
    spoke = False
    for seed in range(6):
        prompt, reply = _texts(subject, seed)
        name = subject.make(prompt, reply).name
        assert name and JOINED not in name
        for each in _rounds(subject, seed):
            if each.proposal is not None:
                spoke = True
                assert each.proposal.source == name
    assert spoke == subject.proposes


def no_room_means_no_drafts(subject: SourceSubject) -> None:
    """None, or a proposal of nothing."""
    prompt, reply = _texts(subject, 9)
    offer = subject.make(prompt, reply).propose(prompt, 0)
    assert offer is None or len(offer.tokens) == 0
