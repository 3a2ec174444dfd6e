"""A hub of checkpoints: a repository is fetched once, and what it does not have is refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tensorfold.application.ports.checkpoints import ModelHub, RefusedError, Transfer
from tests.contracts.candidates import Lines, refuses, sentence


@dataclass(frozen=True, slots=True)
class HubSubject:
    """A hub that has one repository, not yet on this machine; `close` is called in the end."""

    hub: ModelHub
    repo: str
    close: Callable[[], None] = lambda: None


def a_repository_is_cached_once_it_was_fetched(subject: HubSubject) -> None:
    """Not by its configuration alone; fetching again brings the same folder."""
    hub, lines = subject.hub, Lines()
    assert hub.cached(subject.repo, None) is None
    assert (hub.fetch_config(subject.repo, None) / "config.json").is_file()
    assert hub.cached(subject.repo, None) is None
    folder = hub.fetch(subject.repo, None, lines)
    assert lines and hub.cached(subject.repo, None) == folder == hub.fetch(subject.repo, None, lines)


def a_repository_is_known_once_its_configuration_is_here(subject: HubSubject) -> None:
    """And stays known when the rest has followed; asking for what is known asks the hub nothing."""
    hub = subject.hub
    assert hub.known(subject.repo, None) is None
    folder = hub.fetch_config(subject.repo, None)
    assert hub.known(subject.repo, None) == folder
    assert hub.fetch(subject.repo, None, Lines()) == folder == hub.known(subject.repo, None)


def a_download_tells_how_far_it_is(subject: HubSubject) -> None:
    """Bytes that are here never go past all, and in the end are all of them."""
    seen: list[Transfer] = []
    subject.hub.fetch(subject.repo, None, Lines(), seen.append)
    assert seen and all(0 <= moved.done <= moved.total for moved in seen)
    assert seen[-1].done == seen[-1].total > 0


def an_unknown_repository_is_refused_in_one_sentence(subject: HubSubject) -> None:
    """So is an unknown revision; neither is cached."""
    hub = subject.hub
    for repo, revision in (("nobody/nothing", None), (subject.repo, "no-such-revision")):
        sentence(refuses(partial(hub.fetch, repo, revision, Lines()), RefusedError))
        sentence(refuses(partial(hub.fetch_config, repo, revision), RefusedError))
        assert hub.cached(repo, revision) is None and hub.known(repo, revision) is None
