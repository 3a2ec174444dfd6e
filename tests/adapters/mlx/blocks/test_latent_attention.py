"""Attention over latents: with values that turn, with matrices the file holds transposed or in codes, in any part."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.adapters.mlx.blocks.latent_attention import LatentAttentionBlock
from tensorfold.adapters.mlx.layouts import lay_out
from tensorfold.adapters.mlx.row_context import RowContext, Segment
from tensorfold.adapters.mlx.rows_library import LibraryRows
from tensorfold.adapters.mlx.weights import Codes, Matrix, Stack, Values
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.ops import LatentAttention, Norm, Rope
from tensorfold.domain.families.rope import inverse_frequencies
from tensorfold.domain.windows import chain
from tensorfold.kernels.reference.latent_attention import attend_absorbed, attend_expanded
from tensorfold.kernels.reference.norm import rms_norm
from tensorfold.kernels.reference.rope import rotate
from tests.adapters.mlx.blocks.one_op import DEVICES, OneOp, some_tokens
from tests.adapters.mlx.tiny_families import tiny_family
from tests.synthetic.plan_checkpoints import LAYOUTS

NORM = Norm(1e-5)
WIDTH, TOKENS = 32, 20
TURNING = LatentAttention(
    heads=3,
    q_rank=24,
    kv_rank=16,
    key_dim=12,
    rope_dim=8,
    value_dim=10,
    scale=20**-0.5,
    q_norm=NORM,
    kv_norm=NORM,
    rope=Rope(8, 10_000.0, interleaved=True),
)
SHAPES: dict[str, tuple[int, ...]] = {
    "q_down": (24, WIDTH),
    "q_norm": (24,),
    "q_up": (3 * 20, 24),
    "kv_down": (24, WIDTH),
    "kv_norm": (16,),
    "key_up": (3, 12, 16),
    "value_up": (3, 10, 16),
    "out": (WIDTH, 30),
}


class Drawn:
    """Seeded weights by slot, in place of a checkpoint's reader."""

    def __init__(self) -> None:
        generator = np.random.default_rng(4)
        self.values = {
            name: (generator.standard_normal(shape) * shape[-1] ** -0.5 + (len(shape) == 1)).astype(np.float32)
            for name, shape in SHAPES.items()
        }

    def matrix(self, path: str) -> Matrix:
        values = self.floats(path)
        return Matrix(Values(values, "F32"), (values.shape[0], values.shape[1]))

    def heads(self, path: str) -> tuple[Stack, bool]:
        values = self.floats(path)
        return Stack(Values(values, "F32"), (values.shape[0], values.shape[1], values.shape[2])), False

    def floats(self, path: str) -> Any:
        return self.values[path.removeprefix("one.")]


def expected(drawn: Drawn, rows: Any, form: Any) -> Any:
    """Every row reading all rows up to itself, in float64."""
    wide = {name: values.astype(np.float64) for name, values in drawn.values.items()}
    places, angles = np.arange(len(rows)), inverse_frequencies(TURNING.rope)  # type: ignore[arg-type]
    low = rms_norm(rows @ wide["q_down"].T, wide["q_norm"], 1e-5)
    queries = (low @ wide["q_up"].T).reshape(len(rows), 3, 20)
    made = rows @ wide["kv_down"].T
    latents = rms_norm(made[:, :16], wide["kv_norm"], 1e-5)
    turned = rotate(made[:, None, 16:], places, angles, interleaved=True)[:, 0]
    asked = rotate(queries[:, :, 12:], places, angles, interleaved=True)
    read = [
        form(
            queries[row, :, :12],
            latents,
            range(row + 1),
            wide["key_up"],
            wide["value_up"],
            TURNING.scale,
            (asked[row], turned),
        ).reshape(-1)
        for row in range(len(rows))
    ]
    return np.stack(read) @ wide["out"].T


