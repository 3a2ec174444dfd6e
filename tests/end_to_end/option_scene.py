"""Two servers of one tiny model: `plain` was started without flags, `given` with every flag that does something."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.end_to_end.commands import free_port
from tests.end_to_end.served import Served, served
from tests.synthetic.servable import write_servable
from tests.synthetic.tokenizer_files import TEMPLATE

KEY, FILE_KEY, PAGE = "k-of-the-flag", "k-of-the-file", "http://page.example"
THINKS = 40
EFFORTS = {"low": 5, "medium": 10, "high": 15}
"""Ids that a prompt gets for thinking, and for each effort."""
NOTHING_ASKED = (
    "--thinking-budget 0 --drafter none --drafter-bits 4 --mtp-drafts 0 --prompt-cache-gib 0 --checkpoint-slots 0 "
    "--snapshot-dir none --tp 1 --rank 0 --master-port 29551"
)


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer over HTTP; `body` is its JSON where it has any."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def body(self) -> Any:
        """The JSON."""
        return json.loads(self.text)


@dataclass(frozen=True, slots=True)
class Side:
    """One of the servers."""

    server: Served
    port: int
    key: str | None

    @property
    def report(self) -> str:
        """The startup report."""
        return "\n".join(self.server.lines())

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answered:
        """One request, with the side's key unless `headers` say otherwise."""
        sent = {"Authorization": f"Bearer {self.key}"} if self.key and "Authorization" not in headers else {}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), sent | headers)
            answer = connection.getresponse()
            named = {name.lower(): value for name, value in answer.getheaders()}
            return Answered(answer.status, named, answer.read().decode())
        finally:
            connection.close()

    def chat(self, **fields: Any) -> Any:
        """The JSON of a chat's reply."""
        answer = self.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "1, 2"}]} | fields)
        assert answer.status == 200, answer.text
        return answer.body

    def prompt(self, **fields: Any) -> int:
        """Ids of a chat's prompt."""
        tokens: int = self.chat(max_tokens=1, **fields)["usage"]["prompt_tokens"]
        return tokens

    def said(self, **fields: Any) -> str:
        """The text of a chat's reply."""
        text: str = self.chat(max_tokens=24, ignore_eos=True, **fields)["choices"][0]["message"]["content"]
        return text


@dataclass(frozen=True, slots=True)
class Scene:
    """Both servers; `home` is where they were started."""

    plain: Side
    given: Side
    home: Path


@contextmanager
def scene(home: Path) -> Iterator[Scene]:
    """Both servers, running."""
    folders = [home / name for name in ("plain", "given")]
    for folder in folders:
        write_servable(_made(folder / "tiny"))
        efforts = "".join(
            f"{{% if reasoning_effort == '{effort}' %}}{'e' * count}{{% endif %}}" for effort, count in EFFORTS.items()
        )
        thinks = f"{{% if enable_thinking %}}{'T' * THINKS}{{% endif %}}"
        (folder / "tiny" / "chat_template.jinja").write_text(TEMPLATE + efforts + thinks)
    (folders[1] / "keys").write_text(f"ada: {FILE_KEY}\n")
    (folders[1] / "keys").chmod(0o600)
    port = free_port()
    words = (
        f"--port {port} --name shown --alias other --context 300 --max-tokens 7 --temperature 0.5 --top-p 0.9 "
        "--top-k 20 --min-p 0.1 --no-thinking --reasoning-effort high --backend mlx --parallel 2 --decode-share 0.5 "
        f"--api-key {KEY} --api-key-file keys --metrics-open --cors {PAGE} --no-drafts --recall --recall-dir ids "
        f"--recall-gib 1/128 --no-update-check {NOTHING_ASKED}"
    )
    with (
        served(["serve", "tiny", "--port", "0"], folders[0]) as plain,
        served(["serve", "tiny", *words.split()], folders[1]) as given,
    ):
        yield Scene(Side(plain, plain.port, None), Side(given, _reached(given), KEY), home)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def _reached(server: Served) -> int:
    server.wait_for("curl ")
    return server.port
