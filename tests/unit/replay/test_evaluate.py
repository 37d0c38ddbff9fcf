import pickle
from dataclasses import replace

import numpy as np
import pytest

from qdebug.arithmetic.candidates import candidates
from qdebug.arithmetic.canonical import canonical
from qdebug.errors import KernelError
from qdebug.replay import (
    Columns,
    Operand,
    Target,
    Unit,
    Variant,
    accumulate,
    compute,
    finish,
    finish_many,
    parse_variant,
)
from qdebug.replay import qsum as qsum_module

SHAPE = (2, 4, 9, 9)
F32 = np.float32


def operand(rng, shape, scale, zero, dtype=np.uint8):
    info = np.iinfo(dtype)
    codes = rng.integers(info.min, info.max + 1, shape).astype(dtype)
    return Operand(codes=codes, scale=np.asarray(scale, F32), zero_point=np.asarray(zero, dtype))


def target(scale, zero, dtype=np.uint8, **more):
    return Target(dtype=np.dtype(dtype), scale=np.asarray(scale, F32), zero_point=np.asarray(zero, dtype), **more)


REAL = Target(dtype=np.dtype(F32), scale=np.ones((), F32), zero_point=np.zeros((), np.int8))


def units(seed=0):
    """Yield one unit of every kind, some kinds in more than one form."""
    rng = np.random.default_rng(seed)
    x, other = operand(rng, SHAPE, 0.053, 121), operand(rng, SHAPE, 0.021, 13)
    out = target(0.05, 3)
    for kind in ("add", "sub", "mul", "div"):
        yield Unit(kind=kind, operands=(x, other), out=out)
    window = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "strides": (2, 2)}
    yield Unit(kind="average_pool", operands=(x,), out=out, attrs=window)
    padded = {**window, "count_include_pad": 1, "ceil_mode": 1}
    yield Unit(kind="average_pool", operands=(x,), out=out, attrs=padded, channels_last=True)
    yield Unit(kind="global_average_pool", operands=(x,), out=target(0.004, 99))
    yield Unit(kind="reduce_mean", operands=(x,), out=target(0.004, 99), attrs={"axes": (1, 2), "keepdims": 0})
    yield Unit(kind="max_pool", function="MaxPool", operands=(x,), out=out, attrs=window)
    yield Unit(kind="lookup", function="Sigmoid", operands=(x,), out=target(1 / 256, 0))
    yield Unit(kind="lookup", function="LeakyRelu", operands=(x,), out=out, attrs={"alpha": 0.1})
    yield Unit(kind="lookup", function="HardSwish", operands=(operand(rng, SHAPE, 2e-4, 5, np.int16),), out=out)
    yield Unit(kind="softmax", operands=(x,), out=target(1 / 256, 0))
    yield Unit(kind="concat", operands=(x, other), out=out, attrs={"axis": 1})
    yield Unit(kind="where", operands=(x, other), out=out, condition=rng.random(SHAPE) > 0.5)
    doubled = (None, np.array([1, 1, 2, 2], F32))
    yield Unit(kind="resize", function="Resize", operands=(x,), out=out, settings=doubled, attrs={"mode": "linear"})
    yield Unit(kind="pad", function="Pad", operands=(x,), out=out, settings=(np.array([0, 0, 1, 1, 0, 0, 1, 1]),))
    yield Unit(kind="requantize", operands=(x,), out=target(0.05, 3, clamp=(3, 100)))
    real = Operand(codes=rng.normal(size=SHAPE).astype(F32), scale=np.ones((), F32), zero_point=np.zeros((), np.int8))
    yield Unit(kind="quantize", operands=(real,), out=out)
    yield Unit(kind="dequantize", operands=(x,), out=REAL)
    for scale in (0.01, rng.random((6, 1, 1, 1)) * 0.01 + 0.001):
        w = operand(rng, (6, 2, 3, 3), scale, 0, np.int8)
        bias = rng.integers(-999, 999, 6).astype(np.int32)
        yield Unit(kind="conv", operands=(x, w), out=target(0.3, 0), bias=bias, attrs={"group": 2})
    w = operand(rng, (4, 3, 3, 3), rng.random((1, 3, 1, 1)) * 0.01 + 0.001, 0, np.int8)
    yield Unit(kind="conv", operands=(x, w), out=target(0.3, 7), attrs={"strides": (2, 2)}, transposed=True)
    a, b = operand(rng, (3, 5, 40), 0.03, 100), operand(rng, (40, 6), rng.random(6) * 0.01 + 0.001, 0, np.int8)
    yield Unit(kind="linear", operands=(a, b), out=target(0.2, 9), bias=rng.normal(size=6).astype(F32))


