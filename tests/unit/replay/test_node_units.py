"""What is read of a node in codes."""

import pytest

from qdebug.replay.node_units import _narrowed


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((0.0, None), (-1.0, 6.0), (0.0, 6.0)),
        ((-1.0, 8.0), (0.0, 6.0), (0.0, 6.0)),
        ((None, 3.0), (None, 5.0), (None, 3.0)),
        ((None, None), (None, None), (None, None)),
    ],
)
def test_of_two_activations_in_a_row_the_narrower_bounds_hold(first, second, expected):
    assert _narrowed(first, second) == _narrowed(second, first) == expected
