"""Memory that runs out at a chosen call: the nth operation of torch, work of a block, or call of a head."""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]
from torch.utils._python_dispatch import TorchDispatchMode  # type: ignore[import-not-found, unused-ignore]

from tests.adapters.cuda.listed_model import Listed


class RunsOut(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """Within it the `nth` call raises torch's error, and with `onwards` every later one; `hit` tells whether it came.

    With `heads_alone` a head's calls are all that is counted.
    """

    def __init__(self, listed: Listed, nth: int, *, onwards: bool = False, heads_alone: bool = False) -> None:
        super().__init__()
        self._listed, self._nth, self._onwards, self._heads_alone = listed, nth, onwards, heads_alone
        self.calls = 0

    @property
    def hit(self) -> bool:
        """Whether the call was reached."""
        return self.calls > self._nth

    def __enter__(self) -> RunsOut:
        if self._listed.head is not None:
            self._listed.head.reach = lambda name: self.reach()
        if not self._heads_alone:
            self._listed.tape.reach = self.reach
            super().__enter__()
        return self

    def __exit__(self, *fault: Any) -> None:
        if not self._heads_alone:
            super().__exit__(*fault)
        self._listed.tape.reach = lambda: None
        if self._listed.head is not None:
            self._listed.head.reach = lambda name: None

    def reach(self) -> None:
        """One more call."""
        self.calls += 1
        if self.calls == self._nth + 1 or (self._onwards and self.hit):
            raise torch.OutOfMemoryError("CUDA out of memory")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # A view is no call of the device.
        if not func.is_view:
            self.reach()
        return func(*args, **(kwargs or {}))
