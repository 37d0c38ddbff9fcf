"""What is read of a node in codes."""

import numpy as np
import pytest

from qdebug.model import Node, QuantParams
from qdebug.replay.node_units import Coded, _intersect_bounds, unit_of_codes


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
    assert _intersect_bounds(first, second) == _intersect_bounds(second, first) == expected


@pytest.mark.parametrize("step", [1e-10, 1.0, 1e6])
@pytest.mark.parametrize(("zero", "codes"), [(12.0, True), (12.5, False), (12.01, False), (0.0, True)])
def test_a_range_in_which_0_is_no_code_is_no_quantization_however_small_it_is(step, zero, codes):
    low, high = np.float32(-zero * step), np.float32((255 - zero) * step)
    node = Node(name="n", op="FakeQuantize", inputs=("x", "a", "b", "c", "d"), outputs=("y",), attrs={"levels": 256})
    given = [np.zeros(4, np.float32), low, high, np.float32(-128), np.float32(127)]
    coded = [Coded(values=np.asarray(array), quant=None) for array in given]
    unit = unit_of_codes(node, coded, QuantParams(dtype="int8", scale=1.0))
    assert (unit is not None) == codes
    if unit is not None:
        assert int(unit.out.zero_point) == zero - 128
