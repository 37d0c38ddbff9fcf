"""What codes without a scale are, seen from the products that sum them up."""

import numpy as np
import pytest

from qdebug.compare.align.clamps import is_codes_without_scale
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo


def node(op, inputs, output):
    return Node(name=f"n_{output}", op=op, inputs=tuple(inputs.split()), outputs=(output,))


@pytest.mark.parametrize(
    ("nodes", "quant", "expected"),
    [
        ([node("MatMulInteger", "x w", "y")], None, True),
        ([node("Reshape", "x s", "r"), node("Transpose", "r", "t"), node("MatMulInteger", "t w", "y")], None, True),
        ([node("Neg", "x", "r"), node("MatMulInteger", "r w", "y")], None, False),
        ([node("MatMulInteger", "a w x", "y")], None, False),  # its zero point
        ([node("Reshape", "x s", "y")], None, False),
        ([node("MatMulInteger", "x w", "y")], QuantParams(dtype="int8", scale=np.float32(0.5)), False),
    ],
)
def test_codes_without_a_scale_are_what_a_product_sums_up_however_they_are_arranged(nodes, quant, expected):
    infos = [TensorInfo(name="x", role=Role.INPUT, dtype="int8", quant=quant)]
    infos += [TensorInfo(name=name, role=Role.CONSTANT) for name in ("w", "s")]
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=("y",))
    run = IndexedRecording.of(MemoryRecording.single(graph, {"x": np.zeros((2, 2), np.int8)}))
    assert is_codes_without_scale(run, "x") is expected
