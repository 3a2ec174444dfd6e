"""Every setting of a running server, as frozen values. Flags and environment are read elsewhere and end here."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tensorfold.domain.memory.budgets import FREED


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """What a request gets when it names nothing; from generation_config.json, then flags."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    max_tokens: int = 4096
    seed_salt: int = 0


@dataclass(frozen=True, slots=True)
class DraftSettings:
    """What may draft besides copies: a model's own head, or a draft model. None is the family's published default.

    `drafter` is `auto` (the family's listed one where it is on this machine), `none`, a folder or a repository;
    `drafter_bits` the width its matrices are quantized to as they are loaded, 0 for as they are. `mtp_drafts` bounds
    what a model's own head drafts in a round (0: it is not loaded); `mtp_confidence` is the least probability that a
    head must give a draft behind its first.
    """

    drafter: str = "auto"
    drafter_bits: int = 4
    mtp_drafts: int | None = None
    mtp_confidence: float | None = None


PUBLISHED = DraftSettings()


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How rounds are run.

    `parallel` bounds the streams that hold lanes, `queue` those that wait. `drafts` False makes every request serial;
    `heads` is how draft heads are used. `force_windows` verifies whatever is proposed, whatever it costs: for proofs
    only. `decode_share` is the part of a prompt slice's time that running replies get before the next slice.
    `stall_factor` and `stall_grace_s` turn a measured cost into the time after which a call in flight counts as stuck.
    """

    parallel: int = 8
    queue: int = 64
    drafts: bool = True
    force_windows: bool = False
    decode_share: float = 0.25
    overhead_ms: float = 1.0
    prefill_chunk: int = 2048
    stall_factor: float = 4.0
    stall_grace_s: float = 3.0
    heads: DraftSettings = PUBLISHED


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Where and how the server listens.

    `keys` holds (label, key) pairs and `key_file` is where others come from; with neither the server is open. Browser
    pages of `origins` may use it, those of every origin where one is `*`. `metrics_open` shows metrics without a key.
    `request_log` is a file that bodies of requests are appended to.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    keys: tuple[tuple[str, str], ...] = field(default=())
    drain_grace_s: float = 5.0
    key_file: Path | None = None
    origins: tuple[str, ...] = ()
    metrics_open: bool = False
    request_log: Path | None = None

    @property
    def needs_key(self) -> bool:
        """Whether requests must carry a key."""
        return bool(self.keys) or self.key_file is not None


@dataclass(frozen=True, slots=True)
class RecallSettings:
    """The record of ids. `directory` is its own folder, None for one named by the tokenizer in the cache.

    `budget_bytes` of disk are whole chunks. `read_only` drafts from the record and leaves every file as it is.
    """

    directory: Path | None = None
    budget_bytes: int = 64 << 20
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Bytes that the process may take, None for the machine's share, and of freed buffers that are kept for reuse.

    On a card `card_limit` lowers what is taken of it, and `reserve` bytes are left to others, None for the usual.
    """

    limit: int | None = None
    cache: int = FREED
    card_limit: int | None = None
    reserve: int | None = None


@dataclass(frozen=True, slots=True)
class PromptSettings:
    """States of prompts that are kept: bytes of them, None for what memory leaves idle, 0 for none; how many at most.

    `snapshots` is the folder of those that outlive the server, None for none.
    """

    budget: int | None = None
    slots: int = 32
    snapshots: Path | None = None


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Which model is served and how it is presented. `context` None: the model's own window.

    `effort` None: medium, where the template names it; OWN: the template's own. `thinking_budget` 0: reasoning has no
    limit of its own.
    """

    model: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    backend: str = "auto"
    context: int | None = None
    thinking: bool = True
    effort: str | None = None
    thinking_budget: int = 0