UNITS = list(units())
IDS = [f"{position}-{unit.kind}" for position, unit in enumerate(UNITS)]


@pytest.mark.parametrize("unit", UNITS, ids=IDS)
def test_a_selection_of_many_gives_the_codes_of_the_whole(unit):
    variants = candidates(unit)
    rng = np.random.default_rng(1)
    for sums in dict.fromkeys(variant.sums for variant in variants):
        group = [variant for variant in variants if variant.sums == sums]
        columns = accumulate(unit, sums)
        places = rng.integers(0, columns.size, 200)
        selected = columns.take(places)
        many = finish_many(unit, selected, group)
        assert many.dtype == unit.out.dtype
        for variant, row in zip(group, many, strict=True):
            whole = compute(unit, variant)
            first = np.moveaxis(whole, -1, 1) if unit.channels_last else whole
            np.testing.assert_array_equal(row, first.reshape(-1)[places], err_msg=str(variant))
            np.testing.assert_array_equal(row, finish(unit, selected, variant), err_msg=str(variant))


@pytest.mark.parametrize("unit", UNITS, ids=IDS)
def test_canonical_variants_compute_the_same(unit):
    for variant in candidates(unit):
        columns = accumulate(unit, variant.sums)
        found = canonical(variant, unit, columns)
        assert canonical(found, unit, columns) == found
        if found != variant:
            np.testing.assert_array_equal(compute(unit, found), compute(unit, variant), err_msg=f"{variant} -> {found}")


@pytest.mark.parametrize("unit", UNITS, ids=IDS)
def test_candidates_are_nearly_the_real_result(unit):
    # All of them are roundings of one number: those with a full multiplier differ by one step at most.
    variants = candidates(unit)
    first = compute(unit, variants[0]).astype(np.float64)
    coarse = ("pow2", "glow", "q15", "q16", "m24s7")
    precise = [v for v in variants if v.multiplier.number not in coarse and not v.accumulate.startswith("pair")]
    precise = [v for v in precise if unit.kind != "div" and v.form != "taps"]  # by 0, and beyond the padding
    for variant in precise:
        most = 2 if variant.bias == "codes" else 1  # of two roundings
        assert np.abs(compute(unit, variant).astype(np.float64) - first).max() <= most, str(variant)


def test_there_are_as_many_ways_as_the_catalogue_lists():
    conv = next(unit for unit in UNITS if unit.kind == "conv")
    assert len(candidates(conv)) >= 113
    assert candidates(conv)[0] == Variant()
    assert len(set(candidates(conv))) == len(candidates(conv))


def test_a_power_of_two_has_few_canonical_variants():
    conv = next(unit for unit in UNITS if unit.kind == "conv")
    x, w = conv.operands
    dyadic = replace(
        conv,
        operands=(replace(x, scale=np.asarray(0.5, F32)), replace(w, scale=np.asarray(0.25, F32))),
        out=target(4, 0),
    )
    columns = accumulate(dyadic, Variant().sums)
    plain = [variant for variant in candidates(dyadic) if variant.sums == Variant().sums]
    assert len({canonical(variant, dyadic, columns) for variant in plain}) < len(plain) / 2


def test_columns_of_another_heavy_part_are_refused():
    conv = next(unit for unit in UNITS if unit.kind == "conv")
    columns = accumulate(conv, Variant().sums)
    with pytest.raises(KernelError, match="do not fit"):
        finish(conv, columns, Variant(bias="none"))
    with pytest.raises(ValueError, match="selected only once"):
        columns.take(np.arange(3)).take(np.arange(2))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps=mul,shr.up,zp,sat", "needs an integer multiplier"),
        ("m=q31 steps=mul,even,zp,sat", "needs a real multiplier"),
        ("steps=mul,even,zp", "must end with a sat or wrap step"),
        ("form=fold-fma steps=even,sat", "cannot be computed"),
        ("form=raw m=q31 steps=avg.up,sat", "cannot be computed"),
    ],
)
def test_programs_that_make_no_sense_are_refused(text, message):
    pool = next(unit for unit in UNITS if unit.kind == "max_pool")
    with pytest.raises(KernelError, match=message):
        compute(pool, parse_variant(text))


