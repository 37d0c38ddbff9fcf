"""Recorded multipliers: read in the way that the scales confirm, and used by programs that ask for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qdebug.arithmetic.candidates import _has_fixed_point_scales, candidates, given_ratio, given_variants
from qdebug.arithmetic.canonical import canonical
from qdebug.arithmetic.search import _integer_programs
from qdebug.model.thresholds.explanation import FIXED_POINT_MIN_SCALE
from qdebug.numerics.fixedpoint import quantize_multiplier
from qdebug.replay.evaluate import compute
from qdebug.replay.scaling import GIVEN, NUMBERS, Multiplier, integer_multiplier, scales_of
from qdebug.replay.unit import Operand, Target, Unit
from qdebug.replay.variant import Variant, parse_variant

X, Y = np.float32(0.0312), np.float32(0.121)
W = np.array([0.0257, 0.0031], np.float32)


def unit_of(weights, **facts):
    rng = np.random.default_rng(0)
    codes = rng.integers(-128, 128, (1, 2, 8, 8)).astype(np.int8)
    filters = rng.integers(-9, 10, (2, 2, 3, 3)).astype(np.int8)
    scale = weights.reshape(-1, 1, 1, 1) if weights.size > 1 else weights.reshape(())
    zero = np.zeros((), np.int8)
    out = Target(dtype=np.dtype(np.int8), scale=np.asarray(Y), zero_point=np.asarray(3, np.int8), **facts)
    operands = (
        Operand(codes=codes, scale=np.asarray(X), zero_point=zero),
        Operand(codes=filters, scale=scale, zero_point=zero),
    )
    return Unit(kind="conv", operands=operands, out=out, op="Conv")


def integers(weights, bits=31):
    return quantize_multiplier(np.float64(X) * weights.astype(np.float64) / np.float64(Y), bits=bits)


READINGS = {
    "one shift": lambda m, e, bits: {"multiplier": m, "shift": bits - e},
    "a fraction and a shift right": lambda m, e, bits: {"multiplier": m, "shift": -e},
    "a fraction and a shift left": lambda m, e, bits: {"multiplier": m, "shift": e},
    "no shift": lambda m, e, bits: {"multiplier": m},
}


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("weights", [W[:1], W], ids=["tensor", "channel"])
@pytest.mark.parametrize("bits", [31, 15])
def test_the_scales_tell_what_is_meant(reading, weights, bits):
    unit = unit_of(weights, **READINGS[reading](*integers(weights, bits), bits))
    assert given_ratio(unit) == pytest.approx(1, abs=2.0**-14)
    ours, named = (
        compute(unit, parse_variant(f"m={number}:d:xw/y steps=mul,shr.up,zp,sat")) for number in (GIVEN, f"q{bits}")
    )
    np.testing.assert_array_equal(ours, named)


def test_a_shift_alone_is_a_power_of_two():
    unit = unit_of(W[:1], shift=np.array([7]))
    np.testing.assert_array_equal(
        compute(unit, parse_variant("m=given steps=mul,shr.up,zp,sat")),
        compute(unit, parse_variant("m=pow2 steps=shr.up,zp,sat")),
    )
    assert given_ratio(unit) == pytest.approx(2.0**-7 / (float(X) * float(W[0]) / float(Y)), rel=1e-6)


def test_integers_that_are_not_the_scales_are_used_as_they_are():
    multiplier, exponent = integers(W[:1])
    other = unit_of(W[:1], multiplier=multiplier * 5 // 4, shift=31 - exponent)
    assert given_ratio(other) == pytest.approx(1.25)
    variant = parse_variant("m=given steps=mul,shr.up,zp,sat")
    assert not np.array_equal(compute(other, variant), compute(unit_of(W[:1]), variant))


def test_without_any_it_is_the_quotient_in_31_bits():
    unit = unit_of(W[:1])
    assert given_ratio(unit) is None
    assert list(given_variants(unit)) == []
    np.testing.assert_array_equal(
        compute(unit, parse_variant("m=given steps=mul,shr.up,zp,sat")),
        compute(unit, parse_variant("m=q31:d:xw/y steps=mul,shr.up,zp,sat")),
    )


@pytest.mark.parametrize(
    "facts",
    [{"multiplier": np.array([0])}, {"multiplier": np.array([1, 2, 3]), "shift": np.array([4])}],
    ids=["zero", "three for two channels"],
)
def test_integers_that_can_be_none_are_left_aside(facts):
    unit = unit_of(W, **facts)
    assert given_ratio(unit) is None
    assert list(given_variants(unit)) == []


def test_programs_with_them_are_no_candidates_of_others():
    multiplier, exponent = integers(W[:1])
    unit = unit_of(W[:1], multiplier=multiplier, shift=-exponent)
    made = list(given_variants(unit))
    assert {variant.multiplier.number for variant in made} == {GIVEN}
    assert not set(made) & set(candidates(unit))
    assert list(given_variants(replace(unit, kind="lookup", function="Sigmoid"))) == []
    for variant in made:
        assert canonical(variant, unit).multiplier.number == GIVEN


def test_other_multipliers_are_what_they_were():
    unit = unit_of(W)
    whole = integer_multiplier(unit, scales_of(unit), Multiplier(number="q31", expression="d:xw/y"))
    np.testing.assert_array_equal(whole.multiplier.reshape(-1), integers(W)[0])
    assert Variant().multiplier.real


def test_an_integer_bias_of_another_scale_is_added_as_glow_adds_it():
    plain = replace(unit_of(W[:1]), bias=np.int32([5, -7]))
    scaled = replace(plain, bias_scale=np.float32(0.25))
    assert {variant.bias for variant in candidates(plain)} == {"int32", "float", "codes"}
    assert {variant.bias for variant in candidates(scaled)} == {"int32", "float", "glow"}
    assert {variant.bias for variant in candidates(replace(plain, bias=None))} == {"int32"}


@pytest.mark.parametrize(
    ("dtype", "scale", "out", "known"),
    [
        (np.int16, FIXED_POINT_MIN_SCALE, 2.0**-15, True),
        (np.int16, FIXED_POINT_MIN_SCALE / 2, 2.0**-15, False),
        (np.int16, 0.3, 2.0**-15, False),
        (np.int16, FIXED_POINT_MIN_SCALE, 0.3, False),
        (np.int8, 0.3, 2.0**-8, True),
        (np.int8, 0.3, 0.3, False),
    ],
)
def test_fixed_point_functions_need_powers_of_two_that_are_not_too_small(dtype, scale, out, known):
    codes = np.arange(-9, 9).astype(dtype)
    operand = Operand(codes=codes, scale=np.float32(scale), zero_point=np.zeros((), dtype))
    target = Target(dtype=np.dtype(dtype), scale=np.float32(out), zero_point=np.zeros((), dtype))
    unit = Unit(kind="lookup", operands=(operand,), out=target, function="Tanh", op="Tanh")
    assert _has_fixed_point_scales(unit) == known


def test_a_number_that_no_order_changes_is_tried_once_and_others_in_each():
    tried = {}
    for text in _integer_programs(unit_of(W)):
        number, _, expression = text.split()[0].removeprefix("m=").partition(":")
        tried.setdefault(number, set()).add(expression)
    assert GIVEN not in tried
    for number, expressions in tried.items():
        assert (len(expressions) > 1) == (NUMBERS[number].search_orders != "one"), number
