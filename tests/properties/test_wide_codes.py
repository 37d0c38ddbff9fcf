"""Codes of 32 and 64 bits against exact arithmetic: no difference is lost, and steps are whole numbers."""

from __future__ import annotations

from fractions import Fraction
from unittest.mock import patch

import numpy as np
import pytest
from draws import to_float
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.model import QuantParams
from qdebug.numerics import accumulate
from qdebug.numerics.accumulate import ErrorAccumulator
from qdebug.numerics.affine import dequantize
from qdebug.numerics.agreement import count_agreement
from qdebug.numerics.blocks import RealBlocks
from qdebug.numerics.stats import ErrorStats
from qdebug.numerics.worst import worst_elements

EXAMPLES = drawn(60)
WIDE = ["int32", "uint32", "int64", "uint64"]
NARROW = ["int8", "uint8", "int16", "uint16"]


@st.composite
def codes_of(draw: st.DrawFn, dtype: str, size: int) -> list[int]:
    """Draw codes anywhere, most of them beside an end of the dtype or a power of two."""
    info = np.iinfo(dtype)
    marks = [0, 2**24, 2**31, 2**32, 2**53, 2**62, 2**63, int(info.min), int(info.max)]
    marks += [-mark for mark in marks]
    beside = st.builds(int.__add__, st.sampled_from(marks), st.integers(-3, 3))
    code = st.one_of(beside, st.integers(int(info.min), int(info.max)))
    return [min(max(draw(code), int(info.min)), int(info.max)) for _ in range(size)]


@st.composite
def quants_of(draw: st.DrawFn, dtype: str, scales: np.ndarray) -> QuantParams:
    zero_point = draw(st.sampled_from([0, 0, 1, -7, *([2**31, -(2**62)] if dtype in WIDE else [])]))
    return QuantParams(dtype=dtype, scale=scales, zero_point=zero_point, axis=0 if scales.size > 1 else None)


@st.composite
def scales_of(draw: st.DrawFn, channels: int) -> np.ndarray:
    single = draw(st.booleans())
    size = channels if draw(st.booleans()) else 1
    scale = st.floats(2.0**-40, 2.0**40, width=32 if single else 64)
    return np.array([draw(scale) for _ in range(size)], np.float32 if single else np.float64)


@st.composite
def pairs(draw: st.DrawFn, dtypes: list[str]) -> tuple[tuple[np.ndarray, QuantParams], tuple[np.ndarray, QuantParams]]:
    """Draw two tensors of codes of one shape and of the same scales."""
    shape = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    scales = draw(scales_of(shape[0]))
    first, second = draw(st.sampled_from(WIDE)), draw(st.sampled_from(dtypes))
    a = draw(codes_of(first, shape[0] * shape[1]))
    b = draw(codes_of(second, len(a)))
    info = np.iinfo(second)
    for place, code in enumerate(a):  # mostly the code of the other side, or one near to it
        if draw(st.booleans()):
            b[place] = min(max(code + draw(st.integers(-1, 1)), int(info.min)), int(info.max))
    sides = (np.array(a, first).reshape(shape), first), (np.array(b, second).reshape(shape), second)
    one, other = ((codes, draw(quants_of(dtype, scales))) for codes, dtype in sides)
    return one, other


def centred(codes: np.ndarray, quant: QuantParams) -> list[int]:
    return [int(code) - int(quant.zero_point[0]) for code in codes.flat]


def lsb_of(quant: QuantParams, shape: tuple[int, ...]) -> list[Fraction]:
    scales = np.broadcast_to(quant.scale.reshape(-1, 1), shape)
    return [Fraction(float(scale)) for scale in scales.flat]


def stats_of(a: np.ndarray, b: np.ndarray, first: object, second: object, block: int) -> ErrorStats:
    with patch.object(accumulate, "BLOCK", block):
        accumulator = ErrorAccumulator(reference_quant=first, backend_quant=second)
        accumulator.update(a, b, sample=0)
    return accumulator.stats()


BLOCKS = st.sampled_from([1, 3, accumulate.BLOCK])


