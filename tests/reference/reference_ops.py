"""Every op of a plan over the float64 references: one row in, one row out, memory left in the row's lane."""

from __future__ import annotations

from tests.reference import mlp_ops, recurrent_ops
from tests.reference.attention_ops import turned
from tests.reference.slots import Slots, apply

# Each of these modules registers its ops with `apply` when it is imported.
REGISTERED = (mlp_ops, recurrent_ops)

__all__ = ["REGISTERED", "Slots", "apply", "turned"]
