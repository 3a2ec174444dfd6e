"""The identity that rows are kept under changes with every source that decides their bits."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

from tensorfold.adapters.cuda import loader


@pytest.mark.parametrize(
    "name",
    [
        "adapters/cuda/plans.py",
        "kernels/triton/norms.py",
        "kernels/cuda/rows.py",
        "kernels/cuda/rows.cu",
        "kernels/cuda/codes.cuh",
    ],
)
def test_a_changed_source_is_another_identity(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / name
    source.parent.mkdir(parents=True)
    monkeypatch.setattr(loader, "__file__", str(tmp_path / "adapters" / "cuda" / "loader.py"))
    seen = [loader.sources_digest()]
    for text in ("a", "b"):
        source.write_text(text)
        seen.append(loader.sources_digest())
    assert len(set(seen)) == 3
