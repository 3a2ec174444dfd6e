"""The machine: time that does not go back, space on disk, an allocator's figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tensorfold.application.ports.machine import Clock, Disk, MemoryRuntime


@dataclass(frozen=True, slots=True)
class MachineSubject:
    """Any of the three; `use(bytes)` allocates and returns what frees it again."""

    folder: Path
    clock: Clock | None = None
    disk: Disk | None = None
    memory: MemoryRuntime | None = None
    use: Callable[[int], Callable[[], None]] | None = None


def the_steady_clock_never_goes_back(subject: MachineSubject) -> None:
    """Seconds, as floats."""
    if subject.clock is None:
        return
    times = [subject.clock.monotonic() for _ in range(1000)]
    assert times == sorted(times) and all(isinstance(t, float) for t in times)


def the_calendar_is_in_unix_seconds(subject: MachineSubject) -> None:
    """After this was written, before the year 2100."""
    if subject.clock is not None:
        assert 1_690_000_000.0 < subject.clock.wall() < 4_102_444_800.0


def free_space_is_told_for_folders_that_do_not_exist_yet(subject: MachineSubject) -> None:
    """In bytes, as for the nearest folder that does."""
    if subject.disk is None:
        return
    free = subject.disk.free_bytes(subject.folder)
    assert isinstance(free, int) and free > 0
    assert subject.disk.free_bytes(subject.folder / "not" / "there" / "yet") > 0


def memory_figures_are_bytes_or_unknown(subject: MachineSubject) -> None:
    """Whatever is known is not negative, and the peak is not below what is active."""
    if subject.memory is None:
        return
    figures = (subject.memory.active(), subject.memory.cached(), subject.memory.peak())
    assert all(f is None or (isinstance(f, int) and f >= 0) for f in figures)
    active, _, peak = figures
    assert active is None or peak is None or peak >= active


def memory_in_use_is_counted_and_given_back(subject: MachineSubject) -> None:
    """Active rises with use and falls with freeing; the peak stays; release empties the cache."""
    memory, use = subject.memory, subject.use
    if memory is None or use is None:
        return
    before, size = memory.active(), 1 << 22
    give_back = use(size)
    during, peak = memory.active(), memory.peak()
    give_back()
    memory.release()
    if before is not None and during is not None and peak is not None:
        after = memory.active()
        assert during >= before + size and after is not None and after < during
        assert memory.peak() == peak >= during
        assert memory.cached() == 0


def a_limit_says_whether_it_binds(subject: MachineSubject) -> None:
    """True or False; releasing is always allowed."""
    if subject.memory is not None:
        assert subject.memory.limit(1 << 40) in (True, False)
        subject.memory.release()


def a_limit_of_freed_bytes_says_whether_it_binds_and_holds(subject: MachineSubject) -> None:
    """True or False; where it binds, no more than it is held once freed."""
    memory, use = subject.memory, subject.use
    if memory is None:
        return
    binds = memory.limit_cache(1 << 20)
    assert binds in (True, False)
    if use is not None:
        use(1 << 22)()
        cached = memory.cached()
        assert not binds or cached is None or cached <= 1 << 20
    memory.limit_cache(1 << 33)
    memory.release()
