"""The elements with the largest differences."""

import math

import ml_dtypes
import numpy as np
import pytest

from qdebug.errors import UsageError
from qdebug.model import QuantParams
from qdebug.numerics.accumulate import ErrorAccumulator
from qdebug.numerics.affine import BLOCK
from qdebug.numerics.blocks import RealBlocks
from qdebug.numerics.lsb import LsbSizes
from qdebug.numerics.tally import Block
from qdebug.numerics.worst import WorstCollector, worst_elements

F32 = np.float32


def test_the_largest_come_first_and_equals_in_order_of_index():
    a, b = np.zeros((2, 3), F32), F32([[1, -3, 0], [3, 2, 0]])
    found = worst_elements(a, b, k=3)
    assert [element.index for element in found] == [(0, 1), (1, 0), (1, 1)]
    assert [element.difference for element in found] == [-3.0, 3.0, 2.0]


def test_elements_that_agree_are_not_listed():
    values = F32([1.0, math.nan, math.inf, 0.0])
    assert worst_elements(values, values.copy()) == ()
    assert worst_elements(F32([0.0]), F32([-0.0])) == ()
    assert worst_elements(np.zeros(0), np.zeros(0)) == ()
    assert worst_elements(F32([0.0]), F32([1.0]), k=0) == ()


def test_disagreement_over_what_is_not_finite_is_worse_than_any_number():
    a, b = np.array([0.0, -1.5e308, 1.0, math.inf]), np.array([1.0, 1.5e308, math.nan, -math.inf])
    found = worst_elements(a, b)
    assert [element.index for element in found] == [(2,), (3,), (1,), (0,)]
    assert math.isnan(found[0].difference)
    assert found[1].difference == -math.inf


def test_codes_and_steps_are_given_where_there_are_some():
    quant = QuantParams(dtype="int8", scale=F32(0.1), zero_point=2)
    found = worst_elements(F32([0.0, 1.0]), np.int8([2, 7]), backend_quant=quant, sample=4)
    assert len(found) == 1
    element = found[0]
    assert (element.reference_code, element.backend_code, element.sample) == (None, 7, 4)
    assert element.lsb == pytest.approx(-5.0)
    assert element.backend == float(F32(0.5))
    both = worst_elements(np.int8([2, 9]), np.int8([2, 7]), reference_quant=quant, backend_quant=quant)[0]
    assert (both.reference_code, both.backend_code, both.lsb) == (9, 7, -2.0)


def test_steps_of_a_channel():
    quant = QuantParams(dtype="int8", scale=F32([0.5, 2.0]), axis=0)
    found = worst_elements(np.zeros((2, 1), F32), np.int8([[4], [3]]), backend_quant=quant)
    assert [(element.index, element.lsb) for element in found] == [((1, 0), 3.0), ((0, 0), 4.0)]


def test_clamps_are_applied_first():
    found = worst_elements(F32([-5.0, 9.0]), F32([0.0, 8.0]), clamps=((0.0, None), (None, None)))
    assert [element.index for element in found] == [(1,)]


def test_the_best_of_many_blocks_are_found():
    generator = np.random.default_rng(0)
    a = generator.standard_normal(5 * BLOCK + 3).astype(F32)
    b = a + generator.standard_normal(a.size).astype(F32)
    difference = np.abs(b.astype(np.float64) - a)
    found = worst_elements(a, b, k=50)
    expected = np.argsort(-difference, kind="stable")[:50]
    assert [element.index[0] for element in found] == expected.tolist()
    accumulator = ErrorAccumulator()
    accumulator.update(a, b, sample=0)
    assert accumulator.stats().worst_index == found[0].index


def test_wide_integers_keep_their_difference():
    found = worst_elements(np.int64([2**53, 2**63 - 1]), np.int64([2**53 + 1, 2**63 - 1]))
    assert [(element.index, element.difference) for element in found] == [((0,), 1.0)]


def test_indices_are_in_the_backends_shape():
    assert worst_elements(np.zeros((1, 2, 1)), np.array([[0.0, 1.0]]))[0].index == (0, 1)
    with pytest.raises(UsageError, match="shape"):
        worst_elements(np.zeros(2), np.zeros(3))


def test_a_code_that_is_no_whole_number_is_none():
    quant = QuantParams(dtype="float8_e4m3fn", scale=F32(2.0))
    codes = np.array([0.5, 3.0]).astype(ml_dtypes.float8_e4m3fn)
    found = worst_elements(F32([0.0, 0.0]), codes, backend_quant=quant)
    assert [(element.backend, element.backend_code) for element in found] == [(6.0, 3), (1.0, None)]