def test_columns_serve_another_unit_with_its_own_parameters():
    conv = next(unit for unit in UNITS if unit.kind == "conv")
    columns = accumulate(conv, Variant().sums)
    finish(conv, columns, Variant())
    other = replace(conv, out=target(0.6, 30))
    np.testing.assert_array_equal(finish(other, columns, Variant()), compute(other, Variant()).reshape(-1))


def test_deep_sums_are_cut_and_stay_exact(monkeypatch):
    rng = np.random.default_rng(5)
    x = operand(rng, (1, 300, 3, 3), 0.02, 0)
    w = operand(rng, (2, 300, 3, 3), 0.01, 0, np.int8)
    unit = Unit(kind="conv", operands=(x, w), out=target(0.3, 0))
    cut = accumulate(unit, Variant().sums)
    assert cut.bound >= 2**24
    assert cut.values[0].dtype == np.int32
    expected = (x.codes.astype(np.int64)[0] * w.codes.astype(np.int64)).sum(axis=(1, 2, 3))
    np.testing.assert_array_equal(cut.values[0].reshape(-1), expected)
    monkeypatch.setattr(qsum_module, "_MAX_PARTS", 1)
    np.testing.assert_array_equal(accumulate(unit, Variant().sums).values[0].reshape(-1), expected)


def test_an_accumulator_beyond_int32_wraps_around_or_not():
    x = Operand(codes=np.full((1, 2), 100, np.uint8), scale=F32(1), zero_point=np.uint8(0))
    w = Operand(codes=np.full((2, 1), 100, np.int8), scale=F32(1), zero_point=np.int8(0))
    bias = np.array([2**31 - 1], np.int32)
    unit = Unit(kind="linear", operands=(x, w), out=target(1, 0, np.int8), bias=bias)
    assert compute(unit, Variant()).item() == -128
    assert compute(unit, Variant(accumulate="exact")).item() == 127


@pytest.mark.parametrize("end", [2**31 - 1000, -(2**31) + 1000])
@pytest.mark.parametrize("pairs", ["pairsat16:hwc", "pairwrap16:hwc:8"])
def test_what_pairs_add_up_to_wraps_around_in_32_bits(pairs, end):
    """Of products that lose nothing in 16 bits, and of some that do."""
    rng = np.random.default_rng(4)
    a = operand(rng, (8, 32), 0.03, 3, np.int8)
    for most in (7, 127):
        weight = np.clip(operand(rng, (32, 5), 0.01, 0, np.int8).codes, -most, most)
        b = Operand(codes=weight, scale=np.asarray(0.01, F32), zero_point=np.zeros((), np.int8))
        unit = Unit(kind="linear", operands=(a, b), out=target(0.2, 9), bias=np.zeros(5, np.int32))
        held = accumulate(unit, parse_variant(f"acc={pairs}").sums).values[0].astype(np.int64)
        sums = accumulate(replace(unit, bias=np.full(5, end, np.int32)), parse_variant(f"acc={pairs}").sums).values[0]
        assert np.any(held + end != (held + end).astype(np.int32))
        np.testing.assert_array_equal(sums, (held + end).astype(np.int32))


def test_biases_of_their_own_scale():
    x = Operand(codes=np.zeros((1, 1), np.uint8), scale=F32(0.5), zero_point=np.uint8(0))
    w = Operand(codes=np.zeros((1, 3), np.int8), scale=F32(0.25), zero_point=np.int8(0))
    unit = Unit(kind="linear", operands=(x, w), out=target(0.125, 0, np.int16), bias=np.array([5, -5, 7]))
    plain = accumulate(unit, Variant().sums).values[0]
    assert plain.tolist() == [[5, -5, 7]]
    own = replace(unit, bias_scale=np.asarray(0.0625, F32))
    assert accumulate(own, Variant().sums).values[0].tolist() == [[3, -3, 4]]  # halves go away from zero
    assert accumulate(own, Variant(bias="glow").sums).values[0].tolist() == [[3, -2, 4]]
    real = replace(unit, bias=np.array([0.625, -0.625, 0.875], F32))
    assert accumulate(real, Variant().sums).values[0].tolist() == [[5, -5, 7]]
    assert accumulate(real, Variant(bias="float").sums).values[0].tolist() == [[0, 0, 0]]
    after = parse_variant("bias=float steps=scale,bias,div,even,zp,sat")
    assert compute(real, after).tolist() == [[5, -5, 7]]


