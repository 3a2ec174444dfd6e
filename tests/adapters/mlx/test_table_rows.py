"""Rows read one by one from their file are the values of the whole table, in every form it may be stored in."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.adapters.mlx.table_rows import TableRows
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.storage import Affine, Dense, TensorHeader
from tensorfold.domain.families.stored_modules import Module

SHARDS, ROWS, WIDTH = 3, 10, 160


def header(folder: Path, name: str, dtype: str, shape: tuple[int, ...], data: bytes) -> TensorHeader:
    """A tensor in a file of its own, with bytes before and behind it."""
    (folder / name).write_bytes(b"x" * 24 + data + b"y" * 8)
    return TensorHeader(name, dtype, shape, name, 24, 24 + len(data))


def ids() -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.random.default_rng(2).integers(0, SHARDS * ROWS, (5, 4))


@pytest.mark.parametrize("dtype", ("F32", "F16", "BF16"))
def test_dense_rows_are_the_table_s(dtype: str, tmp_path: Path) -> None:
    table = np.random.default_rng(1).standard_normal((SHARDS, ROWS, WIDTH)).astype(np.float32)
    if dtype == "BF16":
        stored = (table.view(np.uint32) >> 16).astype(np.uint16)
        expected = (stored.astype(np.uint32) << 16).view(np.float32)
    else:
        stored = table.astype(np.float32 if dtype == "F32" else np.float16)
        expected = stored.astype(np.float32)
    headers = {
        str(shard): header(tmp_path, str(shard), dtype, (ROWS, WIDTH), stored[shard].tobytes())
        for shard in range(SHARDS)
    }
    rows = TableRows(tmp_path, headers, [Module(name) for name in headers], Dense(dtype), WIDTH)
    assert rows.rows == SHARDS * ROWS
    assert np.array_equal(rows(ids()), expected.reshape(-1, WIDTH)[ids()])


@pytest.mark.parametrize("bits", (2, 3, 4, 5, 6, 8))
@pytest.mark.parametrize("group", (32, 64, 128))
def test_affine_rows_are_scale_times_code_plus_bias(bits: int, group: int, tmp_path: Path) -> None:
    width = 128
    table = np.random.default_rng(bits).standard_normal((SHARDS * ROWS, width)).astype(np.float32)
    words, scales, biases = mx.quantize(mx.array(table), group_size=group, bits=bits)
    expected = np.array(mx.dequantize(words, scales, biases, group_size=group, bits=bits))
    headers = {
        name: header(tmp_path, name, dtype, values.shape, np.array(values).tobytes())
        for name, dtype, values in (("w", "U32", words), ("s", "F32", scales), ("b", "F32", biases))
    }
    rows = TableRows(tmp_path, headers, [Module("w", "s", "b")], Affine(bits, group, "F32"), width)
    assert np.abs(rows(ids()) - expected[ids()]).max() <= 1e-6


def test_a_file_that_is_gone_or_short_is_refused_by_its_name(tmp_path: Path) -> None:
    whole = header(tmp_path, "t", "F32", (ROWS, WIDTH), b"\0" * (4 * ROWS * WIDTH))
    rows = TableRows(tmp_path, {"t": whole}, [Module("t")], Dense("F32"), WIDTH)
    (tmp_path / "t").write_bytes(b"x" * 100)
    with pytest.raises(RefusedError, match=r"^t no longer holds"):
        rows(np.array([9]))
    with pytest.raises(RefusedError, match=r"^t no longer holds"):
        TableRows(tmp_path, {"t": whole}, [Module("t")], Dense("F32"), WIDTH)
    (tmp_path / "t").unlink()
    with pytest.raises(RefusedError, match=r"^t no longer holds"):
        TableRows(tmp_path, {"t": whole}, [Module("t")], Dense("F32"), WIDTH)


def test_an_open_table_gives_its_files_back(tmp_path: Path) -> None:
    whole = header(tmp_path, "t", "F32", (ROWS, WIDTH), b"\0" * (4 * ROWS * WIDTH))
    open_files = Path("/proc/self/fd")
    if not open_files.exists():
        pytest.skip("this system does not list a process's open files")
    before = len(list(open_files.iterdir()))
    rows = TableRows(tmp_path, {"t": whole}, [Module("t")], Dense("F32"), WIDTH)
    assert len(list(open_files.iterdir())) == before + 1
    del rows
    assert len(list(open_files.iterdir())) == before


def test_many_rows_read_at_once_are_those_read_one_by_one_and_a_short_file_still_fails(tmp_path: Path) -> None:
    table = np.random.default_rng(1).standard_normal((900, WIDTH)).astype(np.float32)
    whole = header(tmp_path, "t", "F32", table.shape, table.tobytes())
    rows = TableRows(tmp_path, {"t": whole}, [Module("t")], Dense("F32"), WIDTH)
    asked = np.random.default_rng(2).integers(0, 900, (50, 16))
    assert np.array_equal(rows(asked), table[asked])
    (tmp_path / "t").write_bytes(b"x" * 1000)
    with pytest.raises(RefusedError, match="no longer holds"):
        rows(asked)