def test_codes_beyond_float64_are_kept():
    quant = QuantParams(dtype="uint64", scale=F32(1.0))
    found = worst_elements(F32([0.0]), np.uint64([2**64 - 1]), backend_quant=quant)
    assert found[0].backend_code == 2**64 - 1


def test_of_many_equals_the_first_are_listed():
    generator = np.random.default_rng(0)
    b = generator.integers(-1, 2, 2 * BLOCK).astype(np.int8)
    found = worst_elements(np.zeros_like(b), b, k=9)
    assert [element.index[0] for element in found] == np.flatnonzero(b)[:9].tolist()


@pytest.mark.parametrize("k", [1, 20, 255, 300])
@pytest.mark.parametrize("kind", ["continuous", "few values", "one value", "few elements", "one column"])
def test_the_largest_of_a_block_are_found_whatever_their_values(kind, k):
    generator = np.random.default_rng(k)
    b = {
        "continuous": generator.standard_normal(5000),
        "few values": generator.integers(0, 4, 5000),
        "one value": np.full(5000, 2.0),
        "few elements": np.where(generator.random(5000) < 0.01, 3.0, 0.0),
        "one column": np.where(np.arange(5000) % 256 == 7, np.arange(5000), 0.5),
    }[kind].astype(F32)
    expected = [place for place in np.argsort(-np.abs(b), kind="stable")[:k].tolist() if b[place]]
    assert [element.index[0] for element in worst_elements(np.zeros_like(b), b, k=k)] == expected


def test_steps_of_blocks_of_a_scale():
    quant = QuantParams(dtype="int8", scale=np.float32([[0.5], [2.0], [4.0]]).T, axis=1, block_size=2)
    found = worst_elements(np.zeros((1, 5), F32), np.int8([[1, 2, 3, 4, 5]]), backend_quant=quant)
    assert {element.index[1]: element.lsb for element in found} == {0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0, 4: 5.0}


def test_tensors_of_several_samples_and_steps():
    keeper = WorstCollector(3)
    for sample, step, values in ((0, 0, [1, 5]), (0, 1, [7, 0]), (2, 0, [5, 6])):
        sides = RealBlocks(np.zeros(2)), RealBlocks(np.float64(values))
        keeper.start(sides, LsbSizes(None, (2,)), sample, step)
        block = Block(reference=np.zeros(2), backend=np.float64(values), start=0, lsb=LsbSizes(None, ()))
        keeper.add(block, np.float64(values))
    assert [(e.sample, e.step, e.index, e.backend) for e in keeper.worst_so_far().elements()] == [
        (0, 1, (0,), 7.0),
        (2, 0, (1,), 6.0),
        (0, 0, (1,), 5.0),
    ]


def test_a_tensor_must_be_begun_with():
    block = Block(reference=np.zeros(1), backend=np.ones(1), start=0, lsb=LsbSizes(None, ()))
    with pytest.raises(UsageError, match="No tensor was started"):
        WorstCollector(1).add(block, np.ones(1))


def test_values_of_integer_tensors_are_integers():
    (found,) = worst_elements(np.int64([3, 2**53]), np.int64([3, 2**53 + 1]))
    assert (found.reference, found.backend, found.difference) == (2**53, 2**53 + 1, 1.0)
    (mixed,) = worst_elements(np.array([True]), np.float32([0.5]))
    assert (mixed.reference, mixed.backend, type(mixed.reference)) == (1, 0.5, int)


@pytest.mark.parametrize(("axis", "steps"), [(0, (3.0, 0.0)), (1, (3.0, 10 * (0.7 - 0.3) / 0.7))])
def test_codes_of_the_same_scales_along_another_axis_differ_by_fractions_of_a_step(axis, steps):
    scales = F32([0.3, 0.7])
    ours, theirs = (QuantParams(dtype="int8", scale=scales, axis=way) for way in (0, axis))
    first, second = np.int8([[100, 10], [0, 0]]), np.int8([[103, 10], [0, 0]])
    found = worst_elements(first, second, reference_quant=ours, backend_quant=theirs)
    said = {element.index: element.lsb for element in found}
    assert said[0, 0] == steps[0]
    assert said.get((0, 1), 0.0) == pytest.approx(steps[1], rel=1e-6)
