"""What the command line refuses, each with its exit code and the words of its one line.

Refusals of a hub stand in `hub_refusals`, those of a release site in `update_scenes`, bad checkpoints in `bad_folders`.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tensorfold.domain.recall.identity import RecordIdentity
from tests.end_to_end.commands import Ran, in_process
from tests.synthetic.servable import write_servable

REFUSED, USAGE = 1, 2


class Room:
    """A folder with what the refusals need: models, keys, records, and a port that is taken."""

    def __init__(self, home: Path) -> None:
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        for name in ("tiny", "unknown", "codes", "no-config"):
            write_servable(self._made(name))
        self._config("unknown", model_type="odd_family", architectures=["OddForCausalLM"])
        self._config("codes", quantization_config={"quant_method": "exl3", "bits": 3.0})
        (home / "no-config" / "config.json").unlink()
        (home / "bad-keys").write_text("two words\n")
        (home / "no-keys").write_text("# none\n")
        for name in ("bad-keys", "no-keys"):
            (home / name).chmod(0o600)
        (home / "open-requests").write_text("")
        (home / "open-requests").chmod(0o644)
        other = RecordIdentity("ab" * 32, 70, "another")
        (self._made("foreign") / "identity").write_text(other.text())
        for path in (*home.glob("*-keys"), home / "foreign", home / "foreign" / "identity"):
            path.chmod(0o700 if path.is_dir() else 0o600)
        (home / "open-keys").write_text("sound-key\n")
        (home / "open-keys").chmod(0o644)

    def run(self, words: str, variables: Mapping[str, str]) -> Ran:
        """The command in this process; `HOME` stands for the folder, `PORT` for the port that is taken."""
        with self._taken() as port, pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_CACHE_HOME", str(self.home / "cache"))
            patch.setenv("HF_HUB_OFFLINE", "1")
            for name, value in variables.items():
                patch.setenv(name, self._named(value, port))
            patch.chdir(self.home)
            return in_process([self._named(word, port) for word in words.split(" ")])

    def _named(self, word: str, port: int) -> str:
        return word.replace("HOME", str(self.home)).replace("PORT", str(port)).replace("NOTHING", "")

    def _made(self, name: str) -> Path:
        (self.home / name).mkdir()
        return self.home / name

    def _config(self, name: str, **changes: object) -> None:
        path = self.home / name / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    @staticmethod
    @contextmanager
    def _taken() -> Iterator[int]:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            yield taken.getsockname()[1]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Words of a command, and those of its one line, its parts apart by colons.

    Where it comes `late`, lines may stand on stdout before it.
    """

    words: str
    says: str
    code: int = REFUSED
    variables: Mapping[str, str] = field(default_factory=dict)
    late: bool = False

    @property
    def name(self) -> str:
        """For test ids."""
        return " ".join((*(f"{name}={value}" for name, value in self.variables.items()), self.words))[:90]


def _serve(flags: str, says: str, code: int = REFUSED, late: bool = False, **variables: str) -> Refusal:
    return Refusal(f"serve HOME/tiny --port 0 {flags}".rstrip(), says, code, variables, late)


