"""The waiting queue against two plain lists."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.scheduling.queue import WaitingQueue

steps = st.lists(
    st.tuples(st.sampled_from(["put", "put background", "pop", "remove", "peek"]), st.integers(0, 9)), max_size=60
)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(limit=st.integers(0, 6), steps=steps)
@pytest.mark.slow
def test_nothing_is_lost_repeated_or_reordered(limit: int, steps: list[tuple[str, int]]) -> None:
    queue: WaitingQueue[int] = WaitingQueue(limit)
    foreground: list[int] = []
    background: list[int] = []
    for step, which in steps:
        waiting = foreground + background
        if step.startswith("put"):
            if which in waiting:
                with pytest.raises(ValueError, match="already waits"):
                    queue.put(str(which), which, background=step != "put")
            else:
                taken = queue.put(str(which), which, background=step != "put")
                assert taken == (len(waiting) < limit)
                if taken:
                    (background if step != "put" else foreground).append(which)
        elif step == "pop":
            assert queue.pop() == (waiting[0] if waiting else None)
            if waiting:
                (foreground or background).pop(0)
        elif step == "remove":
            assert queue.remove(str(which)) == (which if which in waiting else None)
            if which in waiting:
                (foreground if which in foreground else background).remove(which)
        else:
            assert queue.peek() == (waiting[0] if waiting else None)
        waiting = foreground + background
        assert list(queue) == waiting
        assert len(queue) == len(waiting)
        assert queue.full == (len(waiting) >= limit)
        positions = [queue.position(str(n)) for n in range(10)]
        assert positions == [waiting.index(n) if n in waiting else None for n in range(10)]
        assert [str(n) in queue for n in range(10)] == [n in waiting for n in range(10)]


def test_foreground_goes_before_background_that_came_earlier() -> None:
    queue: WaitingQueue[str] = WaitingQueue(4)
    for item, background in (("a", True), ("b", False), ("c", True), ("d", False)):
        queue.put(item, item, background=background)
    assert [queue.pop() for _ in range(5)] == ["b", "d", "a", "c", None]


def test_a_full_queue_takes_nothing_and_forgets_nothing() -> None:
    queue: WaitingQueue[int] = WaitingQueue(1)
    assert queue.put("a", 1)
    assert not queue.put("b", 2)
    assert "b" not in queue
    assert queue.limit == 1
    assert list(queue) == [1]


def test_an_item_taken_out_may_come_back_behind_the_others() -> None:
    queue: WaitingQueue[int] = WaitingQueue(3)
    queue.put("a", 1)
    queue.put("b", 2)
    queue.remove("a")
    queue.put("a", 1)
    assert list(queue) == [2, 1]


def test_a_queue_of_nothing_is_always_full() -> None:
    queue: WaitingQueue[int] = WaitingQueue(0)
    assert queue.full
    assert not queue.put("a", 1)


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot hold -1"):
        WaitingQueue(-1)


def test_who_says_nothing_waits_in_the_foreground() -> None:
    queue: WaitingQueue[int] = WaitingQueue(3)
    queue.put("a", 1, background=True)
    queue.put("b", 2)
    assert (queue.pop(), queue.pop()) == (2, 1)
