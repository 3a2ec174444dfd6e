"""Flags and environment become application settings here, and nowhere else.

Every refusal names the flag or variable, its value and its limit. Nothing is loaded or fetched.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from tensorfold.application.key_lines import MOST_KEY, is_key
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.releases import ProjectAddress, read_address
from tensorfold.application.settings import (
    PUBLISHED,
    DraftSettings,
    EngineSettings,
    HttpSettings,
    MemorySettings,
    ModelSettings,
    PromptSettings,
    RecallSettings,
    SamplingDefaults,
)
from tensorfold.domain.conversation.efforts import OWN
from tensorfold.domain.families.catalogue import Backend

ENGINE, HTTP, RECALL, SAMPLING = EngineSettings(), HttpSettings(), RecallSettings(), SamplingDefaults()
MEMORY = MemorySettings()
PROMPTS = PromptSettings()
HEADS = PUBLISHED
DRAFTER_BITS = (0, 2, 3, 4, 5, 6, 8)
MOST_MTP_DRAFTS = 16
MOST_PARALLEL = 64
MOST_QUEUE = 256
MOST_ID = 256
MOST_GIB = 1 << 20
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]{0,31}://(?:[A-Za-z0-9.-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?/?")
CUDA_SLOTS = 8
"""States of prompts that a card keeps without --checkpoint-slots; they lie in its own memory."""
LEAST_RESERVE_GIB = 2
_GIB = re.compile(r"(\d{1,9}(\.\d{0,18})?|\.\d{1,18})(/0*[1-9]\d{0,8})?", re.ASCII)
"""A decimal, or one decimal by a whole number that is not 0."""


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """A backend, and in words who or what chose it."""

    name: Backend
    why: str


@dataclass(frozen=True, slots=True)
class GenerationFlags:
    """Sampling defaults given as flags; None leaves the checkpoint's."""

    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    max_tokens: int
    seed_salt: int


@dataclass(frozen=True, slots=True)
class UpdateSettings:
    """Where releases are looked for and whether a start looks; `address` None is the package's own."""

    address: ProjectAddress | None
    check: bool
    cache: Path


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Everything a `serve` or `verify` needs to begin. `notes` are lines to say about what was asked for.

    `live` is whether a terminal may show a line that changes, `choice` the backend, None where it is not chosen yet.
    """

    model: ModelSettings
    engine: EngineSettings
    http: HttpSettings
    generation: GenerationFlags
    cache: Path
    update: UpdateSettings
    recall: RecallSettings | None = None
    memory: MemorySettings = MEMORY
    prompts: PromptSettings = PROMPTS
    notes: tuple[str, ...] = ()
    live: bool = False
    choice: BackendChoice | None = None


def integer(least: int, most: int) -> Callable[[str], int]:
    """An argparse type: an integer from `least` to `most`."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not an integer from {least} to {most}") from None
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{value} is not from {least} to {most}")
        return value

    return read


def number(least: float, most: float, *, open_least: bool = False) -> Callable[[str], float]:
    """An argparse type: a finite number from `least`, which `open_least` leaves out, to `most`."""
    low, high = f"{least:.12g}", f"{most:.12g}"
    limits = f"above {low} and at most {high}" if open_least else f"from {low} to {high}"

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number {limits}") from None
        if not math.isfinite(value) or not least <= value <= most or (open_least and value == least):
            raise argparse.ArgumentTypeError(f"{text} is not {limits}")
        return value

    return read


def parallel(text: str) -> int:
    """`auto` (0) or a number of streams."""
    return 0 if text == "auto" else integer(1, MOST_PARALLEL)(text)


