"""A node whose data are quantized and whose weight is not is pointed out; it decides nothing."""

import numpy as np
import pytest

import qdebug
from qdebug.compare.result.finding import FindingKind, FindingRole

X = np.linspace(-1, 1, 12).reshape(3, 4).astype(np.float32)
W = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
STEP, WEIGHT_STEP = np.float32(1 / 127), np.float32(np.abs(W).max() / 127)


def recorded(*, data="float", weight="float"):
    """A product of data and weight, each of them float, quantized and dequantized, or rounded in place."""
    codes = {"x": np.rint(X / STEP).astype(np.int8), "w": np.rint(W / WEIGHT_STEP).astype(np.int8)}
    steps, floats, reads = {"x": STEP, "w": WEIGHT_STEP}, {"x": X, "w": W}, {"x": "x", "w": "w"}
    with qdebug.Recorder(None, backend="b") as rec:
        for name, form in (("w", weight), ("x", data)):
            put = rec.constant if name == "w" else rec.put
            real = (codes[name] * steps[name]).astype(np.float32)
            if form == "codes":
                reads[name] = f"{name}_real"
                put(f"{name}_codes", codes[name], scale=steps[name])
                rec.put(reads[name], real, node=f"dequantize {name}", op="DequantizeLinear", inputs=(f"{name}_codes",))
                floats[name] = real
            else:
                put(name, floats[name])
            if form == "rounded":
                reads[name], floats[name] = f"{name}_real", real
                rec.put(reads[name], real, node=f"round {name}", op="FakeQuantize", inputs=(name,))
        rec.put("y", floats["x"] @ floats["w"], node="product", op="MatMul", inputs=(reads["x"], reads["w"]))
        rec.outputs("y")
    return rec.recording


def remarks(backend):
    result = qdebug.diff(recorded(), backend)
    found = [finding for node in result.nodes for finding in node.findings if finding.kind is FindingKind.WEIGHT]
    return [(each.node, each.evidence) for each in found if each.role is FindingRole.NOTE]


@pytest.mark.parametrize("data", ["codes", "rounded"])
def test_float_weights_beside_quantized_data_are_pointed_out(data):
    assert remarks(recorded(data=data)) == [("product", "w")]


@pytest.mark.parametrize("forms", [("float", "float"), ("codes", "codes"), ("rounded", "rounded"), ("float", "codes")])
def test_other_products_are_not(forms):
    assert remarks(recorded(data=forms[0], weight=forms[1])) == []
