"""Sums of pairs held to 16 bits against a loop over every product, and against a processor that has them."""

import importlib.util
import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from qdebug.replay import Call, Operand, Target, Unit, Variant, accumulate, compute, unit_of_call

HERE = Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("make_haswell_golden", HERE / "make_haswell_golden.py")
maker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(maker)

ZERO = 5
SCALE = np.asarray(0.1, np.float32)
OUT = Target(dtype=np.dtype(np.uint8), scale=SCALE, zero_point=np.zeros((), np.uint8))
HOW = ("pairsat16:hwc", "pairsat16:chw", "pairsat16:tap", "pairwrap16:hwc", "pairwrap16:hwc:8", "pairwrap16:chw:4")


def held(products, how):
    """Add products in pairs, each pair held to 16 bits."""
    kind, _, *rest = how.split(":")
    distance = int(rest[0]) if rest else 1
    missing = -products.size % (2 * distance)
    pairs = np.pad(products, (0, missing)).reshape(-1, 2, distance).sum(axis=1)
    if kind == "pairsat16":
        return int(np.clip(pairs, -(2**15), 2**15 - 1).sum())
    return int(((pairs + 2**15) % 2**16 - 2**15).sum())


def drawn(rng, dtype, *shape):
    """Draw codes that are often extreme, so that pairs overflow."""
    info = np.iinfo(dtype)
    return rng.choice([info.min, info.max, info.max - 27, 3], shape).astype(dtype)


def operand(codes, zero):
    return Operand(codes=codes, scale=SCALE, zero_point=np.asarray(zero, codes.dtype))


def shift_of(dtype, how):
    """What is added to signed codes so that they are unsigned: saturating hardware multiplies unsigned by signed."""
    return 128 if dtype == np.int8 and "sat" in how else 0


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("channels", [2, 3])
def test_convolutions(how, dtype, channels):
    rng = np.random.default_rng(1)
    x, w = drawn(rng, dtype, 2, 2 * channels, 5, 5), drawn(rng, np.int8, 6, channels, 3, 3)
    attrs = {"group": 2, "pads": (1, 0, 1, 1)}
    unit = Unit(kind="conv", operands=(operand(x, ZERO), operand(w, 0)), out=OUT, attrs=attrs)
    sums = accumulate(unit, Variant(accumulate=how).sums).values[0]
    shift = shift_of(dtype, how)
    raw = np.pad(x.astype(int) + shift, ((0, 0), (0, 0), (1, 1), (0, 1)), constant_values=ZERO + shift)
    inside = np.pad(np.ones((5, 5), int), ((1, 1), (0, 1)))
    for n, m, r, c in product(*map(range, sums.shape)):
        first = m // 3 * channels
        taps = raw[n, first : first + channels, r : r + 3, c : c + 3] * w[m].astype(int)
        weights = w[m].astype(int)
        if ":tap" in how:  # what lies in the padding takes no part
            weights = weights * inside[r : r + 3, c : c + 3]
            taps = np.pad(taps * inside[r : r + 3, c : c + 3], ((0, channels % 2), (0, 0), (0, 0)))
        in_order = (taps if ":chw" in how else taps.transpose(1, 2, 0)).reshape(-1)
        assert sums[n, m, r, c] == held(in_order, how) - (ZERO + shift) * int(weights.sum())


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_matrix_products(how, dtype):
    rng = np.random.default_rng(2)
    a, b = drawn(rng, dtype, 2, 5, 7), drawn(rng, np.int8, 7, 6)
    unit = Unit(kind="linear", operands=(operand(a, ZERO), operand(b, 0)), out=OUT)
    sums = accumulate(unit, Variant(accumulate=how).sums).values[0]
    shift = shift_of(dtype, how)
    for n, r, c in product(*map(range, sums.shape)):
        products = (a[n, r].astype(int) + shift) * b[:, c].astype(int)
        assert sums[n, r, c] == held(products, how) - (ZERO + shift) * int(b[:, c].astype(int).sum())


