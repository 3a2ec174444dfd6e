"""GLM-5.3-Flash and Flash Next as whole models, in every published form, over both devices, against the oracle.

Sixty-four tokens with ended segments among them pass every boundary of the tiny configs: the dense window of the
indexer and far past its budget, four taps, a dilation of three.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.adapters.mlx.forward import Forward
from tensorfold.domain.windows import chain
from tests.adapters.mlx.blocks.one_op import DEVICES, comb, some_tokens
from tests.adapters.mlx.tiny_families import TinyFamily, stepped, tiny_family
from tests.reference.reference_model import ReferenceModel
from tests.synthetic.plan_checkpoints import LAYOUTS

pytestmark = pytest.mark.slow
TOKENS = some_tokens(17, 64)
LARGEST = 1e-4
FORMS = {
    "glm-as-published": ("glm5_next", "hf", False),
    "glm-converted": ("glm5_next", "mlx", True),
    "glm-stacked": ("glm5_next", "mlx_stacked", True),
    "flash-next-as-published": ("qwen4_exp", "hf", False),
    "flash-next-converted": ("qwen4_exp", "mlx", True),
}
LAYERS: dict[str, dict[str, Any]] = {
    "glm5_next": {
        "num_hidden_layers": 2,
        "layer_types": ["linear_attention", "indexed_attention"],
        "mlp_layer_types": ["dense", "sparse"],
    },
    "qwen4_exp": {"num_hidden_layers": 4},
}


@dataclass(frozen=True, slots=True)
class Known:
    """A checkpoint and the oracle's logits of `TOKENS`."""

    family: TinyFamily
    logits: NDArray[np.float64]


# Every form over numpy rows; over MLX's own one of each family, in codes.
WAYS = [*((form, "cpu") for form in FORMS), ("glm-stacked", "library"), ("flash-next-converted", "library")]


@pytest.fixture(scope="module")
def checkpoints() -> dict[str, Known]:
    """Those that were written already."""
    return {}


@pytest.fixture(scope="module", params=sorted(WAYS), ids="-".join)
def way(request: Any) -> tuple[str, str]:
    found: tuple[str, str] = request.param
    return found


@pytest.fixture(scope="module")
def known(way: tuple[str, str], checkpoints: dict[str, Known], tmp_path_factory: pytest.TempPathFactory) -> Known:
    name, _ = way
    if name not in checkpoints:
        family, form, packed = FORMS[name]
        stored = LAYOUTS[family] if packed else None
        folder = tmp_path_factory.mktemp(name)
        made = tiny_family(folder, family, 11, quantization=stored, form=form, **LAYERS[family])
        checkpoints[name] = Known(made, ReferenceModel.load(made.folder, made.plan).logits(TOKENS))
    return checkpoints[name]


@pytest.fixture(scope="module")
def forward(way: tuple[str, str], known: Known) -> Iterator[Forward[Any]]:
    made = known.family.forward(DEVICES[way[1]]())
    yield made
    made.decoder.ops.close()


def test_steps_windows_and_a_whole_prompt_give_the_oracle_s_logits(forward: Forward[Any], known: Known) -> None:
    steps = stepped(forward, forward.open(128), TOKENS)
    assert np.abs(steps - known.logits).max() <= LARGEST
    assert np.array_equal(steps.argmax(axis=1), known.logits.argmax(axis=1))
    for width in (7, 16, len(TOKENS)):
        lane = forward.open(128)
        made = []
        for start in range(0, len(TOKENS), width):
            window = chain(TOKENS[start], TOKENS[start + 1 : start + width])
            made.append(forward.logits(lane, window))
            lane.keep(tuple(range(len(window))))
        assert np.array_equal(np.concatenate(made), steps), width


def test_a_tree_s_path_gives_the_logits_of_steps_along_it_and_leaves_their_state(
    forward: Forward[Any], known: Known
) -> None:
    for prompt in (2, 11, 40):
        lane = forward.open(128)
        forward.absorb(lane, np.asarray(TOKENS[:prompt]))
        window, path = comb([*TOKENS[prompt : prompt + 1], *some_tokens(prompt, 10)])
        serial = lane.fork()
        expected = stepped(forward, serial, [window.tokens[row] for row in path])
        made = forward.logits(lane, window)
        lane.keep(path)
        assert np.array_equal(made[list(path)], expected)
        assert [layer.export() for layer in lane.layers] == [layer.export() for layer in serial.layers]


def test_a_lane_that_is_exported_goes_on_as_if_it_had_stayed(forward: Forward[Any], known: Known) -> None:
    for prompt in (12, 39):
        lane, restored = forward.open(128), forward.open(128)
        forward.absorb(lane, np.asarray(TOKENS[:prompt]))
        for layer, held in zip(restored.layers, lane.layers, strict=True):
            layer.load(held.export(), prompt)
        restored.length = prompt
        expected = stepped(forward, lane, TOKENS[prompt : prompt + 12])
        assert np.array_equal(stepped(forward, restored, TOKENS[prompt : prompt + 12]), expected)
