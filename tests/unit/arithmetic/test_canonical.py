"""Variants that are one function of a unit have one canonical form, and variants that give other codes have another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.arithmetic.candidates import candidates
from qdebug.arithmetic.canonical import canonical, number_functions
from qdebug.arithmetic.search import all_codes, programs
from qdebug.replay.columns import Columns
from qdebug.replay.evaluate import accumulate, compute, finish
from qdebug.replay.unit import Operand, Target, Unit
from qdebug.replay.variant import Variant, parse_variant

F32 = np.float32
SUMS = Variant().sums
ROUNDED, QUOTIENT = "steps=mul,zp,even,sat", "steps=scale,div,even,zp,sat"
TFLITE, SHIFTED = "steps=shl,mulhi.up,shr.away,zp,sat", "steps=mul,shr.up,zp,sat"


def operand(scale, *, codes=None, zero=0):
    codes = np.arange(-128, 128, dtype=np.int8).reshape(1, 1, 16, 16) if codes is None else codes
    return Operand(codes=codes, scale=np.asarray(scale, F32), zero_point=np.asarray(zero, codes.dtype))


def target(scale, zero=0, dtype=np.int8):
    return Target(dtype=np.dtype(dtype), scale=np.asarray(scale, F32), zero_point=np.asarray(zero, dtype))


def conv(x, weights, y, zero=3, bias=(5,)):
    """Return a convolution of 16-bit codes: its sums may be as large as int32 holds."""
    codes = np.zeros((1, 1, 1, 1), np.int16)
    filters = np.ones((len(weights), 1, 1, 1), np.int16)
    scale = np.reshape(weights, (-1, 1, 1, 1)) if len(weights) > 1 else weights[0]
    bias = None if bias is None else np.resize(np.int32(bias), len(weights))
    operands = operand(x, codes=codes), operand(scale, codes=filters)
    return Unit(kind="conv", operands=operands, out=target(y, zero, np.int16), bias=bias, op="Conv")


def columns_of(unit, sums=SUMS, *, bound=0.0, step=61):
    """Return sums on both sides of where a convolution's codes change, which a multiplier's last bit moves."""
    x, w = (o.scale.astype(np.float64).reshape(-1) for o in unit.operands)
    ties = (np.arange(-(2**15), 2**15, step) + 0.5) / (x * w / unit.out.scale)[:, None]
    around = np.clip(np.floor(ties[..., None] + (0, 1)), -(2**31), 2**31 - 1).astype(np.int32)
    values = around.reshape(1, x.size * w.size, 1, -1)
    return Columns(sums=sums, values=(values,), shape=values.shape, bound=bound)


GENERIC = conv(0.0212, [0.0704], 26.24)  # the order of its scales counts, and how its 31 bits are rounded
DYADIC = conv(0.5, [0.25], 2.0**12)
LARGE = conv(0.5, [0.3], 0.1)  # its multiplier is 1.5
NEARLY_ONE = conv(0.5, [0.3], 0.2)  # 0.75
SMALL = conv(0.5, [0.3], 0.5)  # 0.3
BARE, CENTRED = replace(GENERIC, bias=None), replace(GENERIC, out=target(26.24, 0, np.int16))
POOL = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "strides": (2, 2)}
MEAN = Unit(kind="global_average_pool", operands=(operand(0.5, zero=3),), out=target(0.25, 3), op="GlobalAveragePool")
SUM = Unit(kind="add", operands=(operand(0.5), operand(0.25)), out=target(0.5, 3), op="Add")


def pool(**attrs):
    return Unit(kind="average_pool", operands=(operand(0.053, zero=9),), out=target(0.05, 3), attrs=POOL | attrs)


LEAKY = Unit(
    kind="lookup", function="LeakyRelu", operands=(operand(0.07559322),), out=target(0.00371, -5), attrs={"alpha": 0.1}
)
SIGMOID = Unit(
    kind="lookup",
    function="Sigmoid",
    operands=(operand(0.005, codes=np.arange(-2000, 2000, dtype=np.int16)),),
    out=target(2.0**-16, dtype=np.int16),
)


def codes_of(unit, variant):
    return finish(unit, columns_of(unit, variant.sums), variant) if unit.kind == "conv" else compute(unit, variant)


SAME = {
    "a bias that is not there": (BARE, "bias=none", ""),
    "the step of a bias that is not there": (BARE, "bias=codes steps=mul,even,bias,zp,sat", ""),
    "a zero point of 0": (CENTRED, ROUNDED, "steps=mul,even,zp,sat"),
    "no products": (SUM, "form=ratio acc=exact bias=none steps=even,zp,sat", "form=ratio steps=even,zp,sat"),
    "the table of another function": (
        LEAKY, "form=mlas steps=div,even,zp,sat", "form=table steps=div,even,zp,sat",
    ),
    "no taps beyond the padding": (pool(), "form=taps steps=div,even,zp,sat", "form=real steps=div,even,zp,sat"),
    "no window that sticks out": (
        pool(count_include_pad=1), "form=taps steps=div,even,zp,sat", "form=real steps=div,even,zp,sat",
    ),
    "no padding that counts": (
        pool(ceil_mode=1), "form=taps steps=div,even,zp,sat", "form=real steps=div,even,zp,sat",
    ),
    "orders of powers of two": (DYADIC, "m=f32:x*(w/y)", ""),
    "a cut off power of two": (DYADIC, f"m=q31t {TFLITE}", f"m=q31 {TFLITE}"),
    "a power of two in 24 bits": (DYADIC, f"m=q24 {TFLITE}", f"m=m24:x*(w/y) {TFLITE}"),
    "a power of two as a shift": (DYADIC, f"m=q31 {SHIFTED}", "m=pow2 steps=shr.up,zp,sat"),
    "a power of two in few bits": (DYADIC, f"m=q15 {SHIFTED}", f"m=q31 {SHIFTED}"),
    "no shift left": (NEARLY_ONE, f"m=q31 {TFLITE}", "m=q31 steps=mulhi.up,shr.away,zp,sat"),
    "no shift before": (LARGE, "m=m24 steps=pre.up,mul,shr.up,zp,sat", "m=m24 steps=mul,shr.up,zp,sat"),
    "31 bits are rounded once": (NEARLY_ONE, "m=q31 steps=mul,shr.tosa,zp,sat", f"m=q31 {SHIFTED}"),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_what_gives_the_same_codes_by_construction_is_one(name):
    unit, *texts = SAME[name]
    first, second = map(parse_variant, texts)
    assert first != second
    columns = accumulate(unit, first.sums)
    assert canonical(first, unit, columns) == canonical(second, unit, columns)
    np.testing.assert_array_equal(codes_of(unit, first), codes_of(unit, second))


APART = {
    "a bias": (GENERIC, "bias=none", ""),
    "a zero point before ties": (GENERIC, ROUNDED, ""),
    "pairs that saturate": (GENERIC, "acc=pairsat16:hwc", ""),
    "such as a different table": (SIGMOID, "form=mlas steps=div,even,zp,sat", "form=table steps=div,even,zp,sat"),
    "a table by addition": (
        LEAKY, "form=stepped steps=div,even,zp,sat", "form=table steps=div,even,zp,sat",
    ),
    "taps beyond the padding": (
        pool(ceil_mode=1, count_include_pad=1), "form=taps steps=div,even,zp,sat", "form=real steps=div,even,zp,sat",
    ),
    "sums with their zero point": (
        replace(MEAN, out=target(0.25)), "form=offset steps=mul,zp,even,sat", "form=offset steps=mul,even,sat",
    ),
    "orders": (GENERIC, "m=f32:x*(w/y)", ""),
    "a multiplier that is cut off": (GENERIC, f"m=q31t:d:xw/y {SHIFTED}", f"m=q31:d:xw/y {SHIFTED}"),
    "fewer bits": (GENERIC, f"m=q15 {SHIFTED}", f"m=q31 {SHIFTED}"),
    "no power of two": (GENERIC, f"m=q31 {SHIFTED}", "m=pow2 steps=shr.up,zp,sat"),
    "a shift left": (LARGE, f"m=q31 {TFLITE}", "m=q31 steps=mulhi.up,shr.away,zp,sat"),
    "a shift before": (GENERIC, "m=m15 steps=pre.up,mulhi.up,zp,sat", "m=m15 steps=mulhi.up,zp,sat"),
    "32 bits are rounded twice": (SMALL, "m=q31 steps=mul,shr.tosa,zp,sat", f"m=q31 {SHIFTED}"),
    "a power of two that is rounded twice": (DYADIC, "m=q31 steps=mul,shr.tosa,zp,sat", f"m=q31 {SHIFTED}"),
    "a quotient in float64": (GENERIC, f"m=f64 {QUOTIENT}", QUOTIENT),
}  # fmt: skip


@pytest.mark.parametrize("name", APART)
def test_what_some_codes_tell_apart_is_not_one(name):
    unit, *texts = APART[name]
    first, second = map(parse_variant, texts)
    columns = {variant.sums: accumulate(unit, variant.sums) for variant in (first, second)}
    assert canonical(first, unit, columns[first.sums]) != canonical(second, unit, columns[second.sums])
    if first.sums == second.sums:
        assert not np.array_equal(codes_of(unit, first), codes_of(unit, second))


@pytest.mark.parametrize(("bound", "wraps"), [(2.0**31 - 1, False), (2.0**31, True)])
def test_sums_that_may_overflow_tell_exact_ones_from_those_that_wrap(bound, wraps):
    exact = Variant(accumulate="exact")
    assert (canonical(exact, GENERIC, columns_of(GENERIC, bound=bound)) != Variant()) == wraps
    assert canonical(exact, GENERIC) == exact  # how large they are is not known


def test_what_is_never_read_takes_its_default_for_every_unit():
    for text, plain in [
        ("shift=20 operand=mul,shr.up", ""),
        ("bias=float", "bias=none"),
        ("bias=codes", "bias=none"),
        ("bias=float steps=mul,bias,even,zp,sat", "bias=float steps=mul,bias,even,zp,sat"),
        (f"m=f16:x*(w/y) {QUOTIENT}", QUOTIENT),
        (f"m=f64:x*(w/y) {QUOTIENT}", f"m=f64 {QUOTIENT}"),
        ("m=f64 form=ratio steps=even,zp,sat", "form=ratio steps=even,zp,sat"),
        ("m=q15 steps=avg.up,zp,sat", "m=q31 steps=avg.up,zp,sat"),
        ("m=q15 form=counted steps=mul,shr.up,zp,sat", "form=counted steps=mul,shr.up,zp,sat"),
    ]:
        assert canonical(parse_variant(text)) == parse_variant(plain), text


def test_orders_of_a_mean_are_one_if_its_count_is_known_and_makes_them_so():
    first, other = parse_variant("m=f32:x/n/y"), Variant()
    assert canonical(first, MEAN) == first
    assert canonical(first, MEAN, accumulate(MEAN, first.sums)) == other
    uneven = replace(MEAN, operands=(operand(0.0136, codes=np.zeros((1, 1, 7, 7), np.int8)),), out=target(0.05, 3))
    columns = accumulate(uneven, first.sums)
    assert canonical(first, uneven, columns) != canonical(other, uneven, columns)


@pytest.mark.parametrize(
    "text",
    [
        f"form=ls shift=20 m=q31:d:xw/y operand=shl,mulhi.up,shr.away {TFLITE}",
        "form=each m=q31:d:xw/y operand=shl,mulhi.up,shr.away steps=zp,sat",
    ],
)
def test_a_multiplier_of_operands_is_not_that_of_the_unit(text):
    variant = parse_variant(text)
    assert canonical(variant, SUM, accumulate(SUM, variant.sums)) == variant


def test_a_multiplier_before_a_division_by_the_count_is_that_of_one_element():
    variant = parse_variant("m=glow:d:xw/y steps=pre.floor,mul,wrap32,shr.up,avg.away,zp,sat")
    assert canonical(variant, MEAN, accumulate(MEAN, variant.sums)) == variant


def test_a_power_of_two_kept_as_1_is_a_shift():
    unit = Unit(kind="requantize", operands=(operand(2.0**-8),), out=target(1.0, 3), op="Requantize")
    assert canonical(parse_variant(f"m=p8 {SHIFTED}"), unit) == parse_variant("m=pow2 steps=shr.up,zp,sat")


SCALE = st.one_of(
    st.integers(-6, 3).map(lambda power: 2.0**power),
    st.sampled_from([0.1, 0.2, 0.3, 0.75]),
    st.floats(0.015625, 8, width=32),
)


@drawn(20)
@given(
    x=SCALE,
    weights=st.lists(SCALE, min_size=1, max_size=2),
    y=SCALE,
    zero=st.sampled_from([0, 3, -8]),
    bias=st.sampled_from([None, (5,)]),
)
def test_one_number_is_one_function_whatever_the_sums(x, weights, y, zero, bias):
    unit = conv(x, weights, y, zero, bias)
    columns = columns_of(unit, step=509)
    tried = [*(known for known in candidates(unit) if known.sums == SUMS), *list(programs(unit, SUMS))[::29]]
    numbers = dict(zip(tried, number_functions(tried, unit, {SUMS: columns}), strict=True))
    first = {}
    for variant, codes in all_codes(unit, columns, tried):
        held, theirs = first.setdefault(numbers[variant], (variant, codes))
        np.testing.assert_array_equal(codes, theirs, err_msg=f"{variant} and {held}")
