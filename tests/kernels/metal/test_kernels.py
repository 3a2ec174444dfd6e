"""Every Metal kernel, under each order of what Metal leaves open: right values, and a row's bits its own.

The quick tests take few rows; the slow ones all row counts and contraction. `python -m tests.emulator` goes further,
over every width, group and dtype.
"""

from __future__ import annotations

import pytest

from tests.emulator.orders import ORDERS, WIDE_ORDERS, Order
from tests.kernels.metal import products, rowwise, windowed
from tests.kernels.metal.case import COUNTS, QUICK_COUNTS, TREE, RowCase, WindowCase, chain, check_rows, check_window

QUICK_ROWS = [*products.quick(), *rowwise.quick()]
MANY_ROWS = [*products.quick(COUNTS[-1]), *rowwise.quick(COUNTS[-1])]
QUICK_WINDOWS = list(windowed.quick())


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.sum)
@pytest.mark.parametrize("case", QUICK_ROWS, ids=lambda case: case.name)
@pytest.mark.slow
def test_a_rows_bits_are_its_own_in_any_company(case: RowCase, order: Order) -> None:
    assert check_rows(case, order, QUICK_COUNTS) > case.rows


@pytest.mark.slow
@pytest.mark.parametrize("case", MANY_ROWS, ids=lambda case: case.name)
def test_a_rows_bits_are_its_own_at_every_row_count(case: RowCase) -> None:
    for order in WIDE_ORDERS:
        assert check_rows(case, order, COUNTS) > case.rows


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.sum)
@pytest.mark.parametrize("case", QUICK_WINDOWS, ids=lambda case: case.name)
@pytest.mark.slow
def test_a_row_of_a_tree_equals_the_same_path_step_by_step(case: WindowCase, order: Order) -> None:
    assert check_window(case, order, TREE) == 2 * len(TREE)


@pytest.mark.slow
@pytest.mark.parametrize("case", QUICK_WINDOWS, ids=lambda case: case.name)
def test_a_row_of_a_chain_equals_its_step(case: WindowCase) -> None:
    for order in WIDE_ORDERS:
        assert check_window(case, order, chain(case.rows)) == 2 * case.rows
