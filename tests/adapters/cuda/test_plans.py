"""The bookkeeping of lanes and launches, run on a device of Python lists that does exactly what the integers say."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from tensorfold.adapters.cuda.lane_book import LaneBook, LaneEntry, NoRoomError
from tensorfold.adapters.cuda.plans import LINES, PlannedRows, fill, kept, left_in_ring, most_steps, plan_window
from tensorfold.adapters.cuda.rows import COMMIT, PAGE, RESET, RETURN, SAVE
from tensorfold.domain.memory.cuda_holding import Room, room
from tensorfold.domain.windows import Window, chain, tree

History = tuple[int, ...]
STALE = (-9,)


class ListDevice:
    """Pools as lists: a state is the history of tokens that made it, a ring row the token whose inputs it holds."""

    def __init__(self, sizes: Room) -> None:
        self.sizes = sizes
        self.states: list[History] = [STALE] * sizes.places
        self.ring: list[int] = [-9] * sizes.ring_rows
        self.keys: dict[tuple[int, int], int] = {}

    def launch(
        self, planned: Sequence[PlannedRows], book: LaneBook, rows: int
    ) -> list[tuple[History, History, list[int]]]:
        """For every row: the history its state was made of, the inputs its convolution read, the keys it read."""
        fields = _fields(self.sizes, rows)
        fill(fields, planned, rows, book.nobody)
        pages = {window.entry.slot: window.entry.pages for window in planned}
        count = sum(len(window.tokens) for window in planned)
        taps: list[History] = []
        for row in range(count):
            page, at = pages[int(fields["lanes"][row])], int(fields["slots"][row])
            self.keys[page[at // PAGE], at % PAGE] = int(fields["ids"][row])
            sources = [int(tap) for tap in fields["taps"][row]]
            past = [self.ring[t] if t >= 0 else int(fields["ids"][-(t + 2)]) for t in sources if t != -1]
            taps.append(tuple(past))
        for row in range(count):
            self.ring[fields["ring_at"][row]] = int(fields["ids"][row])
        made = self._steps(fields, count)
        return [(made[row], taps[row], self._keys(fields, row, pages)) for row in range(count)]

    def _steps(self, fields: dict[str, np.ndarray], count: int) -> list[History]:
        made: list[History] = [STALE] * count
        for slot in range(self.sizes.lanes):
            base, spare = (int(place) for place in fields["places"][slot])
            state = self.states[base]
            for source, target, flags in fields["schedule"][slot, : fields["counts"][slot]].tolist():
                state = self.states[base] if flags & RESET else state
                state = self.states[spare] if flags & RETURN else state
                state = (*state, self.ring[slot * self.sizes.ring + source])
                if target >= 0:
                    made[target] = state
                if flags & COMMIT:
                    self.states[base] = state
                if flags & SAVE:
                    self.states[spare] = state
        return made

    def _keys(self, fields: dict[str, np.ndarray], row: int, pages: dict[int, list[int]]) -> list[int]:
        read, page = [], pages[int(fields["lanes"][row])]
        for position in range(int(fields["lengths"][row])):
            before = int(fields["committed"][row])
            slot = position if position < before else int(fields["path"][row, position - before])
            read.append(self.keys[page[slot // PAGE], slot % PAGE])
        return read

    def move(self, entry: LaneEntry, moves: Sequence[tuple[int, int]]) -> None:
        for source, target in moves:
            self.keys[entry.pages[target // PAGE], target % PAGE] = self.keys[
                entry.pages[source // PAGE], source % PAGE
            ]

    def copied(self, source: LaneEntry, target: LaneEntry, pages: Sequence[tuple[int, int]]) -> None:
        for old, new in pages:
            for at in range(PAGE):
                if (old, at) in self.keys:
                    self.keys[new, at] = self.keys[old, at]
        self.states[target.committed] = self.states[source.committed]
        for old, new in zip(source.last, target.last, strict=True):
            if old >= 0:
                self.ring[new] = self.ring[old]


def _fields(sizes: Room, rows: int) -> dict[str, np.ndarray]:
    def ints(*shape: int) -> np.ndarray:
        return np.full(shape, 12345, np.int32)

    lines = ints(len(LINES), rows)
    return {
        "counts": ints(sizes.lanes),
        "places": np.zeros((sizes.lanes, 2), np.int32),
        "lines": lines,
        **dict(zip(LINES, lines, strict=True)),
        "taps": ints(rows, 3),
        "path": ints(rows, sizes.width),
        "schedule": ints(sizes.lanes, most_steps(sizes), 3),
    }


def _window(chance: random.Random, width: int, history: History) -> Window:
    size = chance.randint(1, width)
    tokens = [chance.randrange(100) for _ in range(size)]
    if size > 2 and size <= 16 and chance.random() < 0.5:
        parents = [chance.randint(max(0, at - 3), at) for at in range(size - 1)]
        return tree(tokens[0], tokens[1:], parents)
    return chain(tokens[0], tokens[1:])


def _path(chance: random.Random, window: Window) -> tuple[int, ...]:
    whole = chance.random()
    if whole < 0.15:
        return ()
    end = len(window) - 1 if whole < 0.5 else chance.randrange(len(window))
    return window.path_to(end)


@pytest.mark.parametrize("seed", range(12))
def test_every_row_reads_the_history_of_its_own_way_whatever_was_kept_before(seed: int) -> None:
    chance = random.Random(seed)
    sizes = room(3, 2000, kept=2)
    book, device = LaneBook(sizes), ListDevice(sizes)
    lanes: list[tuple[LaneEntry, History]] = []
    for _ in range(60):
        _change_lanes(chance, book, device, lanes)
        if not lanes:
            continue
        chosen = chance.sample(lanes, chance.randint(1, len(lanes)))
        width = min(sizes.width, 60 // len(chosen))
        windows = [_window(chance, width, history) for _, history in chosen]
        planned = [plan_window(entry, w) for (entry, _), w in zip(chosen, windows, strict=True)]
        rows = sum(map(len, windows)) + chance.randint(0, 3)
        seen = iter(device.launch(planned, book, rows))
        for (entry, history), window, plan in zip(chosen, windows, planned, strict=True):
            entry.replay = ()
            for row in range(len(window)):
                state, past, keys = next(seen)
                whole = (*history, *(window.tokens[r] for r in window.path_to(row)))
                assert state == whole
                assert past == whole[:-1][-3:]
                assert keys == list(whole)
            path = _path(chance, window) if chance.random() < 0.9 else ()
            moves = kept(entry, plan, path, chain=window.is_chain)
            device.move(entry, moves)
            lanes[[e for e, _ in lanes].index(entry)] = (entry, (*history, *(window.tokens[r] for r in path)))


def _change_lanes(
    chance: random.Random, book: LaneBook, device: ListDevice, lanes: list[tuple[LaneEntry, History]]
) -> None:
    what = chance.random()
    if what < 0.2 or not lanes:
        try:
            entry = book.open(700)
        except NoRoomError:
            return
        device.states[entry.committed] = ()
        lanes.append((entry, ()))
        _prompt(chance, device, entry, lanes, chance.randint(1, 5))
    elif what < 0.3:
        entry, _ = lanes.pop(chance.randrange(len(lanes)))
        book.close(entry)
    elif what < 0.5 and book.free_slots:
        entry, history = chance.choice(lanes)
        _settle(device, entry)
        copy, pages = book.keep(entry)
        device.copied(entry, copy, pages)
        woken, pages = book.resume(copy, 700)
        device.copied(copy, woken, pages)
        book.close(copy)
        lanes.append((woken, history))


def _settle(device: ListDevice, entry: LaneEntry) -> None:
    for row in entry.replay:
        device.states[entry.committed] = (*device.states[entry.committed], device.ring[row])
    entry.replay = ()


def _prompt(
    chance: random.Random, device: ListDevice, entry: LaneEntry, lanes: list[tuple[LaneEntry, History]], count: int
) -> None:
    tokens = tuple(chance.randrange(100) for _ in range(count))
    at = [entry for entry, _ in lanes].index(entry)
    history = lanes[at][1]
    last, leave = left_in_ring(entry, count)
    for row, source in leave:
        device.ring[row] = tokens[source]
    for place, token in enumerate(tokens, start=entry.length):
        device.keys[entry.pages[place // PAGE], place % PAGE] = token
    device.states[entry.spare] = (*device.states[entry.committed], *tokens)
    entry.rotate()
    entry.length += count
    entry.last = last
    lanes[at] = (entry, (*history, *tokens))


def test_a_kept_chain_needs_no_replay_and_a_cut_one_does() -> None:
    book = LaneBook(room(1, 1000))
    entry = book.open(100)
    planned = plan_window(entry, chain(1, [2, 3]))
    before = entry.places
    assert kept(entry, planned, (0, 1, 2), chain=True) == []
    assert entry.places == (*before[1:], before[0]) and entry.replay == () and entry.length == 3
    planned = plan_window(entry, chain(4, [5, 6]))
    kept(entry, planned, (0, 1), chain=True)
    assert entry.replay == planned.ring[:2] and entry.length == 5
    steps = plan_window(entry, chain(7)).steps
    assert [flags for _, _, flags in steps] == [0, COMMIT, SAVE]


def test_the_branches_of_any_tree_of_sixteen_rows_fit_the_schedule() -> None:
    sizes = room(1, 1000)
    worst = 0
    for spine in range(1, 16):
        leaves = 15 - spine
        parents = [*range(spine), *[spine] * leaves]
        entry = LaneBook(sizes).open(100)
        planned = plan_window(entry, tree(1, range(15), parents))
        worst = max(worst, len(planned.steps))
    assert sizes.width + worst <= most_steps(sizes)


def test_pages_are_shared_by_kept_states_and_freed_with_the_last_of_them() -> None:
    book = LaneBook(room(2, 4000, kept=2))
    free = book.free_pages
    entry = book.open(1200)
    entry.length = 1100
    copy, pages = book.keep(entry)
    assert copy.pages[:2] == entry.pages[:2] and pages == [(entry.pages[2], copy.pages[2])]
    book.close(entry)
    assert book.free_pages == free - 3
    woken, copies = book.resume(copy, 1500)
    assert woken.pages[:2] == copy.pages[:2] and copies == [(copy.pages[2], woken.pages[2])]
    book.close(copy)
    book.close(woken)
    assert book.free_pages == free and book.free_slots == 2 and book.free_kept == 2


def test_a_full_last_page_is_copied_since_a_draft_head_still_writes_its_last_place() -> None:
    book = LaneBook(room(2, 4000, kept=2))
    entry = book.open(1200)
    entry.length = 1024
    copy, pages = book.keep(entry)
    assert copy.pages[0] == entry.pages[0] and pages == [(entry.pages[1], copy.pages[1])]
    woken, copies = book.resume(copy, 1200)
    assert woken.pages[0] == copy.pages[0] and copies == [(copy.pages[1], woken.pages[1])]


def test_what_cannot_be_had_is_refused_and_nothing_is_taken() -> None:
    book = LaneBook(room(1, 1000))
    free = book.free_pages
    with pytest.raises(NoRoomError):
        book.open(100_000)
    entry = book.open(100)
    with pytest.raises(NoRoomError):
        book.open(100)
    with pytest.raises(NoRoomError):
        book.keep(entry)
    book.close(entry)
    assert book.free_pages == free and book.free_slots == 1
