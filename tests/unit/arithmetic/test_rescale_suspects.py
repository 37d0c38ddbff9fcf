"""Mistakes in rescaling integer sums are named where kernels in plain Python make them."""

from __future__ import annotations

import math

import numpy as np
import pytest

import qdebug

DRAWN = np.random.default_rng(11)
X, W = DRAWN.integers(-3, 4, (4, 40)).astype(np.int8), DRAWN.integers(-127, 128, (12, 40)).astype(np.int8)
BIAS = DRAWN.integers(-90, 90, 12).astype(np.int32)
X_SCALE, Y_SCALE, ZERO = np.float32(0.02), np.float32(0.06), -7
SCALES = np.exp(DRAWN.uniform(-4, -1.5, 12)).astype(np.float32)


def wrap(value, bits=32):
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def right(total, multiplier, shift, channel):
    return (total * multiplier + (1 << shift - 1)) >> shift


def cut(total, multiplier, shift, channel):
    return wrap(wrap(total * multiplier) + wrap(1 << shift - 1)) >> (shift & 31)


def logical(total, multiplier, shift, channel):
    return min(((total * multiplier + (1 << shift - 1)) % 2**64) >> shift, 2**31 - 1)


def logical_high_word(total, multiplier, shift, channel):
    return wrap((((total * multiplier + (1 << 30)) >> 31) % 2**32 + (1 << shift - 32)) >> (shift - 31))


def modulo(total, multiplier, shift, channel):
    return (total * multiplier + (1 << shift - 1)) >> (shift & 31)


def limited(total, multiplier, shift, channel):
    return (total * multiplier + (1 << shift - 1)) >> 31


def quantized(real):
    fraction, exponent = math.frexp(real)
    return round(fraction * 2**31), 31 - exponent


REAL = [float(X_SCALE) * float(scale) / float(Y_SCALE) for scale in SCALES]
PAIRS = [quantized(real) for real in REAL]


def first_shift(total, multiplier, shift, channel):
    return right(total, multiplier, PAIRS[0][1], channel)


def next_multiplier(total, multiplier, shift, channel):
    return right(total, PAIRS[(channel + 1) % len(PAIRS)][0], shift, channel)


def run(rescale):
    sums = X.astype(np.int64) @ W.astype(np.int64).T + BIAS
    codes = np.array([[rescale(int(each), *PAIRS[at], at) for at, each in enumerate(row)] for row in sums.tolist()])
    with qdebug.Recorder(None, backend="npu") as rec:
        rec.constant("w", W, scale=SCALES, zero_point=np.zeros(12, np.int64), axis=0)
        rec.constant("b", BIAS, scale=SCALES * X_SCALE, zero_point=np.zeros(12, np.int64), axis=0)
        rec.put("x", X, scale=X_SCALE, zero_point=0)
        attrs = {"fused_activation_function": "NONE", "weights_format": "DEFAULT", "keep_num_dims": False}
        rec.put(
            "y", np.clip(codes + ZERO, -128, 127).astype(np.int8), node="fc", op="FULLY_CONNECTED", attrs=attrs,
            inputs=("x", "w", "b"), scale=Y_SCALE, zero_point=ZERO,
        )  # fmt: skip
    (node,) = qdebug.explain(rec.recording).nodes
    return node


@pytest.mark.parametrize(
    ("rescale", "said"),
    [
        (cut, "the product of sum and multiplier is cut to 32 bits"),
        (logical, "negative sums are rescaled as unsigned numbers"),
        (logical_high_word, "negative sums are rescaled as unsigned numbers"),
        (modulo, "the shift of the rescaling is taken modulo 32"),
        (limited, "the shift of the rescaling is limited to 31 bits"),
        (first_shift, "the shift of the first channel is used for all channels"),
        (next_multiplier, "each channel has the multiplier of the next"),
    ],
)
def test_mistakes_in_rescaling_are_named(rescale, said):
    node = run(rescale)
    assert said in node.residual.likely
    assert node.residual.reproduces


def test_right_codes_and_another_rounding_are_not_accused():
    assert run(right).status == "explained"
    floor = run(lambda total, multiplier, shift, _: (total * multiplier) >> shift)
    assert floor.residual is None or not floor.residual.reproduces
