"""A harness need not say what a node reads, and knows an operator's name all the same: nothing breaks."""

import itertools

import numpy as np
import pytest
from sweeps import sweep

import qdebug

OPS = (
    *("Cast", "Conv", "ConvInteger", "DequantizeLinear", "Dropout", "DynamicQuantizeLinear", "Expand", "Flatten"),
    *("Gather", "HardSwish", "Identity", "MatMulInteger", "MaxPool", "QLinearConv", "QuantizeLinear", "QuickGelu"),
    *("Relu", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"),
)
VALUES = np.arange(8, dtype=np.float32).reshape(1, 8)
CODES = {"array": np.arange(8, dtype=np.int8).reshape(1, 8), "scale": 0.9, "zero_point": -1}


def recorded(op, *, inputs, **stored):
    """Record a node of an operator and one that reads it."""
    attrs = {"perm": (1, 0)} if op == "Transpose" else {}
    with qdebug.Recorder(None, backend="harness") as rec:
        rec.put("x", VALUES)
        rec.put("y", node="n", op=op, inputs=inputs, attrs=attrs, **stored)
        rec.put("z", node="m", op="Relu", inputs=("y",), **stored)
    return rec.recording


@pytest.mark.parametrize(("op", "inputs"), sweep(itertools.product(OPS, [(), ("x",)]), 16))
def test_every_pair_of_runs_is_compared_whatever_a_node_is_called(op, inputs):
    real = recorded(op, inputs=inputs, array=VALUES + 1)
    wrong = recorded(op, inputs=inputs, array=(VALUES + 1) * 2)
    coded = recorded(op, inputs=inputs, **CODES)
    for reference, backend in ((real, wrong), (real, coded), (coded, real), (coded, coded)):
        result = qdebug.diff(reference, backend)
        assert {node.tensor for node in result.nodes} >= {"x", "z"}
        assert result.status != "identical" or reference is backend
        assert qdebug.explain(backend).to_json()
