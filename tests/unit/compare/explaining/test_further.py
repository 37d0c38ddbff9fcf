"""Causes of wrong results in the forms in which dumps arrive: values of codes, blank samples, errors in a part."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.compare.explaining.further import further_cause
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo

RNG = np.random.default_rng(5)
SOFTMAX = Node(name="node", op="Softmax", inputs=("x",), outputs=("y",), attrs={"axis": -1})


def softmax(values):
    powers = np.exp(values - values.max(-1, keepdims=True))
    return (powers / powers.sum(-1, keepdims=True)).astype(np.float32)


def cause(nodes, samples, tensor="y", infos=(), constants=None):
    """Return the cause of a tensor's values, in a recording of some samples."""
    tensors = [*infos, *(TensorInfo(name=name, role=Role.CONSTANT) for name in constants or {})]
    graph = Graph(nodes, tensors=tensors, inputs=["x"], outputs=[tensor], opset={"": 21})
    arrays = {(name, at, 0): array for at, values in enumerate(samples) for name, array in values.items()}
    arrays |= {(name, 0, 0): array for name, array in (constants or {}).items()}
    recording = MemoryRecording(graph, arrays)
    return further_cause(recording, graph.producer(tensor), tensor, recording.places(tensor))


def on_grid(values, step):
    return (np.rint(values / np.float32(step)) * np.float32(step)).astype(np.float32)


def test_dequantized_values_are_searched_as_codes():
    x = RNG.normal(size=(12, 30)).astype(np.float32)
    wrong = on_grid(softmax(x / 8), 0.0007)
    assert "'x' is multiplied by 0.12" in cause([SOFTMAX], [{"x": x, "y": wrong}])
    noisy = on_grid(softmax(x) + np.abs(RNG.normal(size=x.shape)) * 0.02, 0.0007)
    assert "reproduces" not in (cause([SOFTMAX], [{"x": x, "y": noisy}]) or "")


def test_a_blank_sample_rules_no_mistake_out():
    first, second = np.zeros((6, 30), np.float32), RNG.normal(size=(6, 30)).astype(np.float32)
    samples = [{"x": x, "y": softmax(x / 8)} for x in (first, second)]
    assert "'x' is multiplied by 0.125 first (reproduces every element)" in cause([SOFTMAX], samples)


@pytest.mark.parametrize("noise", [0, 0.1])
def test_a_number_that_differs_in_a_part(noise):
    x = RNG.normal(size=(6, 30)).astype(np.float32)
    wrong = softmax(x)
    wrong[:, -7:] = softmax(x / 8)[:, -7:] + noise * np.abs(RNG.normal(size=(6, 7)))
    sentence = cause([SOFTMAX], [{"x": x, "y": wrong}]) or ""
    expected = "only in the last 7 features of 30: 'x' is multiplied by 0.125 first (reproduces all wrong elements)"
    assert (expected in sentence) == (not noise)


@pytest.mark.parametrize("noise", [0, 0.1])
def test_a_mistake_before_a_rounding_to_codes_inside_a_layer(noise):
    x = RNG.normal(size=(6, 30)).astype(np.float32)
    scale = np.float32(0.003)
    quant = QuantParams(dtype="uint8", scale=scale, zero_point=0)
    nodes = [
        SOFTMAX,
        Node(name="quantize", op="QuantizeLinear", inputs=("y", "s", "z"), outputs=("codes",)),
        Node(name="dequantize", op="DequantizeLinear", inputs=("codes", "s", "z"), outputs=("real",)),
        Node(name="add", op="Add", inputs=("real", "offset"), outputs=("end",)),
    ]
    result = softmax(x.T).T + noise * np.abs(RNG.normal(size=x.shape))
    end = np.clip(np.rint(result / scale), 0, 255).astype(np.float32) * scale + np.float32(0.3)
    end[0, :2] += scale  # another order of sums may change a code
    infos = [TensorInfo(name="codes", dtype="uint8", quant=quant)]
    constants = {"s": scale, "z": np.uint8(0), "offset": np.float32(0.3)}
    sentence = cause(nodes, [{"x": x, "end": end.astype(np.float32)}], "end", infos, constants) or ""
    claim = "it works along axis 0, not -1 in 'node' (Softmax), inside the layer (reproduces every code to within one)"
    assert (claim in sentence) == (not noise)
