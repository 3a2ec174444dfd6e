"""Seeded weights behave like trained ones in one respect: nothing vanishes, explodes or becomes certain."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.reference.reference_model import Fed, ReferenceModel
from tests.synthetic.plan_checkpoints import LAYOUTS, PLANS, write_checkpoint
from tests.synthetic.tiny_configs import FAMILIES, VOCABULARY, tiny


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("quantized", (False, True), ids=("dense", "affine"))
@pytest.mark.slow
def test_rows_keep_their_size_and_logits_are_neither_flat_nor_certain(
    family: str, quantized: bool, tmp_path: Path
) -> None:
    folder = write_checkpoint(tmp_path, tiny(family), 7, "mlx", LAYOUTS[family] if quantized else None)
    model = ReferenceModel.load(folder, PLANS[family](tiny(family)))
    fed = Fed()
    logits = np.stack([model.feed(fed, 3 + 37 * at % 250) for at in range(24)])
    sizes = np.array([[np.sqrt(np.mean(streams**2)) for streams in passed] for passed in fed.streams])
    assert sizes.min() >= 0.1 and sizes.max() <= 100
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    entropy = -(chances * np.log(chances)).sum(axis=1)
    assert entropy.min() >= 1.0 and entropy.max() <= np.log(VOCABULARY) - 0.2
    # Different tokens lead to different replies.
    assert len(set(logits.argmax(axis=1).tolist())) >= 8
