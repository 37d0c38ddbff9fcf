"""Numbers beside their limits: whoever reads both must see on which side the number is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.compare.result.finding import apart


@pytest.mark.parametrize(
    ("amount", "limit", "shown"),
    [
        (19.99, 20, "19.99"),
        (19.9999, 20, "19.9999"),
        (20, 20, "20"),
        (18.7, 20, "18.7"),
        (1.5000001, 1.5, "1.5000001"),
        (float("nan"), 20, "nan"),
        (float("-inf"), 20, "-inf"),
    ],
)
def test_a_number_is_told_apart_from_its_limit(amount, limit, shown):
    assert apart(amount, limit) == shown


@given(st.floats(min_value=1e-3, max_value=1e6), st.sampled_from([0.5, 1.0, 1.5, 10.0, 20.0]))
def test_what_is_written_is_on_the_same_side_of_the_limit(amount, limit):
    assert (float(apart(amount, limit)) < limit) == (amount < limit)
    assert (float(apart(amount, limit)) > limit) == (amount > limit)
