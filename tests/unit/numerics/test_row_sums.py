"""Sums of products by rows."""

import numpy as np
import pytest

from qdebug.numerics.row_sums import ROW, row_dots

F32 = np.float32


@pytest.mark.parametrize("size", [1, ROW - 1, ROW, ROW + 1, 3 * ROW, 5 * ROW + 17])
@pytest.mark.parametrize("dtype", [F32, np.float64])
def test_rows_and_rest_are_summed_once(size, dtype):
    values = np.arange(1, size + 1).astype(dtype) % 7
    ones = np.ones(ROW, dtype)
    squares, total = row_dots(((values, values), (values, ones)), np.empty((2, size // ROW + 1), dtype))
    assert squares == float((values.astype(np.int64) ** 2).sum())
    assert total == float(values.astype(np.int64).sum())


@pytest.mark.parametrize("size", [1, ROW, 2 * ROW + 3])
def test_two_arrays_are_multiplied_with_each_other(size):
    first, second = np.arange(size, dtype=F32) % 5, np.arange(size, dtype=F32) % 3
    (total,) = row_dots(((first, second),), np.empty((1, size // ROW + 1), F32))
    assert total == sum(i % 5 * (i % 3) for i in range(size))


def test_rows_of_a_constant_keep_what_one_long_float32_sum_would_lose():
    values = np.full(128 * ROW, 0.1, F32)
    (total,) = row_dots(((values, np.ones(ROW, F32)),), np.empty((1, 128), F32))
    exact = float(F32(0.1)) * values.size
    assert abs(total - exact) <= 4 * np.spacing(F32(exact))
