"""Every Metal kernel, under each order of what Metal leaves open: right values, and a row's bits its own."""

from __future__ import annotations

import pytest

from tests.emulator.orders import ORDERS, Order
from tests.kernels.metal import products, rowwise, windowed
from tests.kernels.metal.case import QUICK_COUNTS, TREE, RowCase, WindowCase, check_rows, check_window

QUICK_ROWS = [*products.quick(), *rowwise.quick()]
QUICK_WINDOWS = list(windowed.quick())


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.sum)
@pytest.mark.parametrize("case", QUICK_ROWS, ids=lambda case: case.name)
def test_a_rows_bits_are_its_own_in_any_company(case: RowCase, order: Order) -> None:
    assert check_rows(case, order, QUICK_COUNTS) > case.rows


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.sum)
@pytest.mark.parametrize("case", QUICK_WINDOWS, ids=lambda case: case.name)
def test_a_row_of_a_tree_equals_the_same_path_step_by_step(case: WindowCase, order: Order) -> None:
    assert check_window(case, order, TREE) == 2 * len(TREE)
