"""Small tensors in a row."""

import numpy as np
import pytest

from qdebug.model import QuantParams
from qdebug.numerics.affine import BLOCK
from qdebug.numerics.blocks import RealBlocks, scratch
from qdebug.numerics.lsb import LsbSizes
from qdebug.numerics.profile import SmallTensors

QUANT = QuantParams(dtype="int8", scale=np.float32([0.5, 2.0]), axis=0)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_values_follow_one_another_as_real_values(count):
    row = SmallTensors((2, 2), LsbSizes(None, (2, 2)))
    for k in range(count):
        codes = np.int8([[k, 1], [2, 3]])
        row.add((RealBlocks(codes.astype(np.float32)), RealBlocks(codes, QUANT)), sample=k, step=0)
    reference, backend = row.read(scratch())
    assert reference.tolist() == [x for k in range(count) for x in (k, 1.0, 2.0, 3.0)]
    assert backend.tolist() == [x for k in range(count) for x in (k * 0.5, 0.5, 4.0, 6.0)]
    assert row.places == [(k, 0) for k in range(count)]


def test_a_row_is_of_one_shape_and_no_longer_than_a_block():
    row = SmallTensors((BLOCK // 2,), LsbSizes(None, (BLOCK // 2,)))
    sides = RealBlocks(np.zeros(BLOCK // 2, np.float32)), RealBlocks(np.zeros(BLOCK // 2, np.float32))
    row.add(sides, 0, 0)
    assert row.has_room_for((BLOCK // 2,))
    assert not row.has_room_for((2, BLOCK // 4))
    row.add(sides, 1, 0)
    assert not row.has_room_for((BLOCK // 2,))
