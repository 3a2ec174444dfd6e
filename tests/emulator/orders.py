"""The choices that Metal leaves open, one set for each run. A row's bits may depend on none of them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Order:
    """How one run settles them.

    `sum`: reductions over a simdgroup. `chain`: the sum over k inside an 8x8 product. `contract`: whether a * b + c in
    a body becomes one operation. `threads`: who runs first between two meetings; `seed` shuffles.
    """

    sum: Literal["butterfly", "linear", "reversed"] = "butterfly"
    chain: Literal["ascending", "descending", "pairwise"] = "ascending"
    contract: bool = False
    threads: Literal["ascending", "descending", "shuffled"] = "ascending"
    seed: int = 1


class NativeOrder(ctypes.Structure):
    """`emu::Order` of the shim."""

    _fields_ = [("sum", ctypes.c_int), ("chain", ctypes.c_int), ("threads", ctypes.c_int), ("seed", ctypes.c_uint)]


def native(order: Order) -> NativeOrder:
    """The same choices as the machine reads them."""
    return NativeOrder(
        ("butterfly", "linear", "reversed").index(order.sum),
        ("ascending", "descending", "pairwise").index(order.chain),
        ("ascending", "descending", "shuffled").index(order.threads),
        order.seed,
    )


PLAIN = Order()
# Each differs from the others in everything but contraction, which needs another compilation of every body.
ORDERS = (
    PLAIN,
    Order("linear", "descending", threads="descending"),
    Order("reversed", "pairwise", threads="shuffled", seed=7),
)
WIDE_ORDERS = (*ORDERS, Order("linear", "pairwise", True, "shuffled", 11))
