"""Where several backends are wrong alike."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.errors import UsageError
from qdebug.model import QuantParams
from qdebug.numerics.affine import BLOCK
from qdebug.numerics.agreement import Agreement, count_agreement
from qdebug.numerics.blocks import RealBlocks

F32 = np.float32


def counted(reference, *backends):
    found = count_agreement([(RealBlocks(reference), RealBlocks(side)) for side in backends])
    return found.elements, found.differ, found.same


def test_equal_where_both_differ():
    assert counted(F32([0, 0, 0, 0]), F32([0, 1, 1, 1]), F32([1, 0, 1, 2])) == (4, 2, 1)
    assert counted(F32([0, 0]), F32([1, 1]), F32([1, 1]), F32([1, 0])) == (2, 1, 1)
    assert counted(np.zeros(0, F32), np.zeros(0, F32), np.zeros(0, F32)) == (0, 0, 0)


def test_not_a_number_is_a_value_like_others():
    nan = np.nan
    assert counted(F32([nan, 0, 0]), F32([nan, nan, nan]), F32([nan, nan, 1])) == (3, 2, 1)


def test_codes_are_compared_as_real_values():
    half, tenth = (QuantParams(dtype="int8", scale=F32(scale)) for scale in (0.5, 0.25))
    reference = F32([0, 0])
    pairs = [
        (RealBlocks(reference), RealBlocks(np.int8([2, 2]), half)),
        (RealBlocks(reference), RealBlocks(np.int8([4, 2]), tenth)),
    ]
    assert count_agreement(pairs) == Agreement(elements=2, differ=2, same=1)


def test_each_backend_has_a_reference_of_its_own():
    reference = F32([-1, 2])
    clamped = RealBlocks(reference, None, (0.0, None))
    plain = RealBlocks(reference)
    backend = F32([0, 3])
    assert count_agreement([(clamped, RealBlocks(backend)), (plain, RealBlocks(backend))]).differ == 1


def test_another_shape_is_refused():
    with pytest.raises(UsageError, match=r"\(2,\), but a backend has \(3,\)"):
        counted(np.zeros(2), np.zeros(2), np.zeros(3))


@given(seed=st.integers(0, 99), count=st.integers(2, 4), size=st.sampled_from([1, 7, BLOCK + 5]))
def test_it_is_what_whole_arrays_give(seed, count, size):
    generator = np.random.default_rng(seed)
    reference, *sides = (generator.integers(0, 3, size).astype(np.int8) for _ in range(count + 1))
    differ = np.logical_and.reduce([side != reference for side in sides])
    same = differ & np.logical_and.reduce([side == sides[0] for side in sides])
    assert counted(reference, *sides) == (size, np.count_nonzero(differ), np.count_nonzero(same))
    half = Agreement(elements=1, differ=2, same=3)
    assert half + half == Agreement(elements=2, differ=4, same=6)
