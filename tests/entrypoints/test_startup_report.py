"""The last lines of the startup report, for every way to set a server up."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import pytest

from tensorfold.application.settings import SamplingDefaults
from tensorfold.entrypoints.cli.startup_report import Ready, curl, ready_lines

ROOMY = 4097
PLAIN = Ready(
    ("tiny",), "http://127.0.0.1:8080/v1", SamplingDefaults(), True, None, True, ROOMY, 8, None, False, (), 1.25
)
REPLIES = "replies: up to 4096 tokens, thinking on, the template's own effort, unless a request says otherwise"
OPEN = "keys: none, the server is open"
SERVING = (
    "serving tiny on http://127.0.0.1:8080/v1 (greedy unless a request says otherwise; drafts on, context 4097, "
    "8 at once; ready in 1.2 s)"
)


def test_a_server_without_flags_says_what_holds_and_its_address_last() -> None:
    assert ready_lines(PLAIN) == [REPLIES, OPEN, SERVING]


def test_every_setting_has_its_words() -> None:
    ready = replace(
        PLAIN, names=("tiny", "a", "b"), defaults=SamplingDefaults(0.5, 20, 0.9, 0.1, 7), thinking=False, effort="high",
        drafts=False, context=100, parallel=2, keys=1, metrics_open=True, origins=("http://a", "*"), seconds=60.0,
    )  # fmt: skip
    assert ready_lines(ready) == [
        "replies: up to 7 tokens, thinking off, effort high, unless a request says otherwise",
        "keys: 1 API key, metrics need none",
        "web pages of http://a, * may use this server",
        "also served as a, b",
        "serving tiny on http://127.0.0.1:8080/v1 (temperature 0.5, top-p 0.9, top-k 20, min-p 0.1 unless a request "
        "says otherwise; drafts off, context 100, 2 at once; ready in 60.0 s)",
    ]


@pytest.mark.parametrize("context", [ROOMY - 1, 512])
def test_a_reply_limit_that_no_context_leaves_room_for_is_not_promised(context: int) -> None:
    limited = REPLIES.replace("up to 4096 tokens", "as long as the context leaves room")
    assert ready_lines(replace(PLAIN, context=context))[0] == limited


@pytest.mark.parametrize(("keys", "said"), [(0, "keys: 0 API keys"), (1, "keys: 1 API key"), (3, "keys: 3 API keys")])
def test_keys_are_counted(keys: int, said: str) -> None:
    assert ready_lines(replace(PLAIN, keys=keys))[1] == said


@pytest.mark.parametrize("name", ["tiny", """it's "tiny", $HOME `é`"""])
def test_the_ready_request_is_taken_by_a_shell_as_it_is(name: str) -> None:
    words = shlex.split(curl(replace(PLAIN, names=(name,))))
    assert words[:2] == ["curl", "http://127.0.0.1:8080/v1/chat/completions"]
    assert json.loads(words[-1])["model"] == name
    assert not [word for word in words if "Authorization" in word]
    assert "Authorization: Bearer KEY" in shlex.split(curl(replace(PLAIN, keys=1)))
