"""Whether a checkpoint stores its norm weights around zero, decided from the means of some of them.

Some conversions of one family store w and others 1 + w under the same names, so only the values can tell.
Source: the published conversions; the bounds leave a wide gap between both kinds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensorfold.domain.families.fields import ConfigError

LEAST_PROBES = 8
_ONE_LOW, _ONE_HIGH, _ZERO_LOW, _ZERO_HIGH, _BETWEEN = 0.75, 1.5, -0.5, 0.25, 0.5


def stored_around_zero(means: Sequence[float]) -> bool:
    """True when the weights with these means want one added. Raises ConfigError when the means fit neither kind."""
    if len(means) >= LEAST_PROBES and all(map(math.isfinite, means)):
        high = 10 * sum(mean > _BETWEEN for mean in means)
        middle = sorted(means)[len(means) // 2]
        if high >= 9 * len(means) and _ONE_LOW <= middle <= _ONE_HIGH:
            return False
        if high <= len(means) and _ZERO_LOW <= middle <= _ZERO_HIGH:
            return True
    raise ConfigError(
        f"The checkpoint's norm weights lie neither around 0 nor around 1 ({len(means)} norms looked at, at least "
        f"{LEAST_PROBES} needed); fetch it again or use another conversion."
    )
