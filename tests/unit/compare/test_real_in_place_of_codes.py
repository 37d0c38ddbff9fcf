"""Operators on codes of which a tensor was recorded as real values: not replayed, and judged by their whole error."""

import numpy as np
import pytest

import qdebug
from qdebug.compare.explaining.explanation import ExplainStatus
from qdebug.replay.real_form import describe_real_tensor

SCALES = {"x_scale": 0.1, "w_scale": 0.05, "y_scale": 0.2}


def recorded(*, real=(), noise=0.0):
    """Record x -> QuantizeLinear -> q -> QLinearMatMul -> y; tensors in `real` as real values, y off by `noise`."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 6)).astype(np.float32)
    q = np.clip(np.rint(x / np.float32(0.1)), -128, 127).astype(np.int8)
    w = rng.integers(-20, 20, (6, 5)).astype(np.int8)
    y = np.clip(np.rint((q.astype(np.int64) @ w) * (0.1 * 0.05 / 0.2)), -128, 127).astype(np.int8)
    with qdebug.Recorder(None, backend="npu") as rec:
        for name, value in SCALES.items():
            rec.constant(name, np.float32(value))
        rec.constant("zero", np.int8(0))
        rec.constant("w", w, scale=0.05)
        rec.put("x", x)
        facts = {"node": "quantize", "op": "QuantizeLinear", "inputs": ("x", "x_scale", "zero")}
        put(rec, "q", q, 0.1, facts, real="q" in real, noise=0.0)
        inputs = ("q", "x_scale", "zero", "w", "w_scale", "zero", "y_scale", "zero")
        put(rec, "y", y, 0.2, {"node": "dense", "op": "QLinearMatMul", "inputs": inputs}, real="y" in real, noise=noise)
        rec.outputs("y")
    return rec.recording


def put(rec, name, codes, scale, facts, *, real, noise):
    if real:
        rec.put(name, codes * np.float32(scale) + np.float32(noise), **facts)
    else:
        rec.put(name, codes, scale=np.float32(scale), **facts)


@pytest.mark.parametrize("real", [("q",), ("y",), ("q", "y")])
def test_no_arithmetic_is_named_where_codes_are_missing(real):
    found = {each.node: each for each in qdebug.explain(recorded(real=real, noise=0.03)).nodes}
    assert found["dense"].status is ExplainStatus.NO_KERNEL
    assert found["dense"].residual is None
    assert "was recorded as real values, and QLinearMatMul is on codes" in found["dense"].reason
    assert (found["quantize"].status is ExplainStatus.NO_KERNEL) == ("q" in real)


def test_nothing_is_called_wrong_that_is_near_the_reference():
    result = qdebug.diff(recorded(), recorded(real=("q", "y"), noise=0.03))
    row = next(node for node in result.nodes if node.node == "dense")
    assert (row.status, row.introduced) == ("within", None)
    far = qdebug.diff(recorded(), recorded(real=("y",), noise=3.0))
    row = next(node for node in far.nodes if node.node == "dense")
    assert row.status == "diverged"
    assert "this includes the error of its inputs, because its tensor 'y' was recorded as real values" in row.reason


def test_tensors_that_are_real_by_right_are_no_reason():
    graph = recorded().graph
    assert [describe_real_tensor(node, graph) for node in graph.nodes] == [None, None]
