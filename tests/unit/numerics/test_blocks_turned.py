"""Stretches of an array whose dimensions were turned are those of its copy in C order."""

import ml_dtypes
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from qdebug.numerics.blocks import StridedFlat


@given(hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=5), st.data())
def test_a_stretch_is_that_of_a_copy(shape, data):
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    values = values.transpose(data.draw(st.permutations(range(values.ndim))))
    flat, copied = StridedFlat(values), np.ravel(values)
    for _ in range(3):
        start = data.draw(st.integers(0, copied.size))
        stop = data.draw(st.integers(start, copied.size + 2))
        assert flat[start:stop].tolist() == copied[start:stop].tolist()
        assert flat[start:stop].tolist() == copied[start:stop].tolist(), "the same once more"


def test_any_type_is_read():
    values = np.arange(8).reshape(2, 4).T.astype(ml_dtypes.int4, order="K")
    assert not values.flags.c_contiguous
    assert StridedFlat(values)[1:5].dtype == ml_dtypes.int4
    assert StridedFlat(values)[1:5].astype(int).tolist() == [4, 1, 5, 2]