def test_a_scale_for_each_filter_of_the_bias():
    x = Operand(codes=np.zeros((1, 1, 2, 2), np.uint8), scale=F32(0.5), zero_point=np.uint8(0))
    w = Operand(codes=np.zeros((3, 1, 1, 1), np.int8), scale=F32(0.25), zero_point=np.int8(0))
    bias_scale = np.array([0.125, 0.25, 0.5], F32)
    unit = Unit(
        kind="conv", operands=(x, w), out=target(0.125, 0, np.int16), bias=np.array([5, -5, 7]), bias_scale=bias_scale
    )
    for text in ("", "bias=float steps=scale,bias,div,even,zp,sat", "bias=float steps=mul,bias,even,zp,sat"):
        assert compute(unit, parse_variant(text))[0, :, 1, 1].tolist() == [5, -10, 28], text


def test_a_fused_clamp_bounds_the_codes():
    unit = next(unit for unit in UNITS if unit.kind == "requantize")
    codes = compute(unit, candidates(unit)[0])
    assert (codes.min(), codes.max()) == (3, 100)


def test_units_survive_pickling():
    for unit in UNITS:
        again = pickle.loads(pickle.dumps(unit))  # noqa: S301  # our own bytes
        assert again.kind == unit.kind
        np.testing.assert_array_equal(compute(again, candidates(unit)[0]), compute(unit, candidates(unit)[0]))


def test_blocks_cover_every_element_once():
    for shape in ((), (5,), (100_000,), (3, 7, 50, 60), (2, 1, 40_000), (4, 0, 3)):
        columns = Columns(sums=Variant().sums, values=(np.zeros(shape),), shape=shape)
        seen = np.zeros(shape, int)
        for block in columns.blocks(1000):
            seen[block] += 1
            assert seen[block].size <= max(1000, 60)
        assert (seen == 1).all()


def test_products_of_wide_codes_do_not_overflow():
    wide = Operand(codes=np.array([65535, 3], np.uint16), scale=F32(2**-20), zero_point=np.uint16(0))
    unit = Unit(kind="mul", operands=(wide, wide), out=target(2**-20, 0, np.uint16))
    assert compute(unit, Variant()).tolist() == [4096, 0]
    assert accumulate(unit, Variant().sums).values[0].tolist() == [65535**2, 9]


def test_operands_that_do_not_fit_are_said_to():
    rng = np.random.default_rng(0)
    short, long = operand(rng, (2, 3), 0.1, 0), operand(rng, (4, 5), 0.1, 0)
    with pytest.raises(KernelError, match="cannot be computed"):
        compute(Unit(kind="linear", operands=(short, long), out=target(1, 0), op="QLinearMatMul"), Variant())
    with pytest.raises(KernelError, match="cannot be computed"):
        compute(Unit(kind="conv", operands=(short, long), out=target(1, 0), op="QLinearConv"), Variant())


def test_parameters_that_do_not_fit_the_result_are_an_error_of_the_kernel():
    """As a recording may have them, whose scales are given for other blocks than its codes."""
    columns = Columns(sums=Variant().sums, values=(np.zeros((1, 4, 4)),), shape=(1, 4, 4)).take(np.arange(3))
    with pytest.raises(KernelError, match=r"parameters have shape \[16\], but its result has \[1, 4, 4\]"):
        columns.spread(np.ones(16))


def test_nine_taps_are_added_in_pairs_columns_first():
    x = operand(np.random.default_rng(5), (1, 1, 2, 44), 0.0105084, -3, np.int8)
    unit = Unit(kind="average_pool", operands=(x,), out=target(0.0070056, 3, np.int8), attrs={"kernel_shape": (2, 5)})
    found = accumulate(unit, parse_variant("form=nines steps=inv,even,zp,sat").sums).values[0]
    real = x.centred[0, 0].astype(F32) * x.scale
    a, b, c, d, e, f, g, h, i, j = (real[row, column : column + 40] for column in range(5) for row in range(2))
    total = (((c + d) + (e + f)) + (((a + b) + i) + (g + h))) + j
    assert found.dtype == F32
    np.testing.assert_array_equal(found.reshape(-1), total * (F32(1) / F32(10)))
