"""What a process holds: threads, descriptors, children. The difference of before and after is what was left behind."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from tests.adapters.tokenization.processes import children


@dataclass(frozen=True, slots=True)
class Held:
    """Names of the threads alive (and how many the system sees), what each descriptor is, and the child processes."""

    threads: tuple[str, ...]
    tasks: int
    descriptors: tuple[str, ...]
    children: frozenset[int]

    def beyond(self, before: Held) -> list[str]:
        """What is held now and was not before, as lines; fewer than before is nothing left."""
        found = []
        for what, now, then in (
            ("threads", self.threads, before.threads),
            ("descriptors", self.descriptors, before.descriptors),
        ):
            if len(now) > len(then):
                found.append(f"{len(now) - len(then)} {what} more than before: {_added(now, then)}")
        if self.tasks > before.tasks:
            found.append(f"{self.tasks - before.tasks} system threads more than before")
        if self.children - before.children:
            found.append(f"processes left: {sorted(self.children - before.children)}")
        return found


def held() -> Held:
    """What this process holds now."""
    names = tuple(sorted(thread.name for thread in threading.enumerate()))
    return Held(names, _tasks(len(names)), tuple(sorted(_descriptors())), frozenset(children(os.getpid())))


def _tasks(without: int) -> int:
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.exists() else without


def _descriptors() -> list[str]:
    """The target of each open descriptor; where there is no /proc, the bare numbers under /dev/fd."""
    folder = Path("/proc/self/fd")
    if not folder.exists():
        return [entry.name for entry in Path("/dev/fd").iterdir()]
    found = []
    for entry in folder.iterdir():
        try:
            found.append(os.readlink(entry).partition(":")[0])
        except OSError:
            # The descriptor that reads this very folder is gone by now.
            continue
    return found


def _added(now: tuple[str, ...], then: tuple[str, ...]) -> list[str]:
    rest = list(then)
    added = []
    for each in now:
        if each in rest:
            rest.remove(each)
        else:
            added.append(each)
    return added[:8]
