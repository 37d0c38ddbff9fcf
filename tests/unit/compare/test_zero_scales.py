"""A scale of 0, as runtimes write it of data that is all zero, is compared and explained like any other."""

import numpy as np
import pytest

import qdebug

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