COMMANDS = (
    Refusal("NOTHING", "neither a command", USAGE),
    Refusal("nowhere", "'nowhere' is neither a command", USAGE),
    Refusal("serve", "the following arguments are required: MODEL", USAGE),
    Refusal("pull", "the following arguments are required", USAGE),
    Refusal("info", "the following arguments are required: MODEL", USAGE),
    Refusal("update --sideways", "unrecognized arguments: --sideways", USAGE),
    Refusal("serve nowhere --port 0", "nowhere"),
    Refusal("serve ./nowhere --port 0", "nowhere"),
    Refusal("serve owner/name@ --port 0", "owner/name@"),
    Refusal("pull nowhere", "nowhere"),
    Refusal("pull HOME/tiny", "tiny"),
    Refusal("info nowhere", "nowhere"),
    Refusal("verify nowhere", "nowhere"),
    Refusal("bench nowhere", "nowhere"),
    Refusal("update --check", "", variables={"TENSORFOLD_PROJECT_URL": "https://127.0.0.1:9/owner/name"}),
    Refusal("update", "TENSORFOLD_PROJECT_URL", variables={"TENSORFOLD_PROJECT_URL": "http://a/b/c"}),
)
MODELS = (
    Refusal("serve HOME/unknown --port 0", "'odd_family', which is no family known here:`tensorfold models`"),
    Refusal("info HOME/unknown", "'odd_family', which is no family known here:`tensorfold models`"),
    Refusal("serve HOME/codes --port 0", "exl3"),
    Refusal("info HOME/codes", "exl3"),
    Refusal("serve HOME/no-config --port 0", "config.json"),
    Refusal("info HOME/no-config", "config.json"),
)
VALUES = (
    _serve("--port 65536", "argument --port: 65536 is not from 0 to 65535", USAGE),
    _serve("--context -1", "argument --context: -1 is not from 0", USAGE),
    _serve("--context 1048577", "--context 1048577 is more than the 1048576 tokens"),
    _serve("--context 1048576", "--context 1048576 does not fit", TENSORFOLD_MEMORY_LIMIT_GB="3.1"),
    _serve("--context 1", "--context 1 does not fit"),
    _serve("--max-tokens 0", "argument --max-tokens: 0 is not from 1", USAGE),
    _serve("--temperature -0.1", "argument --temperature: -0.1 is not from 0", USAGE),
    _serve("--temperature hot", "argument --temperature: 'hot' is not a number", USAGE),
    _serve("--top-p 0", "argument --top-p: 0 is not above 0", USAGE),
    _serve("--top-k x", "argument --top-k: 'x' is not an integer", USAGE),
    _serve("--min-p 1.1", "argument --min-p: 1.1 is not from 0 to 1", USAGE),
    _serve("--parallel 0", "argument --parallel: 0 is not from 1 to 64", USAGE),
    _serve("--parallel many", "argument --parallel: 'many' is not an integer", USAGE),
    _serve("--decode-share -1", "argument --decode-share: -1 is not from 0", USAGE),
    _serve("--backend metal", "argument --backend: invalid choice: 'metal'", USAGE),
    _serve("--backend cuda", "install the extra `cuda`"),
    _serve("--reasoning-effort vast", "argument --reasoning-effort: invalid choice: 'vast'", USAGE),
    _serve("--name two\nlines", "--name holds a model id"),
    _serve("--learn", "--learn is no flag of this version"),
    _serve("--prefill-grid 64", "unrecognized arguments: --prefill-grid 64", USAGE),
    *(
        _serve(flag, f"unrecognized arguments: {flag}", USAGE)
        for flag in (
            "--kv-dtype", "--ple-on-ssd", "--ssd-experts", "--vision", "--vision-urls", "--vision-max-images",
            "--spill-gib", "--max-snapshots", "--lane-kernels",
        )
    ),
)  # fmt: skip
ENDPOINT = (
    Refusal("serve HOME/tiny --port PORT", "127.0.0.1:PORT is in use"),
    _serve("--host 192.0.2.1", "192.0.2.1"),
    _serve("--host no-such-host.invalid", "no-such-host.invalid"),
    _serve("--cors page.example", "--cors is 'page.example'"),
    _serve("--api-key NOTHING", "--api-key holds a key that is not 1 to 512"),
    _serve("", "TENSORFOLD_API_KEY holds a key", TENSORFOLD_API_KEY="two words"),
    _serve("--api-key-file HOME/none", "is not there"),
    _serve("--api-key-file HOME", "is not a plain file"),
    _serve("--api-key-file HOME/no-keys", "--api-key-file"),
    _serve("--api-key-file HOME/bad-keys", "--api-key-file"),
    _serve("--api-key-file HOME/open-keys", "has mode 0644, so others may use it"),
    _serve("--api-key-file NOTHING", "--api-key-file is empty"),
)
RECORD = (
    _serve("--recall-gib 0", "argument --recall-gib: 0 is less than 2 chunks", USAGE),
    _serve("--recall-gib 9", "argument --recall-gib: 9 is more than 8", USAGE),
    _serve("--recall-gib lots", "argument --recall-gib: 'lots' is not a number of GiB", USAGE),
    _serve("--recall-dir NOTHING", "--recall-dir is empty"),
    _serve("--recall-dir HOME/bad-keys", "bad-keys", late=True),
    _serve("--recall-dir HOME/foreign", "another", late=True),
    _serve("--recall-dir HOME/foreign --recall-read-only", "another", late=True),
)
ENVIRONMENT = (
    _serve("", "TENSORFOLD_SEED_SALT is 'pepper'", TENSORFOLD_SEED_SALT="pepper"),
    *(
        _serve("", f"TENSORFOLD_MEMORY_LIMIT_GB is '{text}'", TENSORFOLD_MEMORY_LIMIT_GB=text)
        for text in ("0", "-4", "nan", "inf", "24GB")
    ),
    _serve("", "The weights take:TENSORFOLD_MEMORY_LIMIT_GB", TENSORFOLD_MEMORY_LIMIT_GB="3"),
    _serve("", "TENSORFOLD_PROJECT_URL is 'nowhere'", TENSORFOLD_PROJECT_URL="nowhere"),
    _serve("", "its folder is not there", TENSORFOLD_REQUEST_LOG="HOME/none/requests"),
    _serve("", "has mode 0644", TENSORFOLD_REQUEST_LOG="HOME/open-requests"),
    _serve("", "TENSORFOLD_REQUEST_LOG", TENSORFOLD_REQUEST_LOG="HOME"),
)
REFUSALS = (*COMMANDS, *MODELS, *VALUES, *ENDPOINT, *RECORD, *ENVIRONMENT)


def refusal_faults(refusal: Refusal, room: Room) -> list[str]:
    """What is wrong with it: another code, more than a line, other words, a traceback, words on stdout."""
    ran = room.run(refusal.words, refusal.variables)
    line, found = ran.err.removesuffix("\n"), []
    said = refusal.says.replace("PORT", "")
    checks: tuple[tuple[Callable[[], bool], str], ...] = (
        (lambda: ran.code == refusal.code, f"exit code {ran.code}, not {refusal.code}"),
        (lambda: line.startswith("tensorfold") and line.isprintable() and len(line) < 1000, f"no line: {ran.err!r}"),
        (lambda: all(part in line for part in said.split(":")), f"it says {line!r}"),
        (lambda: refusal.late or not ran.out, f"on stdout: {ran.out!r}"),
    )
    found += [fault for holds, fault in checks if not holds()]
    return found