def gib(text: str) -> int:
    """An argparse type: bytes of a record's disk, from GiB as a decimal or a fraction such as 1/16."""
    # Here, because the layout's arrays need a library that `--help` can do without.
    from tensorfold.domain.recall.layout import CHUNK_BYTES, LEAST_CHUNKS, MOST_CHUNKS

    if _GIB.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of GiB such as 0.5 or 1/16")
    number, _, divisor = text.partition("/")
    size = Fraction(number) / int(divisor or 1) * 2**30
    if size < LEAST_CHUNKS * CHUNK_BYTES:
        least = Fraction(LEAST_CHUNKS * CHUNK_BYTES, 2**30)
        raise argparse.ArgumentTypeError(
            f"{text} is less than {LEAST_CHUNKS} chunks of {CHUNK_BYTES >> 20} MiB; {least} is the least that works"
        )
    if size > MOST_CHUNKS * CHUNK_BYTES:
        raise argparse.ArgumentTypeError(
            f"{text} is more than {MOST_CHUNKS * CHUNK_BYTES >> 30}, the most that positions of 31 bits can number"
        )
    return int(size)


def run_settings(
    flags: argparse.Namespace, environment: Mapping[str, str], choice: BackendChoice | None = None
) -> RunSettings:
    """Settings of a run. Raises RefusedError for what only the environment or several flags together get wrong.

    Without a `choice`, the defaults are those of the backend that was named, for `auto` those of MLX.
    """
    backend = flags.backend if choice is None else choice.name
    streams = flags.parallel or (1 if backend == "cuda" else ENGINE.parallel)
    return RunSettings(
        model=ModelSettings(
            model=flags.model,
            name=model_id("--name", given) if (given := getattr(flags, "name", "")) else "",
            aliases=tuple(model_id("--alias", given) for given in getattr(flags, "alias", None) or ()),
            backend=flags.backend,
            context=flags.context,
            thinking=getattr(flags, "thinking", True),
            thinking_budget=getattr(flags, "thinking_budget", 0),
            effort=flags.reasoning_effort
            if "--reasoning-effort" in getattr(flags, "given", ())
            else OWN
            if backend == "cuda"
            else None,
        ),
        engine=EngineSettings(
            parallel=streams,
            queue=min(MOST_QUEUE, 8 * streams),
            drafts=not getattr(flags, "no_drafts", False),
            decode_share=getattr(flags, "decode_share", ENGINE.decode_share),
            heads=head_settings(flags),
        ),
        http=HttpSettings(
            host=getattr(flags, "host", HTTP.host),
            port=getattr(flags, "port", HTTP.port),
            keys=api_keys(getattr(flags, "api_key", ()) or (), environment.get("TENSORFOLD_API_KEY", "")),
            key_file=key_file(getattr(flags, "api_key_file", None)),
            origins=tuple(origin(given) for given in getattr(flags, "cors", None) or ()),
            metrics_open=getattr(flags, "metrics_open", False),
            request_log=request_log(environment.get("TENSORFOLD_REQUEST_LOG", "")),
        ),
        generation=GenerationFlags(
            temperature=getattr(flags, "temperature", None),
            top_p=getattr(flags, "top_p", None),
            top_k=getattr(flags, "top_k", None),
            min_p=getattr(flags, "min_p", None),
            max_tokens=getattr(flags, "max_tokens", SAMPLING.max_tokens),
            seed_salt=seed_salt(environment.get("TENSORFOLD_SEED_SALT", "")),
        ),
        cache=cache_folder(environment),
        update=update_settings(flags, environment),
        recall=recall_settings(flags),
        memory=memory_settings(flags, environment),
        prompts=prompt_settings(flags, environment, backend),
        notes=recall_notes(flags),
        live=not switched_on(environment.get("TENSORFOLD_NO_LIVE", "")) and environment.get("TERM", "dumb") != "dumb",
        choice=choice,
    )


def head_settings(flags: argparse.Namespace) -> DraftSettings:
    """How draft heads are used; commands without these flags use what is published. Raises RefusedError."""
    drafter = getattr(flags, "drafter", HEADS.drafter)
    if not drafter.strip():
        raise RefusedError("--drafter is empty; give it auto, none, a folder or a repository, or leave it out.")
    return DraftSettings(
        drafter=drafter,
        drafter_bits=getattr(flags, "drafter_bits", HEADS.drafter_bits),
        mtp_drafts=getattr(flags, "mtp_drafts", HEADS.mtp_drafts),
        mtp_confidence=getattr(flags, "mtp_confidence", HEADS.mtp_confidence),
    )


