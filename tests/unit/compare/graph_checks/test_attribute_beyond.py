"""An attribute of a fused node that no node of the reference has."""

from __future__ import annotations

import numpy as np

import qdebug
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.replay import run_node

RNG = np.random.default_rng(17)
OPSET = {"": 23}


def real(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def test_an_attribute_of_a_fused_node_that_the_reference_has_not():
    values = {"x": real(12, 12), "w": real(12, 12), "b": real(12)}
    nodes = [
        Node(name="mm", op="MatMul", inputs=("x", "w"), outputs=("m",)),
        Node(name="add", op="Add", inputs=("m", "b"), outputs=("y",)),
    ]
    tensors = [TensorInfo(name=name, role=Role.CONSTANT) for name in ("w", "b")]
    plain = Graph(nodes, tensors=tensors, inputs=["x"], outputs=["y"], opset=OPSET)
    product = (values["x"] @ values["w"]).astype(np.float32)
    reference = MemoryRecording.single(plain, {**values, "m": product, "y": product + values["b"]})
    fused = Node(name="mm", op="Gemm", inputs=("x", "w", "b"), outputs=("y",), attrs={"transA": 1})
    whole = Graph([fused], tensors=tensors, inputs=["x"], outputs=["y"], opset=OPSET)
    backend = MemoryRecording.single(whole, {**values, "y": run_node(fused, values, OPSET)["y"]})
    (found,) = [each for each in qdebug.diff(reference, backend)["y"].findings if each.role == "difference"]
    assert (
        found.sentence
        == "its transA is 1; without this attribute it computes the same as MatMul + Add in the reference"
    )