@EXAMPLES
@given(pair=pairs([*WIDE, *NARROW]), block=BLOCKS)
def test_codes_of_one_scale_are_as_many_steps_apart_as_they_are(pair: tuple, block: int) -> None:
    (a, first), (b, second) = pair
    stats = stats_of(a, b, first, second, block)
    apart = [y - x for x, y in zip(centred(a, first), centred(b, second), strict=True)]
    steps = lsb_of(second, b.shape)
    assert stats.mismatches == sum(d != 0 for d in apart)
    most = max(map(abs, apart))
    assert stats.max_lsb == pytest.approx(float(most), rel=0 if most < 2**50 else 2.0**-50)
    errors = [abs(d) * s for d, s in zip(apart, steps, strict=True)]
    slack = 0 if second.scale.dtype == np.float32 else 2.0**-22
    assert stats.max_abs == pytest.approx(to_float(max(errors)), rel=max(slack, 2.0**-52))
    worst = errors.index(max(errors))
    assert errors[int(np.ravel_multi_index(stats.worst_index, b.shape))] >= errors[worst] * Fraction(1 - 2.0**-21)
    found = worst_elements(a, b, reference_quant=first, backend_quant=second, k=a.size)
    assert len(found) == stats.mismatches
    for element in found:
        place = int(np.ravel_multi_index(element.index, b.shape))
        assert element.lsb == pytest.approx(apart[place], rel=0 if abs(apart[place]) < 2**50 else 2.0**-50)
        assert (element.reference_code, element.backend_code) == (int(a.flat[place]), int(b.flat[place]))


@EXAMPLES
@given(pair=pairs(WIDE), other=st.floats(2.0**-20, 2.0**20, width=32), block=BLOCKS)
def test_codes_of_two_scales_differ_where_their_numbers_do(pair: tuple, other: float, block: int) -> None:
    (a, first), (b, second) = pair
    first = QuantParams(dtype=first.dtype, scale=np.float32(other), zero_point=first.zero_point[0])
    if second.scale.dtype != np.float32:  # its real values are not exact
        second = QuantParams(dtype=second.dtype, scale=np.float32(0.75), zero_point=second.zero_point[0])
    steps = [lsb_of(quant, a.shape) for quant in (first, second)]
    ours = [s * x for s, x in zip(steps[0], centred(a, first), strict=True)]
    theirs = [s * x for s, x in zip(steps[1], centred(b, second), strict=True)]
    errors = [abs(y - x) for x, y in zip(ours, theirs, strict=True)]
    stats = stats_of(a, b, first, second, block)
    assert stats.mismatches == sum(e != 0 for e in errors)
    assert stats.max_abs == pytest.approx(to_float(max(errors)), rel=2.0**-50)
    assert stats.reference_max == float(max(ours))
    assert stats.backend_min == float(min(theirs))


@EXAMPLES
@given(pair=pairs(WIDE), float_type=st.sampled_from(["float32", "float64"]), block=BLOCKS)
def test_dequantized_values_equal_their_codes(pair: tuple, float_type: str, block: int) -> None:
    _, (codes, quant) = pair
    real = dequantize(codes, quant, double=float_type == "float64")
    assert real.dtype == float_type
    assert stats_of(real, codes, None, quant, block).mismatches == 0
    assert stats_of(codes, real, quant, None, block).mismatches == 0
    if quant.scale.dtype == np.float32 and float_type == "float64":
        exact = [float(s * x) for s, x in zip(lsb_of(quant, codes.shape), centred(codes, quant), strict=True)]
        assert real.reshape(-1).tolist() == exact


@EXAMPLES
@given(pair=pairs([*WIDE, *NARROW]), data=st.data())
def test_backends_agree_where_their_codes_do(pair: tuple, data: st.DataObject) -> None:
    (a, first), (b, second) = pair
    moved = np.array(data.draw(st.lists(st.booleans(), min_size=b.size, max_size=b.size))).reshape(b.shape)
    third = np.where(moved & (b != np.iinfo(b.dtype).max), b + np.array(1, b.dtype), b)
    sides = [RealBlocks(codes, quant) for codes, quant in ((a, first), (b, second), (third, second))]
    found = count_agreement([(sides[0], sides[1]), (sides[0], sides[2])])
    ours, theirs, others = centred(a, first), centred(b, second), centred(third, second)
    differ = [(y, z) for x, y, z in zip(ours, theirs, others, strict=True) if x not in (y, z)]
    assert (found.elements, found.differ, found.same) == (a.size, len(differ), sum(y == z for y, z in differ))