@pytest.mark.parametrize("device", sorted(DEVICES))
def test_values_that_turn_are_scored_beside_the_latent_and_never_mixed(device: str) -> None:
    ops, drawn = DEVICES[device](), Drawn()
    assembly: Assembly[Any] = Assembly(ops, drawn, WIDTH)  # type: ignore[arg-type]
    block: LatentAttentionBlock[Any] = LatentAttentionBlock(assembly, TURNING, "one")
    rows = np.random.default_rng(5).standard_normal((TOKENS, WIDTH)).astype(np.float32)
    made = []
    state = block.state(64)
    for start, stop in ((0, 7), (7, 8), (8, TOKENS)):
        layout = lay_out(chain(0, [0] * (stop - start - 1)), start)
        segment: Segment[Any] = Segment((state,), layout, 0, stop - start)
        context: RowContext[Any] = RowContext(np.zeros(stop - start, np.int64), layout.positions, (segment,))
        device_rows = ops.float32(rows[start:stop])
        made.append(ops.host(block(device_rows, context, device_rows)))
        state.keep(tuple(range(stop - start)))
    for form in (attend_absorbed, attend_expanded):
        wanted = expected(drawn, rows.astype(np.float64), form)
        assert np.abs(np.concatenate(made) - wanted).max() <= 2e-5 * np.abs(wanted).max()
    (entry,) = assembly.stateful[0][1]
    assert len(state.export()[0]) == TOKENS * entry.row_bytes
    ops.close()


def test_values_that_turn_by_unknown_angles_are_refused() -> None:
    assembly: Assembly[Any] = Assembly(LibraryRows("float32"), Drawn(), WIDTH)  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match="8 cached values that turn, but not the angles"):
        LatentAttentionBlock(assembly, replace(TURNING, rope=None), "one")


@pytest.mark.parametrize("form", ("mlx", "mlx_stacked"))
@pytest.mark.parametrize("device", sorted(DEVICES))
def test_codes_are_multiplied_with_in_the_order_the_file_holds_them(form: str, device: str, tmp_path: Path) -> None:
    family = tiny_family(
        tmp_path,
        "glm5_next",
        8,
        quantization=LAYOUTS["glm5_next"],
        form=form,
        num_hidden_layers=2,
        layer_types=["linear_attention", "indexed_attention"],
        mlp_layer_types=["dense", "sparse"],
        num_nextn_predict_layers=0,
    )
    one = OneOp.of(family, DEVICES[device](), "layers.1.attention")
    rows, tokens = one.rows(3, 30), some_tokens(3, 30)
    wanted = one.expected(rows, tokens)
    made = one.run(one.open(), rows, chain(tokens[0], tokens[1:]))
    assert np.abs(made - wanted).max() <= 2e-5 * np.abs(wanted).max()
    one.ops.close()


@pytest.mark.parametrize("device", sorted(DEVICES))
@pytest.mark.parametrize("back", (False, True))
@pytest.mark.parametrize("bits", (0, 4, 8))
def test_a_head_s_rows_go_through_its_own_matrix_alone(device: str, back: bool, bits: int) -> None:
    import mlx.core as mx

    ops = DEVICES[device]()
    generator = np.random.default_rng(6)
    weights = generator.standard_normal((3, 32, 64)).astype(np.float32)
    stored: Values | Codes = Values(weights, "F32")
    if bits:
        words, scales, biases = (np.array(part) for part in mx.quantize(mx.array(weights), group_size=32, bits=bits))
        stored = Codes(words, scales, biases, bits, 32, "F32")
        parts = (mx.array(words), mx.array(scales), mx.array(biases))
        weights = np.array(mx.dequantize(parts[0], parts[1], parts[2], group_size=32, bits=bits))
    rows = generator.standard_normal((17, 3, 32 if back else 64)).astype(np.float32)
    product = ops.per_head(Stack(stored, (3, 32, 64)), back=back)
    made = ops.host(product(ops.float32(rows)))
    wanted = np.einsum("rhk,hkn->rhn" if back else "rhk,hnk->rhn", rows.astype(np.float64), weights.astype(np.float64))
    assert np.abs(made - wanted).max() <= 1e-5 * np.abs(wanted).max()
    if device == "cpu":
        for count in range(1, 17):
            assert np.array_equal(ops.host(product(ops.float32(rows[:count]))), made[:count])
    ops.close()
