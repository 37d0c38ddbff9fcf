"""A device that hands on codes alone: its graph states their scales, and what it makes of them is not lost."""

import re

import numpy as np
import pytest

import qdebug
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, RunInfo, TensorInfo
from qdebug.model.recording import SkipCause

RNG = np.random.default_rng(7)
X, W = RNG.integers(0, 256, (40, 24)).astype(np.uint8), RNG.integers(-127, 128, (24, 16)).astype(np.int8)
SCALES = {"sx": 0.03, "sw": 0.004, "sy": 0.05}
ZEROS = {"zx": np.uint8(128), "zw": np.int8(0), "zy": np.uint8(3)}
REAL = (X.astype(np.float64) - 128) * 0.03 @ (W * 0.004)


def quant(dtype, scale, zero):
    return QuantParams(dtype=dtype, scale=np.float32(SCALES[scale]), zero_point=zero)


def graph():
    nodes = [
        Node(name="x_dq", op="DequantizeLinear", inputs=("xq", "sx", "zx"), outputs=("xd",)),
        Node(name="w_dq", op="DequantizeLinear", inputs=("w", "sw", "zw"), outputs=("wd",)),
        Node(name="fc", op="MatMul", inputs=("xd", "wd"), outputs=("f",)),
        Node(name="act", op="Relu", inputs=("f",), outputs=("r",)),
        Node(name="y_q", op="QuantizeLinear", inputs=("r", "sy", "zy"), outputs=("yq",)),
        Node(name="y_dq", op="DequantizeLinear", inputs=("yq", "sy", "zy"), outputs=("y",)),
    ]
    tensors = [TensorInfo(name=name, role=Role.CONSTANT) for name in (*SCALES, *ZEROS)]
    tensors += [TensorInfo(name="w", role=Role.CONSTANT, quant=quant("int8", "sw", 0))]
    tensors += [
        TensorInfo(name="xq", quant=quant("uint8", "sx", 128)),
        TensorInfo(name="yq", quant=quant("uint8", "sy", 3)),
    ]
    return Graph(nodes, tensors=tensors, inputs=["xq"], outputs=["y"], opset={"": 17})


def device(*, factor=1.0, whole=False):
    yq = np.clip(np.rint(np.maximum(REAL, 0) / 0.05 * factor) + 3, 0, 255).astype(np.uint8)
    values = {"xq": X, "w": W, "yq": yq} | ZEROS | {name: np.float32(scale) for name, scale in SCALES.items()}
    if whole:
        values |= {"xd": (X.astype(np.float32) - 128) * np.float32(0.03), "wd": W * np.float32(0.004)}
        values |= {"f": REAL.astype(np.float32), "r": np.maximum(REAL, 0).astype(np.float32)}
        values["y"] = (yq.astype(np.float32) - 3) * np.float32(0.05)
    left_out = [name for node in graph().nodes for name in node.outputs if name not in values]
    skipped, causes = dict.fromkeys(left_out, "not in the dump"), dict.fromkeys(left_out, SkipCause.NOT_DUMPED)
    return MemoryRecording.single(graph(), values, info=RunInfo(backend="npu", skipped=skipped, skip_causes=causes))


def test_an_output_whose_codes_were_kept_is_judged_by_them():
    result = qdebug.diff(device(whole=True), device())
    assert result.status in ("identical", "within")
    assert not [entry for entry in result.coverage.unmatched if entry.kind == "lost"]
    assert [node.tensor for node in result.nodes] == ["xq", "yq"]


@pytest.mark.parametrize("factor", [0.25, pytest.param(3.0, marks=pytest.mark.slow)])
def test_another_scale_is_no_other_operator_to_diff_nor_to_explain(factor):
    wrong = device(factor=factor)
    (told,) = [each for each in qdebug.explain(wrong).nodes if each.tensor == "yq"]
    assert (told.status, told.residual.pattern) == ("unexplained", "factor")
    result = qdebug.diff(device(whole=True), wrong)
    (row,) = [node for node in result.nodes if node.status == "diverged"]
    assert row.tensor == "yq"
    assert "arithmetic" in {str(found.kind) for found in row.findings}
    assert "operator" not in {str(found.kind) for found in row.findings}
    assert (result.diagnosis[0].fault, result.first_divergence) == ("kernel", "y_q")
    assert re.search(f"the elements are {factor:g}[0-9.]* times what they should be", result.diagnosis[0].why)
