"""A scale of 0, as runtimes write it of data that is all zero, is compared and explained like any other."""

from dataclasses import replace

import numpy as np
import pytest

import qdebug
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo

ONE, SOFTMAX = (("Relu", {}), ("Clip", {"min": 0.0, "max": 6.0}), ("Transpose", {"perm": [1, 0]})), ("Softmax", {})


def recorded(op, attrs, *, scales=None):
    rec = qdebug.Recorder(None, backend="b")
    for name, scale in zip("xy", scales or (None, None), strict=True):
        values = np.zeros((8, 8), np.int8 if scales else np.float32)
        facts = {"node": "n", "op": op, "inputs": ("x",), "attrs": attrs} if name == "y" else {}
        rec.put(
            name, values + (0 if scales or op != "Softmax" or name == "x" else np.float32(0.125)), scale=scale, **facts
        )
    rec.outputs("y")
    rec.close()
    return rec.recording


@pytest.mark.parametrize("scales", [(0.0, 0.0), (0.1, 0.0), (0.0, 0.1)], ids=str)
@pytest.mark.parametrize(("op", "attrs"), [*ONE, SOFTMAX])
def test_a_scale_of_zero(op, attrs, scales):
    backend = recorded(op, attrs, scales=scales)
    result = qdebug.diff(recorded(op, attrs), backend)
    assert result.nodes[0].status == "identical"
    assert (result.nodes[1].status == "identical") == (op != "Softmax")
    (node,) = qdebug.explain(backend).nodes
    assert node.status in ("explained", "unexplained")
    if node.status == "unexplained":
        assert "scale of its output is 0" in node.reason or op == "Softmax"


@pytest.mark.parametrize("scale", [0.0, 1.0, 1 / 255])
def test_any_scale_is_right_of_data_that_is_all_zero(scale):
    with qdebug.Recorder(None, backend="b") as rec:
        rec.put("x", np.zeros((2, 8), np.float32))
        for name, made in (("q", np.zeros((2, 8), np.uint8)), ("s", np.float32(scale)), ("z", np.uint8(0))):
            rec.put(name, made, node="dynamic", op="DynamicQuantizeLinear", inputs=("x",))
    assert {str(node.status) for node in qdebug.explain(rec.recording).nodes} == {"in_band"}


def dynamic(scale, *, data=0.0):
    """Record a dynamic quantization, its codes multiplied and made real numbers again."""
    x = np.full((2, 8), data, np.float32)
    with qdebug.Recorder(None, backend="b") as rec:
        rec.put("x", x)
        for name, made in (("q", np.zeros((2, 8), np.uint8)), ("s", np.float32(scale)), ("z", np.uint8(0))):
            rec.put(name, made, node="dynamic", op="DynamicQuantizeLinear", inputs=("x",))
        rec.put("f", np.zeros((2, 8), np.float32), node="cast", op="Cast", inputs=("q",), attrs={"to": 1})
        rec.put("y", np.zeros((2, 8), np.float32), node="mul", op="Mul", inputs=("f", "s"))
        rec.outputs("y")
    return rec.recording


@pytest.mark.parametrize(("theirs", "ours"), [(0.0, 1 / 255), (1.0, 1 / 255), (1 / 255, 0.0), (0.0, 1.0), (2.0, 1e-30)])
def test_scales_of_data_that_is_all_zero_may_differ(theirs, ours):
    result = qdebug.diff(dynamic(theirs), dynamic(ours))
    row = next(each for each in result.nodes if each.tensor == "s")
    assert (row.status, row.findings) == ("within", ())
    assert result.exit_code == 0


@pytest.mark.parametrize(("scale", "data"), [(-1.0, 0.0), (np.inf, 0.0), (np.nan, 0.0), (0.5, 1.0)])
def test_what_is_no_scale_or_is_one_of_other_data_is_beyond_the_limit(scale, data):
    result = qdebug.diff(dynamic(1 / 255, data=data), dynamic(scale, data=data))
    row = next(each for each in result.nodes if each.tensor == "s")
    assert row.status in ("diverged", "nonfinite")


@pytest.mark.parametrize("scale", [np.nan, np.inf])
def test_codes_without_a_valid_scale_inside_a_layer_are_compared(scale):
    rng = np.random.default_rng(1)
    x, codes = rng.normal(size=(4, 24)).astype(np.float32), rng.integers(-128, 128, (4, 24)).astype(np.int8)
    relu = Node(name="n", op="Relu", inputs=("x",), outputs=("y",))
    reference = MemoryRecording.single(Graph([relu], inputs=["x"], outputs=["y"]), {"x": x, "y": np.maximum(x, 0)})
    nodes = [
        replace(relu, outputs=("r",)),
        Node(name="q", op="QuantizeLinear", inputs=("r", "s", "z"), outputs=("c",)),
        Node(name="d", op="DequantizeLinear", inputs=("c", "s", "z"), outputs=("y",)),
    ]
    quant = QuantParams(dtype="int8", scale=np.float32(scale), zero_point=0)
    tensors = [
        TensorInfo(name="c", dtype="int8", quant=quant),
        *(TensorInfo(name=name, role=Role.CONSTANT) for name in "sz"),
    ]
    graph = Graph(nodes, tensors=tensors, inputs=["x"], outputs=["y"])
    values = {"x": x, "s": np.float32(scale), "z": np.int8(0), "c": codes, "y": codes * np.float32(0.1)}
    assert qdebug.diff(reference, MemoryRecording.single(graph, values)).status == "nonfinite"
