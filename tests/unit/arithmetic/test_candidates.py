"""Which ways of computing a unit are legitimate: what decides that one is among them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qdebug.arithmetic.candidates import any_of, candidates, parse_alternatives
from qdebug.replay.scaling import EXPRESSIONS
from qdebug.replay.unit import Operand, Target, Unit
from qdebug.replay.variant import parse_variant


def operand(shape, *, dtype=np.int8, scale=0.5, zero=3):
    return Operand(
        codes=np.zeros(shape, dtype), scale=np.asarray(scale, np.float32), zero_point=np.asarray(zero, dtype)
    )


def unit_of(kind, *operands, out=0.5, zero=3, dtype=np.int8, **facts):
    goal = Target(dtype=np.dtype(dtype), scale=np.asarray(out, np.float32), zero_point=np.asarray(zero, dtype))
    return Unit(kind=kind, operands=operands or (operand((1, 2, 4, 4)),), out=goal, **facts)


def forms(unit):
    return {variant.form for variant in candidates(unit)}


def sums(unit):
    return {variant.accumulate for variant in candidates(unit)} - {"wrap32"}


def has(unit, text):
    return parse_variant(text) in candidates(unit)


IMAGE, FILTERS = (1, 2, 4, 4), (3, 2, 3, 3)


@pytest.mark.parametrize(
    ("kind", "x", "weight", "transposed", "expected"),
    [
        ("conv", np.int8, np.int8, False, {"pairsat16:hwc", "pairsat16:chw", "pairwrap16:hwc:8", "pairwrap16:chw:8"}),
        ("conv", np.uint8, np.int8, False, {"pairsat16:hwc", "pairsat16:chw"}),
        ("linear", np.int8, np.int8, False, {"pairsat16:hwc", "pairwrap16:hwc:8"}),
        ("linear", np.uint8, np.int8, False, {"pairsat16:hwc"}),
        ("conv", np.uint8, np.uint8, False, set()),
        ("conv", np.int16, np.int8, False, set()),
        ("conv", np.int8, np.int8, True, set()),
    ],
)
def test_pairs_of_products_are_summed_as_processors_do_for_these_types(kind, x, weight, transposed, expected):
    shapes = (IMAGE, FILTERS) if kind == "conv" else ((4, 5), (5, 3))
    operands = operand(shapes[0], dtype=x), operand(shapes[1], dtype=weight)
    assert sums(unit_of(kind, *operands, transposed=transposed)) == expected


def test_pairs_within_a_tap_differ_where_channels_are_odd_or_there_is_padding():
    x = operand((1, 3, 4, 4), dtype=np.uint8)
    assert "pairsat16:tap" in sums(unit_of("conv", x, operand((3, 3, 3, 3), dtype=np.int8)))
    assert "pairsat16:tap" not in sums(unit_of("conv", x, operand((3, 1, 3, 3), dtype=np.int8)))
    even = operand(IMAGE, dtype=np.uint8), operand(FILTERS, dtype=np.int8)
    assert "pairsat16:tap" in sums(replace(unit_of("conv", *even), attrs={"pads": (1, 1, 1, 1)}))


def test_a_real_bias_is_added_in_four_orders_and_codes_of_one_after_the_sums():
    unit = unit_of("linear", operand((4, 5)), operand((5, 3)), bias=np.float32([1, 2, 3]))
    late = [variant for variant in candidates(unit) if variant.bias == "float"]
    scaled = {variant.multiplier.expression for variant in late if variant.requantize[0].op == "mul"}
    assert scaled == set(list(EXPRESSIONS)[:4])
    assert {variant.multiplier.number for variant in late} == {"f32"}
    assert not [variant for variant in candidates(unit) if variant.bias == "codes"]
    whole = replace(unit, bias=np.int32([1, 2, 3]))
    assert [variant for variant in candidates(whole) if variant.bias == "codes"]


@pytest.mark.parametrize(
    ("kind", "attrs", "taps"),
    [
        ("average_pool", {"ceil_mode": 1, "count_include_pad": 1}, True),
        ("average_pool", {"ceil_mode": 1, "count_include_pad": 0}, False),
        ("average_pool", {"ceil_mode": 0, "count_include_pad": 1}, False),
        ("average_pool", {}, False),
        ("reduce_mean", {"ceil_mode": 1, "count_include_pad": 1}, False),
    ],
)
def test_averages_count_what_a_window_covers_where_it_sticks_out_into_padding_that_counts(kind, attrs, taps):
    made = forms(unit_of(kind, attrs=attrs))
    assert ("taps" in made) == taps
    assert made >= {"real", "sum"}
    assert ({"offset", "counted"} <= made) == (kind != "average_pool")
    assert bool({"offset", "counted"} & made) == (kind != "average_pool")


def test_a_mean_is_divided_by_its_count_in_the_multiplier_in_real_orders_or_in_double():
    made = [variant for variant in candidates(unit_of("reduce_mean", out=0.25)) if variant.form == "offset"]
    real = {variant.multiplier.expression for variant in made if variant.multiplier.real}
    assert real == {"x/(y*n)", "x/n/y", "xw/y"}
    assert {variant.multiplier.expression for variant in made} == real | {"d:xw/y"}


@pytest.mark.parametrize(
    ("changed", "raw"),
    [({}, True), ({"out": 0.25}, False), ({"zero": 4}, False)],
)
def test_codes_are_averaged_as_they_are_where_they_mean_the_same_after(changed, raw):
    for kind in ("average_pool", "global_average_pool", "reduce_mean"):
        assert ("raw" in forms(unit_of(kind, **changed))) == raw


def resized(mode="linear", *operands, **changed):
    settings = (None, None, np.array([1, 2, 8, 8]))
    return unit_of(
        "resize", *operands, settings=settings, attrs={"mode": mode}, function="Resize", op="Resize", **changed
    )


def test_interpolated_codes_have_no_integer_multiplier_and_their_own_forms_where_they_mean_the_same():
    own = {"blend32", "rows32", "blend10", "blend11", "grid10", "lerp", "lerp-fma"}
    assert forms(resized()) == own | {"real", "real-lerp", "sum"}
    unsigned = resized("linear", operand(IMAGE, dtype=np.uint8), dtype=np.uint8)
    assert forms(unsigned) - forms(resized()) == {"corners32", "weights32"}
    for other in (resized(out=0.25), resized(zero=4)):
        assert forms(other) == {"real", "real-lerp", "sum"}
    assert forms(resized("nearest")) == {"real", "sum"}
    real = {variant.multiplier.real for variant in candidates(resized()) if variant.form == "sum"}
    whole = {variant.multiplier.real for variant in candidates(resized("nearest")) if variant.form == "sum"}
    assert (real, whole) == ({True}, {True, False})
    plain = replace(resized(), attrs={})  # nearest, where nothing is said
    assert {variant.multiplier.real for variant in candidates(plain) if variant.form == "sum"} == {True, False}


def function(name, dtype=np.int8, scale=0.5, out=2.0**-7):
    return unit_of("lookup", operand((4, 4), dtype=dtype, scale=scale), out=out, dtype=dtype, function=name, op=name)


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        (function("Sigmoid"), {"mlas", "table", "table-fma", "stepped", "fixed31"}),
        (function("Sigmoid", np.int16, 2.0**-12), {"mlas", "table", "table-fma", "stepped", "fixed16"}),
        (function("Sigmoid", out=0.3), {"mlas", "table", "table-fma", "stepped"}),
        (function("Tanh"), {"table", "table-fma", "stepped", "fixed31"}),
        (function("HardSwish"), {"table", "table-fma", "stepped", "hswish16"}),
        (function("HardSwish", np.int16), {"table", "table-fma", "stepped"}),
        (function("LeakyRelu"), {"table", "table-fma", "stepped", "leaky"}),
        (function("Elu"), {"table", "table-fma", "stepped"}),
    ],
)
def test_a_function_has_the_forms_that_backends_compute_it_in(unit, expected):
    assert forms(unit) == expected


@pytest.mark.parametrize(
    ("dtype", "out", "expected"),
    [
        (np.int8, 2.0**-8, {"ort", "exp31", "exp32", "exp64"}),
        (np.int8, 2.0**-7, {"ort", "exp32", "exp64"}),
        (np.int16, 2.0**-8, {"exp32", "exp64"}),
    ],
)
def test_probabilities_come_from_a_table_of_codes_of_8_bits(dtype, out, expected):
    assert forms(unit_of("softmax", operand((4, 4), dtype=dtype), out=out, dtype=dtype)) == expected


def test_alternatives_are_all_choices_the_last_changing_first():
    made = ("m=f32", "m=f64", "m=f32 steps=mul,zp,even,sat", "m=f64 steps=mul,zp,even,sat")
    assert parse_alternatives("steps=mul,<even,zp|zp,even>,sat m=<f32|f64>") == tuple(map(parse_variant, made))
    assert any_of("a<b|c>", "d") == "<ab|ac|d>"
    assert any_of("<|x>y") == "<y|xy>"
    for kind in ("conv", "add", "mul"):
        made = candidates(unit_of(kind, operand(IMAGE), operand(FILTERS if kind == "conv" else IMAGE)))
        assert len(set(made)) == len(made)
