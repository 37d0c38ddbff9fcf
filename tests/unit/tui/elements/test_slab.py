"""Elements in memory: where they are in their tensor, how far apart the sides are, and the map of a plane of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from qdebug.compare.measure.pair_values import OpenPair
from qdebug.model import QuantParams
from qdebug.tui.elements.slab import Slab, differences, plane_size, slab_of


def whole(reference, backend, quant=None):
    return Slab(
        reference=reference,
        backend=backend,
        reference_codes=None,
        backend_codes=None,
        quant=quant,
        reference_quant=None,
        axis=OpenPair(reference, backend, (None, quant)).axis,
        largest=1.0,
        start=(0,) * backend.ndim,
        shape=backend.shape,
    )


def test_the_quantized_axis_counts_the_channels():
    quant = QuantParams(dtype="int8", scale=[0.5, 0.25], zero_point=[0, 0], axis=-1)
    slab = whole(np.zeros((3, 2)), np.ones((3, 2)), quant)
    assert slab.axis == 1
    assert slab.difference_in_lsb((0, 0)) == 2
    assert slab.difference_in_lsb((0, 1)) == 4
    assert whole(np.zeros(3), np.zeros(3)).difference_in_lsb((1,)) is None


@given(hnp.array_shapes(min_dims=0, max_dims=4, min_side=1, max_side=7), st.integers(1, 4), st.integers(1, 4))
def test_a_plane_that_is_here_is_drawn_of_it_and_no_other_is(shape, rows, columns):
    values = np.random.default_rng(rows).standard_normal((2, *shape))
    element = tuple(size - 1 for size in shape)
    part = slab_of(OpenPair(*values).window(element, (rows, columns)))
    there = plane_size(shape) <= plane_size(part.backend.shape)
    assert part.has_plane(element) is there
    if there:
        drawn = part.plane(element)
        assert drawn.shape == plane_size(shape)
        assert (drawn == np.abs(values[1] - values[0])[element[:-2]].reshape(drawn.shape)).all()
    if part.is_partial and len(shape) > 2 and element[0]:
        assert not part.has_plane((0, *element[1:])), "it is another one"


def test_a_small_tensor_comes_whole_wherever_one_looks():
    values = np.arange(24.0).reshape(2, 3, 4)
    for element in (None, (0, 0, 0), (1, 2, 3)):
        part = slab_of(OpenPair(values, values + 1).window(element, (4, 6)))
        assert (part.is_partial, part.start) == (False, (0, 0, 0))
        assert (part.backend == values + 1).all()
        assert not np.shares_memory(part.reference, values)
    assert slab_of(OpenPair(values, values).window(None, (4, 5))).is_partial


def test_a_part_has_the_indices_of_the_whole_tensor():
    quant = QuantParams(dtype="int8", scale=np.array([0.5, 0.25, 2.0]), zero_point=[0, 0, 0], axis=1)
    codes = np.zeros((2, 3, 40, 5), np.int8)
    codes[1, 2, 11, 3] = 2
    part = slab_of(OpenPair(np.zeros(codes.shape, np.float32), codes, (None, quant)).window((1, 2, 12, 0), (4, 5)))
    assert (part.start, part.backend.shape) == ((1, 2, 10, 0), (1, 1, 4, 5))
    assert part.shape == (2, 3, 40, 5)
    assert part.largest == 4
    assert part.local_index((1, 2, 11, 3)) == (0, 0, 1, 3)
    for outside in ((1, 2, 9, 3), (1, 2, 14, 3), (0, 2, 11, 3)):
        assert part.local_index(outside) is None
        assert not part.covers_surroundings(outside, 0)
    assert part.scale_at((0, 0, 1, 3)) == 2.0, "that of the tensor's third channel"
    assert part.difference_in_lsb((0, 0, 1, 3)) == 2.0
    assert part.backend_codes[0, 0, 1, 3] == 2


def test_a_window_is_enough_until_its_edge_comes_near():
    zeros = np.zeros((10, 100, 100), np.float32)
    part = slab_of(OpenPair(zeros, zeros).window((4, 50, 2), (20, 20)))
    assert part.start == (4, 40, 0)
    assert part.covers_surroundings((4, 50, 2), 5)
    assert part.covers_surroundings((4, 45, 0), 5), "the tensor begins there"
    assert not part.covers_surroundings((4, 44, 0), 5)
    assert not part.covers_surroundings((4, 50, 15), 5)
    assert not part.covers_surroundings((5, 50, 2), 5)


@pytest.mark.parametrize("dtype", [np.float16, "bfloat16", np.int64, np.bool_, np.float64])
def test_differences_are_of_real_numbers_of_any_type(dtype):
    import ml_dtypes

    dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    ours = np.array([1, 0, 1]).astype(dtype)
    assert differences(np.zeros(3, dtype), ours).tolist() == [1, 0, 1]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_what_is_not_finite_on_both_sides_alike_is_no_difference(dtype):
    reference = np.array([np.nan, np.inf, -np.inf, np.inf, np.nan, 1.0], dtype)
    backend = np.array([np.nan, np.inf, -np.inf, -np.inf, 1.0, 3.0], dtype)
    apart = differences(reference, backend)
    assert apart[[0, 1, 2, 5]].tolist() == [0, 0, 0, 2]
    assert apart[3] == -np.inf
    assert np.isnan(apart[4])
    assert whole(reference, backend).difference((0,)) == 0


def test_the_code_that_a_value_of_the_reference_would_have():
    quant = QuantParams(dtype="int8", scale=np.float32([0.1, 0.5]), zero_point=np.int8([0, 10]), axis=0)
    reference = np.float32([[0.26, 40.0, np.nan], [-1.3, 0.0, -99.0]])
    backend = np.zeros((2, 3), np.int8)
    slab = slab_of(OpenPair(reference, backend, (None, quant)).window(None, (2, 3)))
    found = [[slab.code_of_reference((row, column)) for column in range(3)] for row in range(2)]
    assert found == [[3, 400, None], [7, 10, -188]], "whatever the codes can hold"
