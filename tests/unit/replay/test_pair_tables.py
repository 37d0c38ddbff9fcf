"""A table of pairs of codes gives the bits of the computation, and other units have none."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.replay.evaluate import accumulate, compute, finish
from qdebug.replay.pair_tables import pair_table
from qdebug.replay.unit import PAIRS, Operand, Target, Unit
from qdebug.replay.variant import Arithmetic

LARGE = (2, 8, 24, 32)
SHAPES = ((LARGE, LARGE), (LARGE, (1,)), ((8, 1, 1), LARGE), (LARGE, (2, 8, 1, 1)))


def operand(shape, dtype, seed, scale=0.03):
    info = np.iinfo(dtype)
    codes = np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)
    return Operand(codes=codes, scale=np.float32(scale), zero_point=np.asarray(seed % 7, dtype))


def unit_of(kind, shapes, dtypes, out=np.uint8):
    operands = tuple(operand(shape, dtype, at) for at, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True)))
    target = Target(dtype=np.dtype(out), scale=np.float32(0.05), zero_point=np.asarray(3, out))
    return Unit(kind=kind, operands=operands, out=target, op=kind)


def computed(unit, variant):
    columns = accumulate(unit, variant.sums)
    return finish(unit, columns, variant).reshape(columns.shape)


def untouched(unit, variant):
    raise AssertionError("no table is computed")


@given(
    kind=st.sampled_from(PAIRS),
    shapes=st.sampled_from(SHAPES),
    dtypes=st.tuples(*[st.sampled_from([np.uint8, np.int8])] * 2),
    out=st.sampled_from([np.uint8, np.int8, np.int16]),
)
def test_a_table_gives_the_bits_of_the_computation(kind, shapes, dtypes, out):
    unit = unit_of(kind, shapes, dtypes, out)
    variant = Arithmetic().variant(unit)
    table = pair_table(unit, variant, computed)
    assert table.shape == (65536,)
    assert table.dtype == unit.out.dtype
    np.testing.assert_array_equal(compute(unit, variant), computed(unit, variant))


def test_operators_that_differ_in_a_scale_have_tables_of_their_own():
    unit = unit_of("mul", (LARGE, LARGE), (np.uint8, np.uint8))
    other = replace(unit, operands=(replace(unit.operands[0], scale=np.float32(0.07)), unit.operands[1]))
    variant = Arithmetic().variant(unit)
    assert np.any(compute(unit, variant) != compute(other, variant))
    np.testing.assert_array_equal(compute(other, variant), computed(other, variant))


def test_channels_last_come_out_last():
    unit = unit_of("add", (LARGE, LARGE), (np.uint8, np.int8))
    variant = Arithmetic().variant(unit)
    last = compute(replace(unit, channels_last=True), variant)
    np.testing.assert_array_equal(last, np.moveaxis(computed(unit, variant), 1, -1))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "lookup"},
        {"operands": (operand(LARGE, np.uint8, 0), operand(LARGE, np.int16, 1))},
        {"operands": (operand(LARGE, np.uint8, 0), operand(LARGE, np.uint8, 1, np.full((8, 1, 1), 0.1, np.float32)))},
        {"operands": (operand((64,), np.uint8, 0), operand((64,), np.uint8, 1))},
        {"bias": np.zeros((), np.int32)},
    ],
    ids=["another kind", "16 bits", "scales of channels", "few elements", "a bias"],
)
def test_others_have_no_table(change):
    unit = unit_of("add", (LARGE, LARGE), (np.uint8, np.uint8))
    assert pair_table(replace(unit, **change), Arithmetic().variant(unit), untouched) is None