def recall_settings(flags: argparse.Namespace) -> RecallSettings | None:
    """The record that the flags ask for, or None. Raises RefusedError."""
    folder, size = getattr(flags, "recall_dir", None), getattr(flags, "recall_gib", None)
    read_only = getattr(flags, "recall_read_only", False)
    if not getattr(flags, "recall", False) and folder is None and size is None and not read_only:
        return None
    size = RECALL.budget_bytes if size is None else size
    own = None if folder is None else own_path("--recall-dir", folder, "folder")
    return RecallSettings(own, whole_chunks(size), read_only)


def own_path(flag: str, text: str, what: str) -> Path:
    """A file or folder, as `what` says, as an absolute path, `~` expanded. Raises RefusedError."""
    if not text.strip():
        raise RefusedError(f"{flag} is empty; give it a {what}, or leave it out.")
    try:
        return Path(text).expanduser().absolute()
    except (RuntimeError, OSError):
        raise RefusedError(f"{flag} names a home that is not known: {text[:200]!r}.") from None


def whole_chunks(size: int) -> int:
    """The largest number of bytes, at most `size`, that is whole chunks of a record."""
    from tensorfold.domain.recall.layout import CHUNK_BYTES

    return size - size % CHUNK_BYTES


def recall_notes(flags: argparse.Namespace) -> tuple[str, ...]:
    """What is used of a --recall-gib that is no whole number of chunks."""
    size = getattr(flags, "recall_gib", None)
    if size is None or (whole := whole_chunks(size)) == size:
        return ()
    asked = f"--recall-gib asks for {size / 2**20:.1f} MiB"
    return (f"{asked}; a record is whole chunks of 4 MiB, so {whole >> 20} MiB are used",)


def memory_settings(flags: argparse.Namespace, environment: Mapping[str, str]) -> MemorySettings:
    """The budget's limit and that of freed buffers. Raises RefusedError."""
    cache = getattr(flags, "mlx_cache_gib", None)
    return MemorySettings(
        limit=memory_limit("TENSORFOLD_MEMORY_LIMIT_GB", environment.get("TENSORFOLD_MEMORY_LIMIT_GB", "")),
        cache=MEMORY.cache if cache is None else int(cache * 2**30),
        card_limit=memory_limit(
            "TENSORFOLD_CUDA_MEMORY_LIMIT_GB", environment.get("TENSORFOLD_CUDA_MEMORY_LIMIT_GB", "")
        ),
        reserve=memory_reserve(environment.get("TENSORFOLD_MEMORY_RESERVE_GIB", "")),
    )


def prompt_settings(flags: argparse.Namespace, environment: Mapping[str, str], backend: str = "mlx") -> PromptSettings:
    """The states of prompts that are kept; on a card fewer, and none on the disk. Raises RefusedError for a folder that
    cannot be named.
    """
    asked, folder = getattr(flags, "prompt_cache_gib", None), getattr(flags, "snapshot_dir", None)
    slots = getattr(flags, "checkpoint_slots", None)
    own = cache_folder(environment).absolute() / "prefix-snapshots"
    return PromptSettings(
        budget=None if asked is None else int(asked * 2**30),
        slots=(CUDA_SLOTS if backend == "cuda" else PROMPTS.slots) if slots is None else slots,
        snapshots=None
        if folder == "none" or backend == "cuda"
        else own
        if folder is None
        else _folder("--snapshot-dir", folder, "`none`"),
    )


def _folder(flag: str, text: str, otherwise: str) -> Path:
    """A folder that is there, or may be made later. Raises RefusedError for what is something else."""
    path = own_path(flag, text, "folder")
    try:
        other = path.exists() and not path.is_dir()
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or "it is no path"
        raise RefusedError(f"{flag} {text[:200]!r} cannot be used: {why}; give it a folder, or {otherwise}.") from None
    if other:
        raise RefusedError(f"{flag} {text[:200]!r} is not a folder; give it a folder, or {otherwise}.")
    return path


def memory_limit(variable: str, text: str) -> int | None:
    """A variable of GiB in bytes; blank is none. Raises RefusedError for what is no budget."""
    if not text.strip():
        return None
    limit = _finite(text)
    if limit is None or limit <= 0:
        raise RefusedError(f"{variable} is {text[:40]!r}; it must be a positive number of GiB, or blank for none.")
    return int(min(limit, MOST_GIB) * 2**30)


