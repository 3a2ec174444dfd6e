"""Keys follow their file: when it rested or when asked, never half of it, and none of it while it is bad."""

from __future__ import annotations

import queue

import pytest

from tensorfold.application.key_lines import Key
from tensorfold.application.key_rotation import RESTLESS_LOOKS, KeyRotation
from tensorfold.application.ports.checkpoints import RefusedError
from tests.fakes.keys import FakeKeyFile


class Door:
    """A rotation over a fake file that was opened with one key."""

    def __init__(self, data: bytes | None = b"one\n") -> None:
        self.file = FakeKeyFile(data)
        self.taken: list[list[str]] = []
        self.said: list[str] = []
        self.rotation = KeyRotation(self.file, self._take, self.said.append)

    def _take(self, keys: object) -> None:
        pairs: list[Key] = list(keys)  # type: ignore[call-overload]
        self.taken.append([key for _, key in pairs])

    def opened(self) -> Door:
        self.rotation.open()
        self.taken.clear()
        return self

    def looks(self, count: int = 1) -> list[list[str]]:
        """What was taken by so many looks."""
        self.taken.clear()
        for _ in range(count):
            self.rotation.look()
        return list(self.taken)


def test_the_first_reading_is_taken_or_refused() -> None:
    door = Door()
    door.rotation.open()
    assert door.taken == [["one"]] and door.said == []
    for data in (None, b"", b"two words"):
        door = Door(data)
        with pytest.raises(RefusedError):
            door.rotation.open()
        assert door.taken == []


def test_a_file_that_stays_is_never_read_again() -> None:
    door = Door().opened()
    assert door.looks(20) == [] and door.file.reads == 1


def test_a_change_is_taken_once_it_has_rested_for_a_look() -> None:
    door = Door().opened()
    door.file.write(b"two\nthree\n")
    assert door.looks() == []
    assert door.looks() == [["two", "three"]]
    assert door.looks(5) == [] and door.file.reads == 2
    assert door.said == ["keys: 2 from --api-key-file keys from now on"]


def test_a_change_back_before_it_rested_is_no_change() -> None:
    door = Door().opened()
    door.file.write(None)
    assert door.looks() == []
    door.file.data = b"one\n"
    door.file._version = 0
    assert door.looks(5) == [] and door.file.reads == 1


def test_a_file_that_is_written_step_by_step_closes_nothing() -> None:
    door = Door().opened()
    for part in (b"", b"tw", b"two\n"):
        door.file.write(part)
        assert door.looks() == []
    assert door.looks() == [["two"]] and len(door.said) == 1


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("caught", [b"", b"two\nthr", b"two words"])
def test_a_file_caught_while_it_is_written_is_not_taken_whatever_it_seems_to_hold(caught: bytes, asked: bool) -> None:
    door = Door().opened()
    door.file.write(caught)
    assert door.looks() == []
    door.file.meanwhile = lambda: door.file.write(b"two\nthree\n")
    door.rotation.look(asked=asked)
    assert door.taken == [] and door.said == []
    assert door.looks() == [["two", "three"]]


def test_a_file_that_never_rests_counts_as_it_is_after_a_while() -> None:
    door = Door().opened()
    for number in range(RESTLESS_LOOKS - 1):
        door.file.write(b"k%d\n" % number)
        assert door.looks() == []
    door.file.write(b"last\n")
    door.file.meanwhile = lambda: door.file.write(b"later\n")
    assert door.looks() == [["last"]]
    assert door.looks(2) == [["later"]]


@pytest.mark.parametrize(
    ("bad", "words"),
    [(None, "is not there"), (b"", "holds no key"), (b"two words", "Line 1"), (b"\xff", "not UTF-8")],
)
def test_a_bad_file_puts_its_keys_out_of_use_until_it_is_good_again(bad: bytes | None, words: str) -> None:
    door = Door().opened()
    door.file.write(bad)
    assert door.looks(10) == [[]]
    assert len(door.said) == 1 and words in door.said[0] and "None of its keys is valid" in door.said[0]
    door.file.write(b"one\n")
    assert door.looks(3) == [["one"]]
    assert door.said[1:] == ["keys: 1 from --api-key-file keys from now on"]


def test_asked_a_file_is_taken_at_once_changed_or_not() -> None:
    door = Door().opened()
    door.rotation.look(asked=True)
    assert door.taken == [["one"]]
    door.file.write(b"two\n")
    door.rotation.look(asked=True)
    door.file.write(b"")
    door.rotation.look(asked=True)
    assert door.taken == [["one"], ["two"], []]


def test_on_its_thread_it_looks_by_itself_and_when_asked() -> None:
    file, taken = FakeKeyFile(b"one\n"), queue.SimpleQueue[list[str]]()
    by_itself = KeyRotation(file, lambda keys: taken.put([key for _, key in keys]), lambda line: None, look_s=0.01)
    asked = KeyRotation(file, lambda keys: taken.put([key for _, key in keys]), lambda line: None, look_s=3600)
    for rotation, data in ((by_itself, b"two\n"), (asked, b"three\n")):
        rotation.open()
        taken.get(timeout=10)
        rotation.start()
        file.write(data)
        if rotation is asked:
            rotation.reload()
        assert taken.get(timeout=10) == [data.decode().strip()]
        rotation.close()
    assert taken.empty()


def test_one_that_was_never_started_can_be_closed() -> None:
    Door().opened().rotation.close()