def test_weights_of_seven_bits_lose_nothing():
    rng = np.random.default_rng(3)
    x = rng.integers(0, 256, (1, 8, 6, 6)).astype(np.uint8)
    w = rng.integers(-64, 64, (4, 8, 3, 3)).astype(np.int8)
    unit = Unit(kind="conv", operands=(operand(x, ZERO), operand(w, 0)), out=OUT)
    exact = accumulate(unit, Variant().sums).values[0]
    np.testing.assert_array_equal(accumulate(unit, Variant(accumulate="pairsat16:hwc").sums).values[0], exact)


GOLDEN = json.loads((HERE / "haswell_golden.json").read_text(encoding="utf-8"))
CASES = {name: case for name, *case in maker.cases()}


@pytest.mark.parametrize("name", CASES)
def test_a_processor_without_dot_product_saturates_pairs(name):
    op, inputs, attrs = CASES[name]
    unit = unit_of_call(Call(inputs=tuple(inputs), attrs=attrs, op=op))
    # Signed by signed, and depthwise, it has other kernels.
    exact = name.split()[-1] == "int8" or name.startswith("depthwise")
    how = "wrap32" if exact else "pairsat16:hwc"
    assert maker.hashed(compute(unit, Variant(accumulate=how))) == GOLDEN[name]
    if not exact:
        assert maker.hashed(compute(unit, Variant())) != GOLDEN[name]


def sixteen(products, how):
    """Add products one after the other in 16 bits."""
    total = 0
    for value in products.tolist():
        total += value
        total = (total + 2**15) % 2**16 - 2**15 if how == "wrap16" else min(max(total, -(2**15)), 2**15 - 1)
    return total


@pytest.mark.parametrize("how", ["sat16:hwc", "sat16:chw", "wrap16"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_convolutions_in_16_bits(how, dtype):
    rng = np.random.default_rng(2)
    x, w = drawn(rng, dtype, 2, 4, 5, 5), drawn(rng, np.int8, 6, 2, 3, 3)
    bias = rng.integers(-5000, 5000, 6).astype(np.int32)
    unit = Unit(
        kind="conv",
        operands=(operand(x, ZERO), operand(w, 3)),
        out=OUT,
        attrs={"group": 2, "pads": (1, 0, 1, 1)},
        bias=bias,
    )
    sums = accumulate(unit, Variant(accumulate=how).sums).values[0]
    raw = np.pad(x.astype(int) - ZERO, ((0, 0), (0, 0), (1, 1), (0, 1)))
    changed = 0
    for n, m, r, c in product(*map(range, sums.shape)):
        group = m // 3
        products = raw[n, 2 * group : 2 * group + 2, r : r + 3, c : c + 3] * (w[m].astype(int) - 3)
        ordered = np.moveaxis(products, 0, -1) if how.endswith("hwc") else products
        added = [*ordered.reshape(-1), bias[m]] if how == "wrap16" else ordered.reshape(-1)
        assert sums[n, m, r, c] == sixteen(np.array(added), how) + (0 if how == "wrap16" else bias[m])
        changed += sums[n, m, r, c] != products.sum() + bias[m]
    assert changed > 10


def test_complete_sums_saturate_with_their_bias():
    rng = np.random.default_rng(2)
    x, w, bias = drawn(rng, np.uint8, 2, 4, 5, 5), drawn(rng, np.int8, 6, 4, 3, 3), np.arange(6, dtype=np.int32) * 9000
    unit = Unit(kind="conv", operands=(operand(x, ZERO), operand(w, 3)), out=OUT, bias=bias)
    whole = accumulate(unit, Variant().sums).values[0]
    held = accumulate(unit, Variant(accumulate="sat16").sums).values[0]
    np.testing.assert_array_equal(held, np.clip(whole, -(2**15), 2**15 - 1))
    assert np.count_nonzero(held != whole) > 10


@pytest.mark.parametrize("how", ["sat16:hwc", "wrap16"])
def test_matrix_products_in_16_bits(how):
    rng = np.random.default_rng(3)
    a, b = drawn(rng, np.uint8, 3, 4, 20), drawn(rng, np.int8, 20, 5)
    unit = Unit(kind="linear", operands=(operand(a, ZERO), operand(b, 0)), out=OUT)
    sums = accumulate(unit, Variant(accumulate=how).sums).values[0]
    for n, r, c in product(*map(range, sums.shape)):
        assert sums[n, r, c] == sixteen((a[n, r].astype(int) - ZERO) * b[:, c].astype(int), how)
