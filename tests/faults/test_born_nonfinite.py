"""Nets that a lower precision breaks: where the first NaN or infinity is born, and which constant did not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from qdebug.api import diff
from qdebug.compare.result.result import RunComparison, Status
from qdebug.session import open_recording
from qdebug.workflow.record import record_run

onnx = pytest.importorskip("onnx")

SHAPE = (1, 3, 4, 4)

# each net: nodes (op, inputs, output, attributes) and its constants; "conv" comes first in all
CONV = ("Conv", ("x", "w", "b"), "conv", {})
NORM = ("BatchNormalization", ("conv", "gamma", "beta", "mean", "var"), "norm", {"epsilon": 1e-5})
ONES, ZEROS = np.ones(3, np.float32), np.zeros(3, np.float32)
CONSTANTS = {
    "w": np.eye(3, dtype=np.float32)[:, :, None, None] * 2,
    "b": np.array([0.5, -0.5, 0.25], np.float32),
    "gamma": ONES,
    "beta": ZEROS,
    "mean": ZEROS,
    "var": ONES,
}
NETS = {
    # the largest float16 is 65504
    "norm_overflows_and_is_clipped": (
        [CONV, NORM, ("Sigmoid", ("norm",), "gate", {}), ("Mul", ("gate", "conv"), "y", {})],
        {"gamma": ONES * 300, "var": ONES * 1e-4},
        "norm",
        None,
    ),
    "norm_overflows_to_the_end": (
        [CONV, NORM, ("Relu", ("norm",), "relu", {}), ("Mul", ("relu", "conv"), "y", {})],
        {"gamma": ONES * 300, "var": ONES * 1e-4},
        "norm",
        None,
    ),
    # the smallest float16 is 6e-8
    "variance_underflows": (
        [
            CONV,
            (*NORM[:3], {"epsilon": 1e-12}),
            ("Clip", ("norm", "low", "high"), "y", {}),
        ],
        {"var": np.array([1, 1e-9, 1], np.float32), "low": np.float32(-6), "high": np.float32(6)},
        "norm",
        "var",
    ),
    "log_of_an_epsilon_that_is_gone": (
        [
            CONV,
            ("Relu", ("conv",), "relu", {}),
            ("Add", ("relu", "tiny"), "kept_off", {}),
            ("Log", ("kept_off",), "log", {}),
            ("Exp", ("log",), "y", {}),
        ],
        {"tiny": np.float32(1e-9)},
        "log",
        "tiny",
    ),
    "log_to_the_end": (
        [
            CONV,
            ("Relu", ("conv",), "relu", {}),
            ("Add", ("relu", "tiny"), "kept_off", {}),
            ("Log", ("kept_off",), "log", {}),
            ("Add", ("log", "conv"), "y", {}),
        ],
        {"tiny": np.float32(1e-9)},
        "log",
        "tiny",
    ),
    "constant_overflows": (
        [CONV, ("Mul", ("conv", "large"), "wide", {}), ("Sigmoid", ("wide",), "y", {})],
        {"large": np.float32(1e5)},
        "wide",
        "large",
    ),
}


def model(name: str, dtype: type, path: Path) -> Path:
    """Write a net in one precision."""
    nodes, changed, _, _ = NETS[name]
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    reads = {tensor for _, inputs, _, _ in nodes for tensor in inputs}
    with np.errstate(over="ignore"):
        constants = {k: np.asarray(v).astype(dtype) for k, v in (CONSTANTS | changed).items() if k in reads}
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op, list(ins), [out], name=out, **attrs) for op, ins, out, attrs in nodes],
        name,
        [onnx.helper.make_tensor_value_info("x", kind, SHAPE)],
        [onnx.helper.make_tensor_value_info("y", kind, SHAPE)],
        [onnx.numpy_helper.from_array(array, key) for key, array in constants.items()],
    )
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 15)], ir_version=8)
    onnx.save(made, path)
    return path


def compared(name: str, folder: Path) -> RunComparison:
    """Record a net in float32 and in float16, and compare the two.

    ONNX Runtime computes float16 nets in float32 on the CPU; the interpreter rounds each tensor to float16.
    """
    x = np.random.default_rng(3).uniform(-4, 4, SHAPE).astype(np.float32)
    recordings = []
    for dtype in (np.float32, np.float16):
        path = model(name, dtype, folder / f"{np.dtype(dtype)}.onnx")
        out = folder / f"{np.dtype(dtype)}.h5"
        record_run(path, backend="interpreter", inputs={"x": x.astype(dtype)}, out=out)
        recordings.append(open_recording(out))
    return diff(*recordings)


@pytest.mark.parametrize("name", NETS)
def test_the_node_where_it_is_born_is_named(tmp_path, name):
    _, _, born, constant = NETS[name]
    result = compared(name, tmp_path)
    output = next(node for node in result.nodes if node.tensor == "y")
    assert (output.status is Status.NONFINITE) == name.endswith("to_the_end")
    assert result.verdict.status is Status.NONFINITE
    assert result.verdict.origin == born
    assert result.verdict.first_divergence == born
    if constant is not None:
        assert repr(constant) in result.verdict.sentence
