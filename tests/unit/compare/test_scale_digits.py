"""Scales that round to one float32 are one scale, whether they were recorded as float32 or float64."""

import numpy as np
import pytest

import qdebug

RNG = np.random.default_rng(0)
SCALES = {"x": 0.0123456, "w": 0.00234567, "y": 0.0456789}
CODES = {name: RNG.integers(-127, 128, shape).astype(np.int8) for name, shape in (("x", (4, 64)), ("w", (32, 64)))}


def as_printed(scale):
    return float(f"{np.float32(scale):.9g}")


def dense(form, *, off=0):
    """Record a dense layer of LiteRT on int8, some of its results off by a code."""
    single = {name: np.float64(np.float32(scale)) for name, scale in SCALES.items()}
    sums = CODES["x"].astype(np.int64) @ CODES["w"].astype(np.int64).T
    y = np.clip(np.rint(sums * (single["x"] * single["w"] / single["y"])), -128, 127).astype(np.int8)
    y[0, :off] += 1
    scales = {name: form(scale) for name, scale in SCALES.items()}
    with qdebug.Recorder(None, backend="b") as rec:
        rec.constant("w", CODES["w"], scale=scales["w"], zero_point=0)
        rec.put("x", CODES["x"], scale=scales["x"], zero_point=0)
        attrs = {"fused_activation_function": "NONE"}
        facts = {"node": "fc", "op": "FULLY_CONNECTED", "inputs": ("x", "w"), "attrs": attrs}
        rec.put("y", y, scale=scales["y"], zero_point=0, **facts)
        rec.outputs("y")
    return rec.recording


@pytest.mark.parametrize("form", [float, as_printed])
def test_equal_codes_are_equal_by_scales_of_other_digits(form):
    for pair in ((np.float32, form), (form, np.float32)):
        result = qdebug.diff(*map(dense, pair))
        assert [(node.tensor, node.status) for node in result] == [("x", "identical"), ("y", "identical")]


@pytest.mark.parametrize("form", [np.float32, float, as_printed])
def test_codes_that_differ_are_counted_whichever_digits_their_scale_has(form):
    result = qdebug.diff(dense(np.float32), dense(form, off=3))
    assert (result["y"].metrics.mismatches, result["y"].metrics.max_lsb) == (3, 1)
    assert "Codes differ first at FULLY_CONNECTED 'fc': 3 of 128 elements" in result.verdict.sentence
