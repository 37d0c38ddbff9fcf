"""Nodes that ONNX Runtime makes of the model's keep the names that the model has for them."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.backends.onnxruntime.executed import source_tensors
from qdebug.model import Graph, Node, Role, TensorInfo
from qdebug.running.record import record_run
from qdebug.session import open_recording

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

NODES = (
    ("QuantizeLinear", "x s z", "codes"),
    ("DequantizeLinear", "codes s z", "real"),
    ("Slice", "real zero three axis", "part"),
    ("Slice", "real three six axis", "rest"),
    ("Tanh", "part", "y"),
    ("Sigmoid", "rest", "o"),
)
CONSTANTS = {
    "s": np.float32(0.02),
    "z": np.uint8(128),
    "zero": np.array([0]),
    "three": np.array([3]),
    "six": np.array([6]),
    "axis": np.array([1]),
}


def test_real_values_made_behind_what_moves_codes_have_the_model_s_node_as_origin(tmp_path):
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [helper.make_node(op, inputs.split(), [output], name=f"n_{output}") for op, inputs, output in NODES]
    values = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in CONSTANTS.items()]
    inputs = [helper.make_tensor_value_info("x", floats, [1, 6])]
    outputs = [helper.make_tensor_value_info(name, floats, None) for name in "yo"]
    graph = helper.make_graph(nodes, "sliced", inputs, outputs, values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "sliced.onnx")
    feed, out = {"x": np.ones((1, 1, 6), np.float32)}, tmp_path / "all.h5"
    options = {"opt": "extended"}
    record_run(tmp_path / "sliced.onnx", backend="onnxruntime", options=options, inputs=feed, samples=1, out=out)
    nodes = open_recording(out).graph.nodes
    found = [node for node in nodes if node.op == "DequantizeLinear"]
    assert len(found) == 2
    assert not {node.inputs[0] for node in found} & {"codes"}, "this runtime leaves the node where it was"
    assert [node.origin for node in found] == [("n_real",), ("n_real",)]


SLICED = ("codes", "s", "z", "start1", "start2", "end", "axis")


def sliced(*copies, outputs=("a", "b")):
    """Describe two Slices, of a copy each of the same real values; they differ in a constant alone."""
    nodes = [
        Node(name=name, op="DequantizeLinear", inputs=SLICED[:3], outputs=(f"of {name}",))
        for name in dict.fromkeys(copies)
    ]
    nodes += [
        Node(name=f"n{at}", op="Slice", inputs=(f"of {name}", f"start{at}", "end", "axis"), outputs=(output,))
        for at, name, output in zip((1, 2), copies, outputs, strict=True)
    ]
    constants = [TensorInfo(name=name, role=Role.CONSTANT) for name in SLICED[1:]]
    return Graph(nodes, tensors=constants, inputs=("codes",), outputs=outputs, opset={"": 17})


def test_a_node_is_not_taken_for_the_one_that_reads_another_copy_of_the_same_values():
    executed = sliced("another", "copy", outputs=("late 1", "late 2"))  # the copy that the model's n1 reads
    found = source_tensors(sliced("real", "real"), executed, sliced("copy", "second"))
    assert found.get("late 2", "b") == "b"
