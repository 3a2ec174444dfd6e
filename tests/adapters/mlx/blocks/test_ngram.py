"""The hashed n-gram: row numbers are exact integers, segments end where they should, and the table stays on disk."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorfold.adapters.mlx import weights
from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.adapters.mlx.blocks.ngram import HashedNgramBlock, TokenTail, table_rows
from tensorfold.adapters.mlx.layouts import lay_out
from tensorfold.adapters.mlx.rows_cpu import CpuRows
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families import qwen4_exp
from tensorfold.domain.families.ops import HashedNgram
from tensorfold.domain.families.storage import TensorHeader
from tensorfold.domain.windows import chain, tree
from tensorfold.kernels.reference.hashed_ngram import ngram_rows, seen_tokens
from tests.adapters.mlx.blocks.one_op import DEVICES, OneOp, some_tokens, weights_of
from tests.adapters.mlx.tiny_families import TinyFamily, tiny_family
from tests.synthetic.plan_checkpoints import true_config

PATH = "layers.1.ngram"


def published() -> HashedNgram:
    """The op of the published config."""
    plan = qwen4_exp.plan(true_config("qwen4_exp"))
    (op,) = [sub.op for layer in plan.layers for sub in layer if isinstance(sub.op, HashedNgram)]
    return op


def test_row_numbers_of_the_published_config_are_those_of_exact_integers() -> None:
    op = published()
    assert op.multipliers == (23703573157769, 20109073645365, 8052911324071)
    assert (op.table_sizes[0], op.table_sizes[-1], sum(op.table_sizes)) == (20000003, 20000171, 320001446)
    generator = np.random.default_rng(1)
    seen = generator.integers(0, 248_320, (200, 3))
    made = table_rows(op, seen)
    for row, tokens in zip(made.tolist(), seen.tolist(), strict=True):
        assert row == ngram_rows(tokens, op.multipliers, op.table_sizes, op.heads_per_ngram)


def test_products_past_63_bits_wrap_as_int64_does() -> None:
    op = replace(published(), multipliers=((1 << 63) - 25, (1 << 62) + 7, 3))
    seen = np.array([[248_319, 248_000, 5], [7, 248_319, 1]])
    made = table_rows(op, seen).tolist()
    assert made == [ngram_rows(row, op.multipliers, op.table_sizes, op.heads_per_ngram) for row in seen.tolist()]
    assert min(map(min, made)) >= 0


@pytest.mark.parametrize("count", (1, 2, 4))
def test_no_row_sees_past_the_end_of_a_segment(count: int) -> None:
    generator = np.random.default_rng(count)
    for _ in range(40):
        tokens = [int(token) for token in generator.integers(0, 4, 14)]
        window = tree(tokens[5], tokens[6:], [int(generator.integers(max(0, row - 3), row)) for row in range(1, 9)])
        tail: TokenTail[Any] = TokenTail(count, 1)
        for token in tokens[:5]:
            tail.run(np.array([token]), lay_out(chain(token), tail.length))
            tail.keep((0,))
        seen = tail.run(np.array(window.tokens), lay_out(window, 5))
        for row in range(len(window)):
            before = [*[1] * count, *tokens[:5], *(window.tokens[r] for r in window.path_to(row)[:-1])]
            assert seen[row].tolist() == seen_tokens(before[-count:], window.tokens[row], 1)


@pytest.mark.parametrize("slot", ("multipliers", "table_sizes", "offsets"))
def test_constants_of_another_config_are_refused_by_name(qwen: TinyFamily, slot: str) -> None:
    reader = weights_of(qwen)
    integers = reader.integers
    reader.integers = lambda path: integers(path) + (path == f"{PATH}.{slot}")  # type: ignore[method-assign]
    op = next(sublayer.op for sublayer in qwen.plan.layers[1] if sublayer.name == "ngram")
    assert isinstance(op, HashedNgram)
    with pytest.raises(RefusedError, match=f"{PATH}.{slot} are not those"):
        HashedNgramBlock(Assembly(CpuRows(), reader, 64, 4), op, PATH)


def test_a_checkpoint_without_the_constants_is_served_from_the_config(qwen: TinyFamily) -> None:
    reader = weights_of(qwen)
    reader.has = lambda path: False  # type: ignore[method-assign]
    op = next(sublayer.op for sublayer in qwen.plan.layers[1] if sublayer.name == "ngram")
    assert isinstance(op, HashedNgram)
    HashedNgramBlock(Assembly(CpuRows(), reader, 64, 4), op, PATH)


def test_only_the_rows_that_tokens_name_are_read(qwen: TinyFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    whole: list[str] = []
    read_tensor, read = weights.read_tensor, os.pread

    def noted(folder: Path, header: TensorHeader) -> Any:
        whole.append(header.name)
        return read_tensor(folder, header)

    monkeypatch.setattr(weights, "read_tensor", noted)
    one = OneOp.of(qwen, CpuRows(), PATH)
    assert whole and not any("ngram_embedding" in name for name in whole)
    sizes: list[int] = []

    def counted(file: int, size: int, at: int) -> bytes:
        sizes.append(size)
        return read(file, size, at)

    monkeypatch.setattr(os, "pread", counted)
    tokens = some_tokens(1, 30)
    one.run(one.open(), one.rows(1, 30), chain(tokens[0], tokens[1:]))
    heads = (one.op.ngram - 1) * one.op.heads_per_ngram
    assert set(sizes) == {4 * one.op.row_width}
    assert len(sizes) <= 30 * heads


def cut(folder: Path) -> None:
    """Cut every file of weights short."""
    for file in folder.glob("*.safetensors"):
        os.truncate(file, file.stat().st_size // 8)


def copied(family: TinyFamily, folder: Path) -> TinyFamily:
    shutil.copytree(family.folder, folder)
    return replace(family, folder=folder)


def test_a_file_that_was_cut_short_before_loading_is_refused(qwen: TinyFamily, tmp_path: Path) -> None:
    family = copied(qwen, tmp_path / "copy")
    reader = weights_of(family)
    cut(family.folder)
    with pytest.raises(RefusedError, match="no longer holds the rows"):
        reader.table(f"{PATH}.table")


def test_a_file_that_is_cut_short_while_serving_fails_the_pass_and_nothing_else(
    qwen: TinyFamily, tmp_path: Path
) -> None:
    family = copied(qwen, tmp_path / "copy")
    one = OneOp.of(family, CpuRows(), PATH)
    state, rows = one.open(), one.rows(1, 4)
    before = one.run(state, rows, chain(5, [6, 7, 8]))
    state.keep((0, 1))
    held = state.export()
    kept = {path: path.read_bytes() for path in family.folder.glob("*.safetensors")}
    cut(family.folder)
    with pytest.raises(RefusedError, match="start again"):
        one.run(state, rows[2:], chain(7, [8]))
    state.discard()
    assert state.export() == held
    for path, data in kept.items():
        path.write_bytes(data)
    assert np.array_equal(one.run(state, rows[2:], chain(7, [8])), before[2:])


@pytest.mark.parametrize("form", ("hf", "mlx"))
@pytest.mark.parametrize("device", sorted(DEVICES))
def test_a_table_in_one_piece_and_one_in_shards_make_the_same_rows(
    form: str, device: str, qwen: TinyFamily, tmp_path: Path
) -> None:
    written = tiny_family(tmp_path, "qwen4_exp", 5, form=form, num_hidden_layers=4, mtp_num_hidden_layers=0)
    other = OneOp.of(written, DEVICES[device](), PATH)
    one = OneOp.of(qwen, DEVICES[device](), PATH)
    tokens = some_tokens(3, 12)
    window, rows = chain(tokens[0], tokens[1:]), one.rows(3, 12)
    made = one.run(one.open(), rows, window)
    assert np.abs(other.run(other.open(), rows, window) - made).max() <= 1e-5
