"""A table of names becomes a slot for every weight."""

from __future__ import annotations

import pytest

from tensorfold.domain.families.naming import Named, Names, name_weights
from tensorfold.domain.families.tensors import Slot, Source, Weight

WEIGHT = Weight((4, 4))


def test_a_star_stands_for_the_layers_number() -> None:
    weights = {"layers.12.a.q": WEIGHT, "mtp.layers.3.a.q": WEIGHT, "head": WEIGHT}
    table: dict[str, Names] = {
        "layers.*.a.q": "body.*.q",
        "mtp.layers.*.a.q": Source("mtp.*.q", module=False),
        "head": "lm_head",
    }
    assert name_weights(weights, table) == {
        "layers.12.a.q": Slot(("body.12.q",), WEIGHT),
        "mtp.layers.3.a.q": Slot((Source("mtp.3.q", module=False),), WEIGHT),
        "head": Slot(("lm_head",), WEIGHT),
    }


def test_a_named_entry_brings_several_names_a_centring_and_a_rule() -> None:
    slot = name_weights({"a": WEIGHT}, {"a": Named(("x", Source("y")), centring="always", rule="plain")})["a"]
    assert slot == Slot(("x", Source("y")), Weight((4, 4), rule="plain"), "always")
    assert slot.sources == (Source("x"), Source("y"))
    assert slot.shape == (4, 4)


def test_a_weight_without_a_name_is_an_error() -> None:
    with pytest.raises(KeyError, match=r"layers\.\*\.a"):
        name_weights({"layers.0.a": WEIGHT}, {})