def memory_reserve(text: str) -> int | None:
    """TENSORFOLD_MEMORY_RESERVE_GIB in bytes; blank is none. Raises RefusedError for what is less than the least."""
    if not text.strip():
        return None
    kept = _finite(text)
    if kept is None or not LEAST_RESERVE_GIB <= kept <= MOST_GIB:
        raise RefusedError(
            f"TENSORFOLD_MEMORY_RESERVE_GIB is {text[:40]!r}; it must be a number of GiB, at least "
            f"{LEAST_RESERVE_GIB}, or blank for the usual reserve."
        )
    return int(kept * 2**30)


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def switched_on(text: str) -> bool:
    """Whether a variable that is a switch is on."""
    return text.strip().lower() in ("1", "true", "yes", "on")


def model_id(flag: str, text: str) -> str:
    """An id that clients can send and a line of a log can show. Raises RefusedError."""
    if not text.strip() or not text.isprintable() or len(text) > MOST_ID:
        raise RefusedError(f"{flag} holds a model id that is not 1 to {MOST_ID} printable characters, not all spaces.")
    return text


def api_keys(given: Sequence[str], listed: str) -> tuple[tuple[str, str], ...]:
    """(label, key) pairs of `--api-key` and TENSORFOLD_API_KEY; labels are what logs may show."""
    named = [(f"cli-{i}", key, "--api-key") for i, key in enumerate(given, start=1)]
    parts = [part.strip() for part in listed.split(",") if part.strip()]
    named += [(f"env-{i}", key, "TENSORFOLD_API_KEY") for i, key in enumerate(parts, start=1)]
    for _, key, source in named:
        if not is_key(key):
            raise RefusedError(
                f"{source} holds a key that is not 1 to {MOST_KEY} printable ASCII characters without spaces."
            )
    return tuple((label, key) for label, key, _ in named)


def key_file(text: str | None) -> Path | None:
    """The file of `--api-key-file` as an absolute path, `~` expanded. Raises RefusedError."""
    return None if text is None else own_path("--api-key-file", text, "file")


def request_log(text: str) -> Path | None:
    """The file of TENSORFOLD_REQUEST_LOG; blank is none. Raises RefusedError."""
    return own_path("TENSORFOLD_REQUEST_LOG", text, "file") if text.strip() else None


def origin(text: str) -> str:
    """An origin of `--cors`, or `*`. Raises RefusedError."""
    if text != "*" and not _ORIGIN.fullmatch(text):
        raise RefusedError(
            f"--cors is {text[:200]!r}; it must be an origin as browsers send it, such as http://localhost:3000, "
            "without a path, or * for every origin."
        )
    return text


def seed_salt(text: str) -> int:
    """TENSORFOLD_SEED_SALT; blank is 0."""
    if not text.strip():
        return 0
    try:
        return int(text)
    except ValueError:
        raise RefusedError(f"TENSORFOLD_SEED_SALT is {text[:40]!r}; it must be an integer, or blank for 0.") from None


def server_key(key: str | None) -> str | None:
    """The key of `--key`, for a server that somebody else may run. Raises RefusedError."""
    if key is not None and not is_key(key):
        raise RefusedError(f"--key holds a key that is not 1 to {MOST_KEY} printable ASCII characters without spaces.")
    return key


def update_settings(flags: argparse.Namespace, environment: Mapping[str, str]) -> UpdateSettings:
    """Settings of the release check and of `update`. Raises RefusedError."""
    off = switched_on(environment.get("TENSORFOLD_NO_UPDATE_CHECK", ""))
    given = environment.get("TENSORFOLD_PROJECT_URL", "").strip()
    address = read_address(given)
    if given and address is None:
        raise RefusedError(
            f"TENSORFOLD_PROJECT_URL is {given[:200]!r}; it must be https://HOST/OWNER/NAME, or blank for the "
            "package's own address."
        )
    return UpdateSettings(address, not (off or getattr(flags, "no_update_check", False)), cache_folder(environment))


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where converted models and load checks are kept; created only when something is written."""
    base = environment.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "tensorfold"
