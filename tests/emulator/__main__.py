"""Every Metal kernel over every width, group, dtype, row count and order; figures on the last line.

    python -m tests.emulator

Exits with 1 when a value is wrong, a row's bits depend on its company, a planted fault goes unnoticed, or a kernel was
never launched. Takes minutes.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import time
from collections.abc import Callable, Iterator

from tensorfold.kernels import metal
from tensorfold.kernels.metal.launch import MetalKernel
from tests.emulator.errors import EmulatorError
from tests.emulator.kernel import LAUNCHED
from tests.emulator.orders import WIDE_ORDERS
from tests.kernels.metal import mistakes, products, rowwise, windowed
from tests.kernels.metal.case import COUNTS, TREE, chain, check_rows, check_window

ROWS = COUNTS[-1]


def kernels() -> Iterator[MetalKernel]:
    """Every kernel that the product holds."""
    for found in pkgutil.iter_modules(metal.__path__, f"{metal.__name__}."):
        for value in vars(importlib.import_module(found.name)).values():
            if isinstance(value, MetalKernel):
                yield value


def checks() -> Iterator[tuple[str, Callable[[], int]]]:
    """(what, a check that returns how many rows it compared)."""
    for order in WIDE_ORDERS:
        for case in (*products.quick(ROWS), *products.wide(33), *rowwise.quick(ROWS), *rowwise.wide(33)):
            yield f"{case.name}, {order}", lambda case=case, order=order: check_rows(case, order, COUNTS)  # type: ignore[misc]
        for one in (*windowed.quick(), *windowed.wide()):
            for parents in (TREE, chain(one.rows)):
                yield (
                    f"{one.name}, {order}",
                    lambda one=one, order=order, parents=parents: check_window(one, order, parents),  # type: ignore[misc]
                )


def main() -> int:
    """Run all, print failures as they come, then one line of figures."""
    began, compared, count, failures = time.monotonic(), 0, 0, 0
    for what, check in checks():
        count += 1
        try:
            compared += check()
        except (AssertionError, EmulatorError) as error:
            failures += 1
            print(f"FAILED {what}: {error}", flush=True)
        if count % 50 == 0:
            print(f"{count} checks, {compared:,} rows, {time.monotonic() - began:.0f} s", flush=True)
    planted = [*mistakes.others(), *mistakes.barriers()]
    unnoticed = [one.about for one in planted if not mistakes.noticed(one)]
    for about in unnoticed:
        print(f"UNNOTICED {about}", flush=True)
    known = {kernel.name for kernel in kernels()}
    missing = sorted(name for name in known if not any(ran.startswith(f"tensorfold_{name}_") for ran in LAUNCHED))
    for name in missing:
        print(f"NEVER LAUNCHED {name}", flush=True)
    print(
        f"{len(known)} Metal kernels under {len(WIDE_ORDERS)} orders: {count} checks, {failures} failed; "
        f"{compared:,} rows compared bit for bit; {len(planted)} faults planted, {len(unnoticed)} unnoticed; "
        f"{len(missing)} kernels never launched; {time.monotonic() - began:.0f} s"
    )
    return 1 if failures or unnoticed or missing else 0


if __name__ == "__main__":
    sys.exit(main())
