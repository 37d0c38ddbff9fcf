"""A harness that knows no adapter has the answers of one: the same tensors, put with what the harness's words say."""

from pathlib import Path

import numpy as np
import pytest

import qdebug
from qdebug.backends import load_reader
from qdebug.running.record import record_run

DIGITS = Path(__file__).resolve().parents[2] / "samples" / "digits"
SAMPLES = 6


def facts(info):
    """What a harness says of a tensor's codes."""
    quant = info.quant
    if quant is None:
        return {}
    return {"scale": quant.scale, "zero_point": quant.zero_point, "axis": quant.axis}


def again(recording):
    """Record the tensors of a run once more by hand: constants, inputs, and what each node gives, in its own words."""
    graph = recording.graph
    with qdebug.Recorder(None, backend="my-npu") as rec:
        for name, info in graph.tensors.items():
            if graph.is_constant(name) and recording.has(name):
                rec.constant(name, recording.load(name), **facts(info))
        for place in recording.places(None):
            rec.at(*place)
            made = {name: node for node in graph.nodes for name in node.outputs}
            for name in (*graph.inputs, *made):
                if not recording.has(name, *place) or graph.is_constant(name):
                    continue
                node = made.get(name)
                said = {} if node is None else {
                    "node": node.name, "op": node.op, "inputs": node.inputs, "attrs": dict(node.attrs),
                }  # fmt: skip
                if node is not None and node.domain:
                    said["domain"] = node.domain
                rec.put(name, recording.load(name, *place), **said, **facts(graph.tensors[name]))
        rec.outputs(*graph.outputs)
    return rec.recording


def answers(recording):
    """What explain says of each output."""
    nodes = qdebug.explain(recording).nodes
    return {
        node.tensor: (node.op, node.status, node.members, node.match, node.witnesses, node.reason) for node in nodes
    }


@pytest.mark.parametrize(
    ("backend", "model", "package"),
    [
        ("onnxruntime", "digits.qdq.per_channel.onnx", "onnxruntime"),
        *(
            pytest.param(f"litert:kernels={kernels}", "digits_int8.tflite", "ai_edge_litert", marks=pytest.mark.slow)
            for kernels in ("reference", "builtin")
        ),
        pytest.param("litert", "digits_int8.tflite", "ai_edge_litert", marks=pytest.mark.slow),
        ("tflm", "digits_int8.tflite", "tflite_micro"),
        ("openvino:precision=f32", "digits.qdq.per_channel.onnx", "openvino.opset13"),
    ],
)
def test_the_answers_are_those_of_the_adapter(tmp_path, backend, model, package):
    pytest.importorskip(package, reason=f"needs {package}")  # this folder may have the name of the package alone
    name, _, stated = backend.partition(":")
    options = dict(pair.split("=") for pair in stated.split(",") if pair)
    (given,) = load_reader(DIGITS / model).graph.inputs
    with np.load(DIGITS / "digits_test.npz") as file:
        x = file["x"][:SAMPLES]
    x = x[:, None] if model.endswith(".onnx") else np.round(x[..., None] * 255 - 128).astype(np.int8)
    out = tmp_path / "run.h5"
    record_run(DIGITS / model, backend=name, options=options, inputs={given: x}, out=out, samples=SAMPLES)
    recording = qdebug.open_recording(out)
    found = {name: answer for name, answer in answers(recording).items() if recording.has(name)}  # not inside layers
    assert [status for _, status, *_ in found.values()].count("explained") >= SAMPLES
    assert answers(again(recording)) == found
