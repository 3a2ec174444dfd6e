"""Triton's kernels run by its interpreter, in a process of its own: the choice is made when Triton is imported.

`python -m tests.kernels.triton.interpreted` runs every check below and prints the names of those that passed.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import sys
from collections.abc import Callable

import torch  # type: ignore[import-not-found, unused-ignore]

from tests.kernels.triton import checks

if __name__ == "__main__":
    torch.manual_seed(5)
    named: dict[str, Callable[[str], None]] = {k: v for k, v in vars(checks).items() if k.startswith("check_")}
    for name in sys.argv[1:] or named:
        named[name]("cpu")
        print(name, flush=True)
