"""The one sampler rule: a draw is a function of a row's logits, the settings, a seed and an absolute position.

Float64 noise keyed by (seed, position, token id), an integer nucleus, no state carried anywhere: the same row drawn
twice, alone or in company, gives the same token. Devices may reproduce this rule; tests compare them with it.
"""

from __future__ import annotations

from dataclasses import dataclass

RULE = "gumbel-f64/nucleus-i40/1"


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings of one request. `temperature` 0 is greedy; `top_k` <= 0 and `top_p` >= 1 are off; `min_p` 0 is off."""

    seed: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    @property
    def greedy(self) -> bool:
        """Whether the draw is the plain argmax."""
        return self.temperature <= 0.0
