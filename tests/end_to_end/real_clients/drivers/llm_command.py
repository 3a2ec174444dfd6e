"""The command `llm` with its OpenAI plugin: every call is one command line, as a person gives it.

It reads a prompt from standard input where there is one, so it gets none.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.end_to_end.real_clients.drivers.loop import Call, Reply, failed, reply, run

LLM = Path(sys.executable).with_name("llm")
HOME = Path(os.environ["LLM_USER_PATH"])


def _words(call: Call) -> list[str]:
    # A model with an address of its own gets a key only under a name: without one `--key` is not sent.
    model = {
        "model_id": "here",
        "model_name": call["model"],
        "api_base": call["base"],
        "api_key_name": "here",
        "supports_tools": True,
    }
    HOME.mkdir(parents=True, exist_ok=True)
    # JSON is YAML too.
    (HOME / "extra-openai-models.yaml").write_text(json.dumps([model]))
    options = [word for name, value in call["fields"].items() for word in ("-o", name, str(value))]
    return [
        str(LLM), "prompt", "-m", "here", "--key", call["key"], "--log", *options,
        *(["-T", "llm_version"] if call["tools"] else []),
        *(["--no-stream"] if call["op"] == "chat" else []), call["prompt"],
    ]  # fmt: skip


def ask(call: Call) -> Reply:
    """One command, waited for; what was used is read from its log."""
    done = subprocess.run(_words(call), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        return failed(f"exit code {done.returncode}", None, done.stderr.strip())
    logged = subprocess.run([LLM, "logs", "-n", "1", "--json"], capture_output=True, text=True, check=True).stdout
    entry = json.loads(logged)[0]
    return reply(done.stdout.removesuffix("\n"), None, (entry["input_tokens"], entry["output_tokens"]))


def leave(call: Call) -> Reply:
    """A streamed command that is interrupted after its first text."""
    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    with subprocess.Popen(_words(call), stdin=nothing, stdout=pipe, stderr=nothing, bufsize=0) as command:
        assert command.stdout is not None
        seen = b""
        while len(seen.strip()) < 2 and (more := command.stdout.read(64)):
            seen += more
        command.send_signal(signal.SIGINT)
        command.stdout.read()
    return reply(seen.decode("utf-8", "replace"), None, None, 2 if seen.strip() else 0)


if __name__ == "__main__":
    run({"chat": ask, "stream": ask, "leave": leave})
