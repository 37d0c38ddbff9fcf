"""Whatever a float32 kernel does between two roundings lies in the interval, and exact results are a single number."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.numerics.intervals import Interval

SINGLES = st.lists(st.floats(-1e6, 1e6, width=32), min_size=3, max_size=3)


def contains(interval, values):
    return np.all((interval.low <= values) & (values <= interval.high))


@given(a=SINGLES, b=SINGLES, c=SINGLES)
def test_fused_and_unfused_multiply_adds_are_inside(a, b, c):
    x, y, z = (np.float32(each) for each in (a, b, c))
    interval = Interval.exactly(x).times(Interval.exactly(y)).plus(Interval.exactly(z))
    with np.errstate(all="ignore"):
        assert contains(interval, x * y + z)
        assert contains(interval, (x.astype(np.float64) * y + z).astype(np.float32))


def test_an_exact_sum_is_one_number_and_an_inexact_one_is_not():
    ones = Interval.exactly(np.float32([1, 1]))
    total = ones.plus(Interval.exactly(np.float32([2.0**-23, 2.0**-40])))
    np.testing.assert_array_equal(total.decided, [True, False])
    assert total.low[1] == 1
    assert total.high[1] == 1 + 2.0**-23


@pytest.mark.parametrize("count", [16, 1024, 4096])
def test_sums_in_any_order_are_inside(count):
    rng = np.random.default_rng(count)
    values = rng.standard_normal((64, count)).astype(np.float32)
    for terms in (values, values * values):
        interval = Interval.exactly(terms).total((1,))
        in_order = np.add.accumulate(terms, axis=1)[:, -1:]
        blocks = terms.reshape(64, 16, -1).sum(axis=2, dtype=np.float32).sum(axis=1, keepdims=True, dtype=np.float32)
        for made in (in_order, blocks, np.add.accumulate(terms[:, ::-1], axis=1)[:, -1:]):
            assert contains(interval, made)


def test_functions_are_inside_in_whatever_direction_they_go():
    x = np.random.default_rng(0).uniform(0.1, 5, 1000).astype(np.float32)
    wide = Interval.exactly(x).blurred(1)
    for function in (np.exp, np.tanh, np.reciprocal, lambda values: 1 / np.sqrt(values)):
        assert contains(wide.through(function), function(x))
    assert contains(wide.over(Interval.exactly(x)), x * (np.float32(1) / x))
