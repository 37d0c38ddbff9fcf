"""How far from the limit between two codes elements were rounded, whatever kind of rounding it was."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.arithmetic.evidence import _counted, _part, _wrapped, distance_to_ties, suspects
from qdebug.arithmetic.units import Units
from qdebug.replay.evaluate import accumulate
from qdebug.replay.unit import Operand, Target, Unit
from qdebug.replay.variant import Variant, parse_variant


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("", 0.5),
        ("m=q31 steps=mul,shr.up,zp,sat", 0.5),
        ("steps=mul,floor,zp,sat", 0.0),
        ("m=q31 steps=mul,shr.trunc,zp,sat", 0.0),
        ("m=q31 steps=shl,mulhi.up,shr.floor,zp,sat", 0.0),
        ("m=bf16 steps=mul,even,zp,sat", 0.5),
    ],
)
def test_it_is_where_codes_change(quantized, text, limit):
    recording = quantized.conv(text, scales=quantized.generic)
    unit = Units(recording).find(recording.graph.nodes[0], "y").unit((0, 0))
    variant = parse_variant(text)
    columns = accumulate(unit, variant.sums)
    x, w, y = (float(np.float32(scale)) for scale in quantized.generic)
    part = columns.values[0] * (x * w / y) % 1
    gap = np.abs(part - limit)
    np.testing.assert_allclose(distance_to_ties(unit, columns, variant), np.minimum(gap, 1 - gap), atol=3 / 4096)


@pytest.mark.parametrize(
    ("shape", "parts", "name"),
    [
        ((5,), 2, "sample"),
        ((1, 5), 2, "sample"),
        ((2, 5), 1, "batch row"),
        ((2, 5), 3, "sample or batch row"),
    ],
)
def test_what_samples_and_their_batches_are_called(shape, parts, name):
    assert _counted(shape, parts) == name


@pytest.mark.parametrize(
    ("codes", "zero", "expected"),
    [
        (np.int8([-100, 90]), 100, np.int8([56, -10])),
        (np.uint8([0, 200]), 0, np.int8([0, -56])),
        (np.int8([-100, 90]), 20, None),
        (np.int16([-100, 90]), 100, None),
        (np.uint16([0, 200]), 0, None),
    ],
)
def test_codes_that_less_their_zero_point_are_held_in_8_bits_wrap_around(codes, zero, expected):
    zeros = np.array(zero, codes.dtype)
    wrapped = _wrapped(Operand(codes=codes, scale=np.float32(1), zero_point=zeros))
    if expected is None:
        assert wrapped is None
    else:
        assert (wrapped.codes.tolist(), wrapped.codes.dtype, int(wrapped.zero_point)) == (expected.tolist(), np.int8, 0)


def test_a_bias_that_16_bits_hold_is_not_clipped_to_them():
    out = Target(dtype=np.dtype(np.int8), scale=np.float32(1), zero_point=np.int8(0))
    operands = (Operand(codes=np.ones((2, 2), np.int8), scale=np.float32(1), zero_point=np.int8(0)),) * 2

    def short(*bias):
        unit = Unit(kind="linear", operands=operands, out=out, bias=np.int32(bias))
        return [each.unit.bias.tolist() for each in suspects(unit) if each.name == "short bias"]

    assert short(-32768, 32767) == []
    assert short(-32769, 5) == [[-32768, 5]]
    assert short(70000, 5) == [[32767, 5]]
    assert short(-70000, 32768) == [[-32768, 32767]]


def test_sums_are_looked_at_of_products_alone():
    """Of other operators the columns hold codes, whose size says nothing of an overflow."""
    codes = np.array([[3, -7]], np.int8)
    one = Operand(codes=codes, scale=np.float32(1), zero_point=np.int8(0))
    column = Operand(codes=np.array([[2], [5]], np.int8), scale=np.float32(1), zero_point=np.int8(0))
    out = Target(dtype=np.dtype(np.int8), scale=np.float32(1), zero_point=np.int8(0))
    product = Unit(kind="linear", operands=(one, column), out=out)
    assert _part(product, np.int8([[-29]]), Variant()).sums.tolist() == [[29]]
    assert _part(Unit(kind="requantize", operands=(one,), out=out), codes, Variant()).sums is None
