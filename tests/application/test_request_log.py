"""Bodies of requests as lines: what stands in them, and that what cannot be written costs nobody anything."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.request_log import RequestLog, without_images
from tests.fakes.request_file import FakeRequestFile


class Scene:
    """A log over a file in memory, and what it said."""

    def __init__(self) -> None:
        self.file, self.said = FakeRequestFile(), list[str]()
        self.log = RequestLog(self.file, self.said.append)

    def bodies(self) -> list[Any]:
        return [json.loads(line) for line in self.file.data().splitlines()]


def test_a_body_is_one_line_as_it_came() -> None:
    scene = Scene()
    bodies: list[dict[str, Any]] = [{"prompt": [1, 2]}, {"messages": [{"role": "user", "content": "é\n\u2028"}]}, {}]
    for body in bodies:
        scene.log.taken(body)
    assert scene.bodies() == bodies
    assert "é".encode() in scene.file.data() and scene.file.data().count(b"\n") == 3


def test_text_that_is_no_unicode_is_written_as_well_as_it_can_be() -> None:
    scene = Scene()
    scene.log.taken({"prompt": "a\udc80"})
    assert scene.bodies() == [{"prompt": "a?"}]


@pytest.mark.parametrize("kind", ["image_url", "input_image", "image"])
def test_of_an_image_its_type_alone_is_written(kind: str) -> None:
    part = {"type": kind, kind: {"url": "data:image/png;base64,AAAA"}, "detail": "high"}
    body = {"messages": [{"role": "user", "content": [{"type": "text", "text": "image"}, part]}]}
    left = {"type": kind, kind: "left out", "detail": "left out"}
    assert without_images(body)["messages"][0]["content"] == [{"type": "text", "text": "image"}, left]
    assert body["messages"][0]["content"] == [{"type": "text", "text": "image"}, part]


@pytest.mark.parametrize("body", [{"type": 7}, {"type": None, "a": [{"type": ["image"]}]}])
def test_a_type_that_is_no_text_is_no_image(body: Any) -> None:
    assert without_images(body) == body


def test_a_file_that_cannot_be_written_at_the_start_is_refused() -> None:
    scene = Scene()
    scene.log.open()
    scene.file.refusal = "is not a plain file"
    with pytest.raises(RefusedError, match="is not a plain file"):
        scene.log.open()


def test_what_cannot_be_written_is_said_once_until_something_changes() -> None:
    scene = Scene()
    scene.file.refusal = "is on a full disk"
    for _ in range(3):
        scene.log.taken({"prompt": "secret"})
    scene.file.refusal = "has mode 0644"
    scene.log.taken({"prompt": "secret"})
    scene.file.refusal = None
    scene.log.taken({"n": 1})
    scene.file.refusal = "has mode 0644"
    scene.log.taken({"prompt": "secret"})
    told = "requests are not logged: TENSORFOLD_REQUEST_LOG requests"
    assert scene.said == [f"{told} is on a full disk.", f"{told} has mode 0644.", f"{told} has mode 0644."]
    assert scene.bodies() == [{"n": 1}]


def test_a_fault_is_named_without_its_text() -> None:
    scene = Scene()
    scene.file.broken = RuntimeError("secret")
    scene.log.taken({})
    (line,) = scene.said
    assert "RuntimeError in" in line and "secret" not in line


def test_a_log_that_fails_as_well_fails_alone() -> None:
    def broken(line: str) -> None:
        raise OSError(line)

    file = FakeRequestFile()
    file.refusal = "is gone"
    RequestLog(file, broken).taken({})
    assert file.data() == b""
