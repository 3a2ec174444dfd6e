"""A hub of checkpoints: a repository is fetched once, and what it does not have is refused in one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tensorfold.application.ports.checkpoints import ModelHub, RefusedError
from tests.contracts.candidates import Lines, refuses, sentence


@dataclass(frozen=True, slots=True)
class HubSubject:
    """A hub that has one repository, not yet on this machine."""

    hub: ModelHub
    repo: str


def a_repository_is_cached_once_it_was_fetched(subject: HubSubject) -> None:
    """Not by its configuration alone; fetching again brings the same folder."""
    hub, lines = subject.hub, Lines()
    assert hub.cached(subject.repo, None) is None
    assert (hub.fetch_config(subject.repo, None) / "config.json").is_file()
    assert hub.cached(subject.repo, None) is None
    folder = hub.fetch(subject.repo, None, lines)
    assert lines and hub.cached(subject.repo, None) == folder == hub.fetch(subject.repo, None, lines)


def an_unknown_repository_is_refused_in_one_sentence(subject: HubSubject) -> None:
    """So is an unknown revision; neither is cached."""
    hub = subject.hub
    for repo, revision in (("nobody/nothing", None), (subject.repo, "no-such-revision")):
        sentence(refuses(partial(hub.fetch, repo, revision, Lines()), RefusedError))
        sentence(refuses(partial(hub.fetch_config, repo, revision), RefusedError))
        assert hub.cached(repo, revision) is None
