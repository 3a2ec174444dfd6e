"""Quantization blocks of config.json, and the layout that shapes alone imply."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.families.fields import ConfigError
from tensorfold.domain.families.storage import (
    AFFINE_BITS,
    AFFINE_GROUPS,
    DTYPE_BYTES,
    Layout,
    TensorHeader,
    affine_layout,
    parse_quantization,
)


def refusal(config: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_quantization(config)
    return caught.value.message


def test_no_block_means_plain_weights() -> None:
    assert parse_quantization({}) is None
    assert parse_quantization({"quantization": None, "text_config": {"hidden_size": 4}}) is None


def test_a_block_gives_the_layout_of_modules_it_does_not_name() -> None:
    found = parse_quantization({"quantization": {"group_size": 64, "bits": 4, "mode": "affine"}})
    assert found is not None
    assert found.default == Layout(4, 64)
    assert found.stated(("a.b",)) == (False, None)


def test_overrides_are_objects_true_or_false() -> None:
    block = {
        "group_size": 32,
        "bits": 3,
        "a": {"group_size": 128, "bits": 8},
        "b": True,
        "c": False,
        "d": {"bits": 6},
        "e": {},
        "recipe": "mixed_3_6",
        "version": 2,
        "quantize_input": False,
    }
    found = parse_quantization({"quantization": block})
    assert found is not None
    assert found.modules == {
        "a": Layout(8, 128),
        "b": Layout(3, 32),
        "c": None,
        # A named module's missing fields are the format's own defaults, not the block's.
        "d": Layout(6, 64),
        "e": Layout(4, 64),
    }
    assert found.stated(("x", "c", "a")) == (True, None)
    assert found.stated(("x", "a")) == (True, Layout(8, 128))


def test_the_first_block_wins_and_the_second_is_read_when_it_is_the_same_kind() -> None:
    four, eight = {"group_size": 64, "bits": 4}, {"group_size": 64, "bits": 8}
    both = parse_quantization({"quantization": four, "quantization_config": eight | {"quant_method": "gptq"}})
    alone = parse_quantization({"quantization_config": eight})
    nested = parse_quantization({"text_config": {"quantization_config": eight}})
    assert both is not None
    assert alone is not None
    assert nested is not None
    assert (both.default, alone.default, nested.default) == (Layout(4, 64), Layout(8, 64), Layout(8, 64))


@pytest.mark.parametrize("method", ["gptq", "awq", "exl3", "mxfp4", "fp8", ["x"], 7])
def test_a_foreign_format_is_refused_by_its_name(method: Any) -> None:
    message = refusal({"quantization_config": {"quant_method": method, "bits": 4, "group_size": 64}})
    assert message.startswith("config.json's quantization_config has quant_method ")
    assert "MLX affine conversion" in message
    assert not isinstance(method, str) or method in message


@pytest.mark.parametrize("mode", ["mxfp4", "mxfp8", "nvfp4", 3, None])
def test_a_mode_other_than_affine_is_refused_by_name(mode: Any) -> None:
    for block in ({"mode": mode}, {"a": {"mode": mode, "bits": 4, "group_size": 32}}):
        message = refusal({"quantization": {"bits": 4, "group_size": 32} | block})
        assert "only affine is read" in message
        assert not isinstance(mode, str) or mode in message


@pytest.mark.parametrize(
    ("block", "field"),
    [
        ({"bits": 7, "group_size": 64}, "bits as 7; it must be 2, 3, 4, 5, 6 or 8"),
        ({"bits": 1, "group_size": 64}, "bits as 1; it must be 2, 3, 4, 5, 6 or 8"),
        ({"bits": True, "group_size": 64}, "bits as true"),
        ({"bits": 4.0, "group_size": 64}, "bits as 4.0"),
        ({"bits": -4, "group_size": 64}, "bits as -4"),
        ({"bits": 4, "group_size": 16}, "group_size as 16; it must be 32, 64 or 128"),
        ({"bits": 4, "group_size": "64"}, "group_size as '64'"),
        ({"group_size": 64}, "lacks bits"),
        ({"bits": 4}, "lacks group_size"),
        ({"bits": 4, "group_size": 64, "a.b": {"bits": 7}}, "quantization's a.b gives bits as 7"),
    ],
)
def test_a_width_or_group_that_does_not_exist_is_refused(block: dict[str, Any], field: str) -> None:
    assert field in refusal({"quantization": block})


@pytest.mark.slow
def test_a_block_that_is_no_object_or_has_too_many_entries_is_refused() -> None:
    assert "it must be an object" in refusal({"quantization": [4, 64]})
    crowd = {"bits": 4, "group_size": 64} | {str(i): True for i in range(200_001)}
    assert "200,003 entries; the limit is 200,000" in refusal({"quantization": crowd})


@given(st.sampled_from(AFFINE_BITS), st.sampled_from(AFFINE_GROUPS), st.integers(1, 300))
@settings(derandomize=True, deadline=None, max_examples=100)
@pytest.mark.slow
def test_shapes_alone_tell_width_and_group(bits: int, group: int, count: int) -> None:
    inputs = group * count
    assert affine_layout(inputs * bits // 32, count, inputs) == Layout(bits, group)


@pytest.mark.parametrize(
    ("words", "groups", "inputs"),
    [(8, 0, 64), (8, 3, 64), (7, 1, 60), (14, 1, 64), (2, 1, 64), (16, 4, 64), (32, 2, 512)],
)
def test_shapes_that_fit_no_layout_give_none(words: int, groups: int, inputs: int) -> None:
    assert affine_layout(words, groups, inputs) is None


def test_a_header_knows_its_bytes() -> None:
    header = TensorHeader("a", "BF16", (3, 5), "f", 100, 130)
    assert header.nbytes == 3 * 5 * DTYPE_BYTES["BF16"]
