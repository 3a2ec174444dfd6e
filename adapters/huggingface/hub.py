"""The ModelHub over a hub of checkpoints, in the cache that the hub's own library and other programs share.

Order: config.json and generation_config.json; the list of files; small files; what the weights take on the disk; the
weights. A branch points to a commit only once all of that commit's files are here, so a half download never stands in
front of a whole one. The library's own downloads keep no part of a file that broke off; these do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tensorfold.adapters.huggingface.cache_folder import COMMIT, MAIN, RepositoryFolder
from tensorfold.adapters.huggingface.client import HubClient
from tensorfold.adapters.huggingface.digests import git_digest
from tensorfold.adapters.huggingface.faults import UnreachableError, disk_refusal
from tensorfold.adapters.huggingface.settings import HubSettings
from tensorfold.adapters.huggingface.transfers import Job, Transfers
from tensorfold.adapters.huggingface.tree_list import RemoteFile, read_tree
from tensorfold.application.checkpoint_parts import CONFIG, GENERATION, SMALL, CheckpointParts
from tensorfold.application.ports.checkpoints import CheckpointReader, RefusedError, Transfer
from tensorfold.application.ports.machine import Disk
from tensorfold.domain.families.fields import clipped

Say = Callable[[str], None]
OnTransfer = Callable[[Transfer], None]


class HuggingFaceHub:
    """One hub and one cache. `parts` says which files make a checkpoint; `pause` waits between tries."""

    def __init__(
        self,
        settings: HubSettings,
        reader: CheckpointReader,
        parts: CheckpointParts,
        disk: Disk,
        *,
        pause: Callable[[float], object] = time.sleep,
        log: Say = lambda line: None,
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._parts = parts
        self._disk = disk
        self._client = HubClient(settings, pause, log)
        self._transfers = Transfers(self._client, settings.streams, settings.waits)
        self._commits: dict[tuple[str, str | None], str] = {}

    def known(self, repo: str, revision: str | None) -> Path | None:
        """The folder when at least config.json is here."""
        folder = self._folder(repo)
        found = self._pointed(repo, revision)
        return found if found is not None or revision is not None else folder.newest()

    def cached(self, repo: str, revision: str | None) -> Path | None:
        """The folder when it is complete here, and is known to be what the revision stands for.

        Offline, what alone is here is taken for the main branch.
        """
        return self._complete_in(
            self.known(repo, revision) if self._settings.offline else self._pointed(repo, revision)
        )

    def fetch_config(self, repo: str, revision: str | None) -> Path:
        """A folder with config.json, and generation_config.json when there is one. Raises RefusedError."""
        folder = self._folder(repo)
        known = self.known(repo, revision)
        if known is not None and revision is not None and COMMIT.fullmatch(revision):
            return known
        if self._settings.offline:
            if known is None:
                raise self._offline(repo, revision)
            return known
        try:
            return self._ask_config(folder, repo, revision)
        except UnreachableError:
            if known is None:
                raise
            return known
        except OSError as error:
            raise disk_refusal(self._settings.cache, error) from None

    def fetch(self, repo: str, revision: str | None, on_progress: Say, on_transfer: OnTransfer | None = None) -> Path:
        """The whole checkpoint's folder. Raises RefusedError."""
        if self._settings.offline:
            here = self.cached(repo, revision)
            if here is None:
                raise self._offline(repo, revision)
            on_progress(f"HF_HUB_OFFLINE is set: taking {repo} as it is on this machine")
            return here
        try:
            return self._bring(repo, revision, on_progress, on_transfer)
        except UnreachableError as refusal:
            here = self._complete_in(self.known(repo, revision))
            if here is None:
                raise
            on_progress(f"{refusal.message.partition(';')[0]}; taking {repo} as it is on this machine")
            return here
        except OSError as error:
            raise disk_refusal(self._settings.cache, error) from None

    def _pointed(self, repo: str, revision: str | None) -> Path | None:
        """The folder that a revision stands for: as this process learnt, or as the cache has it."""
        folder = self._folder(repo)
        pointed = folder.known(revision)
        learnt = self._commits.get((repo, revision))
        return folder.snapshot(learnt) if pointed is None and learnt is not None else pointed

    def _complete_in(self, folder: Path | None) -> Path | None:
        try:
            return folder if folder is not None and not self._parts.missing(folder) else None
        except RefusedError:
            return None

    def _folder(self, repo: str) -> RepositoryFolder:
        return RepositoryFolder(self._settings.cache, repo)

    def _ask_config(self, folder: RepositoryFolder, repo: str, revision: str | None) -> Path:
        found = self._client.small(repo, revision or MAIN, CONFIG, SMALL[CONFIG])
        if found is None:
            raise RefusedError(f"{_what(repo, revision)} has no config.json on the hub, so it is no checkpoint.")
        if not COMMIT.fullmatch(found.commit):
            raise RefusedError(f"The hub does not say which commit of {repo} it answers with; check HF_ENDPOINT.")
        folder.keep(found.commit, CONFIG, git_digest(found.data), found.data)
        generation = self._client.small(repo, found.commit, GENERATION, SMALL[GENERATION])
        if generation is not None:
            folder.keep(found.commit, GENERATION, git_digest(generation.data), generation.data)
        self._commits[repo, revision] = found.commit
        return folder.snapshot(found.commit)

    def _bring(self, repo: str, revision: str | None, say: Say, on_transfer: OnTransfer | None) -> Path:
        folder = self._folder(repo)
        commit = self._commit(repo, revision)
        if self._client.token_refused:
            say("the hub does not take the token in HF_TOKEN, or the stored one; asking without a token")
        folder.prepare(commit)
        with folder.locked(lambda: say(f"another process is downloading {repo}; waiting for it")):
            self._complete(folder, commit, say, on_transfer)
            folder.point(revision, commit)
        return folder.snapshot(commit)

    def _commit(self, repo: str, revision: str | None) -> str:
        """The commit that this process takes a revision for."""
        if (repo, revision) not in self._commits:
            snapshot = self.fetch_config(repo, revision)
            self._commits.setdefault((repo, revision), snapshot.name)
        return self._commits[repo, revision]

    def _complete(self, folder: RepositoryFolder, commit: str, say: Say, on_transfer: OnTransfer | None) -> None:
        files = read_tree(folder.repo, self._client.listed(folder.repo, commit))
        sizes = {name: file.size for name, file in files.items()}
        snapshot = folder.snapshot(commit)
        first = self._parts.first(folder.repo, self._reader.config(snapshot), sizes)
        self._take(folder, commit, [files[name] for name in first], say, None)
        wanted = [files[name] for name in (*first, *self._parts.weights(folder.repo, snapshot, sizes))]
        self._require_room(folder, commit, wanted)
        todo = [file for file in wanted if not folder.holds(commit, file.name, file.size)]
        if todo:
            left = sum(file.size for file in _by_content(todo))
            say(f"{folder.repo}: {len(todo)} of {len(wanted)} files are not here yet, {_size(left)}")
        self._take(folder, commit, wanted, say, on_transfer)
        if missing := self._parts.missing(snapshot):
            raise RefusedError(f"{folder.repo} is not complete after its download: {', '.join(missing)} is missing.")

    def _take(
        self,
        folder: RepositoryFolder,
        commit: str,
        files: list[RemoteFile],
        say: Say,
        on_transfer: OnTransfer | None,
    ) -> None:
        """Bring those that are not here; what is told counts all of them, each content once."""
        todo = _by_content(file for file in files if not folder.holds(commit, file.name, file.size))
        total = sum(file.size for file in _by_content(files))
        here = total - sum(file.size for file in todo)

        def tell(moved: Transfer) -> None:
            if on_transfer is not None:
                on_transfer(Transfer(here + moved.done, total))

        tell(Transfer(0, total))
        if todo:
            self._transfers.run(Job(folder, commit, todo, say, tell))
        for file in files:
            if not folder.holds(commit, file.name, file.size):
                folder.link(commit, file.name, file.digest)

    def _require_room(self, folder: RepositoryFolder, commit: str, files: list[RemoteFile]) -> None:
        needed = 0
        for file in _by_content(files):
            if not folder.holds(commit, file.name, file.size) and not folder.blob(file.digest).is_file():
                partial = folder.partial(file.digest)
                needed += file.size - (partial.stat().st_size if partial.is_file() else 0)
        free = self._disk.free_bytes(folder.root)
        if needed > free:
            raise RefusedError(
                f"{folder.repo} needs {_size(needed)} more in {clipped(str(self._settings.cache), 400)}, where "
                f"{_size(free)} are free; make room, or name another place in HF_HUB_CACHE."
            )

    def _offline(self, repo: str, revision: str | None) -> RefusedError:
        """The refusal where nothing may be asked, naming what lacks as far as that is known."""
        known = self.known(repo, revision)
        missing = self._parts.missing(known) if known is not None else ()
        lacks = f" (missing: {', '.join(missing)})" if missing else ""
        return RefusedError(
            f"{_what(repo, revision)} is not complete on this machine{lacks}, and HF_HUB_OFFLINE forbids asking the "
            "hub; unset it to download the rest."
        )


def _by_content(files: Iterable[RemoteFile]) -> list[RemoteFile]:
    """One file of each content: two names may stand for the same bytes, which come once."""
    return list({file.digest: file for file in files}.values())


def _what(repo: str, revision: str | None) -> str:
    return repo if revision is None else f"{repo}@{revision}"


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e8 else f"{count / 1e6:.2f} MB"
