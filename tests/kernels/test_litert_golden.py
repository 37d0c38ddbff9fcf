"""The int8 digits net, node by node, as LiteRT's three sets of kernels compute it: each by its own arithmetic."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from qdebug.arithmetic.candidates import candidates
from qdebug.model import Node, QuantParams
from qdebug.replay import Coded, Variant, accumulate, compute, finish, parse_variant, unit_of_codes

HERE = Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("make_litert_golden", HERE / "make_litert_golden.py")
maker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(maker)
GOLDEN = json.loads((HERE / "litert_golden.json").read_text(encoding="utf-8"))
STORED = np.load(HERE / "litert_digits.npz")

RELU = (0.0, None)
NONE = (None, None)
SAME = {"pads": (1, 1, 1, 1), "channels_last": 1}
TWO = {"kernel_shape": (2, 2), "strides": (2, 2), "channels_last": 1}
FILTERS = (0, 3, 1, 2)
NET = (
    ("conv1", "Conv", "x", "w1", "b1", FILTERS, SAME, RELU),
    ("conv2", "Conv", "conv1", "w2", "b2", FILTERS, SAME, RELU),
    ("max", "MaxPool", "conv2", "", "", (), TWO, NONE),
    ("depthwise", "Conv", "max", "w3", "b3", (3, 0, 1, 2), SAME | {"group": 16}, RELU),
    ("pointwise", "Conv", "depthwise", "w4", "b4", FILTERS, {"channels_last": 1}, RELU),
    ("average", "AveragePool", "pointwise", "", "", (), TWO, NONE),
    ("fc1", "Gemm", "average", "w5", "b5", (0, 1), {"transB": 1}, RELU),
    ("fc2", "Gemm", "fc1", "w6", "b6", (0, 1), {"transB": 1}, NONE),
)
"""Output, operator, input, weight, bias, order of the weight's axes, attributes and fused activation of each node."""

DOUBLE = "m=q31:d:xw/y steps=shl,mulhi.up,shr.away,zp,sat"
UP_UP = "m=q31:d:xw/y steps=shl,mulhi.up,shr.up,zp,sat"
EVEN = "steps=mul,even,zp,sat"
ARITHMETIC = {
    "reference": {"Conv": DOUBLE, "Gemm": "m=q31:d:xw/y steps=mul,shr.away,zp,sat"},
    "optimized": {"Conv": UP_UP, "Gemm": UP_UP},
    "default": {"Conv": EVEN, "Gemm": EVEN},
}
WHOLE = {"AveragePool": "form=raw m=q31 steps=avg.away,sat", "MaxPool": "steps=scale,div,even,zp,sat"}


def coded(name, values, axis=0):
    scale = STORED[f"{name}.scale"]
    along = axis if scale.size > 1 else None
    return Coded(values=values, quant=quant_of(name, values.dtype.name, along))


def quant_of(name, dtype, axis=None):
    return QuantParams(dtype=dtype, scale=STORED[f"{name}.scale"], zero_point=STORED[f"{name}.zero"], axis=axis)


def first_codes():
    return maker.quantized(maker.images(), STORED["x.scale"][0], STORED["x.zero"][0])


def units(kind):
    """Compute the net by an arithmetic; give each node's name, operator, unit and codes."""
    values = {"x": first_codes()}
    for name, op, source, weight, bias, order, attrs, bounds in NET:
        x = values[source]
        # Between the pool and the first full layer the net turns channels first and flattens.
        given = x.transpose(0, 3, 1, 2).reshape(len(x), -1) if name == "fc1" else x
        inputs = [coded(source, given)]
        if weight:
            inputs += [coded(weight, STORED[weight].transpose(order)), coded(bias, STORED[bias])]
        node = Node(name=name, op=op, inputs=("i",) * len(inputs), outputs=(name,), attrs=attrs)
        unit = unit_of_codes(node, inputs, quant_of(name, "int8"), bounds=bounds)
        values[name] = compute(unit, parse_variant((ARITHMETIC[kind] | WHOLE)[op]))
        yield name, op, unit, values[name]


@pytest.mark.parametrize("kind", ARITHMETIC)
def test_every_tensor_is_litert_s(kind):
    assert maker.hashed(first_codes()) == GOLDEN[f"x {kind}"]
    wrong = [name for name, _, _, codes in units(kind) if maker.hashed(codes) != GOLDEN[f"{name} {kind}"]]
    assert not wrong


def test_the_sets_of_kernels_differ():
    assert len({GOLDEN[f"conv1 {kind}"] for kind in ARITHMETIC}) > 1
    assert len({GOLDEN[f"fc1 {kind}"] for kind in ARITHMETIC}) > 1


@pytest.mark.parametrize("kind", ARITHMETIC)
def test_convolutions_rule_out_the_others(kind):
    unit = next(unit for name, _, unit, _ in units(kind) if name == "conv2")
    columns = accumulate(unit, Variant().sums)
    left = set()
    for variant in candidates(unit):
        if variant.sums == columns.sums:
            codes = finish(unit, columns, variant).reshape(columns.shape)
            if maker.hashed(np.moveaxis(codes, 1, -1)) == GOLDEN[f"conv2 {kind}"]:
                left.add(str(variant))
    assert str(parse_variant(ARITHMETIC[kind]["Conv"])) in left
    other = EVEN if kind != "default" else DOUBLE
    assert str(parse_variant(other)) not in left
