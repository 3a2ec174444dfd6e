"""The CUDA backend's front door where nothing is installed for it: sentences, figures, and no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tensorfold.adapters.cuda import backend as module
from tensorfold.adapters.cuda.backend import CudaBackend
from tensorfold.application.ports.backend import ModelCheckpoint
from tensorfold.application.ports.checkpoints import CheckpointFacts, RefusedError
from tensorfold.application.settings import DraftSettings
from tests.domain.memory.cuda_models import bound_of, nemotron

FACTS = CheckpointFacts(Path("/m"), {}, {}, {}, 0, "digest")


def test_a_model_is_not_loaded_where_something_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "missing", lambda: "PyTorch is not installed.")
    plan, _ = nemotron()
    backend = CudaBackend(Path("/cache"))
    assert (backend.name, backend.missing()) == ("cuda", "PyTorch is not installed.")
    with pytest.raises(RefusedError, match=r"^PyTorch is not installed\.$"):
        backend.load(
            ModelCheckpoint(plan, {}, FACTS), name="m", context=64, max_streams=1, on_progress=lambda line: None
        )


def test_a_footprint_has_the_models_own_head_unless_it_drafts_nothing() -> None:
    plan, whole = nemotron()
    backend, bound = CudaBackend(Path("/cache")), bound_of(plan)
    assert backend.footprint(ModelCheckpoint(plan, bound, FACTS)) == whole
    without = backend.footprint(ModelCheckpoint(plan, bound, FACTS, DraftSettings(mtp_drafts=0)))
    assert without.weights < whole.weights


@pytest.mark.slow
def test_what_needs_no_card_imports_no_torch() -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from tensorfold.adapters.cuda.backend import CudaBackend\n"
        "import tensorfold.entrypoints.container, tensorfold.entrypoints.cli.choosing\n"
        "CudaBackend(Path('/cache'))\n"
        "assert 'torch' not in sys.modules and 'triton' not in sys.modules"
    )
    done: Any = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
