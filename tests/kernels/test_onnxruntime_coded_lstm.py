"""DynamicQuantizeLSTM is ONNX Runtime's, bit for bit: data and states in codes, its approximations of functions."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from qdebug.compare.explaining.explain import explain_recording
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.replay.data_codes import ROW_GROUPS

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

spec = importlib.util.spec_from_file_location("packed", Path(__file__).with_name("test_onnxruntime_packed.py"))
packed = importlib.util.module_from_spec(spec)
spec.loader.exec_module(packed)


def layer(seed, steps, batch, size, hidden, *, directions=1, signed=True, columns=False, bias=True, peephole=False):
    rng = np.random.default_rng(seed)
    low, high, dtype = (-127, 128, np.int8) if signed else (0, 256, np.uint8)
    scales = (directions, 4 * hidden) if columns else (directions,)

    def codes(*shape):
        return rng.integers(low, high, shape).astype(dtype)

    def real(*shape):
        return (0.4 * rng.normal(size=shape)).astype(np.float32)

    zero = np.full(scales, 0 if signed else 131, dtype)
    parse_steps = [(0.002 + 0.004 * rng.random(scales)).astype(np.float32) for _ in range(2)]
    return [
        2 * real(steps, batch, size),
        codes(directions, size, 4 * hidden),
        codes(directions, hidden, 4 * hidden),
        real(directions, 8 * hidden) if bias else None,
        None,
        real(directions, batch, hidden),
        real(directions, batch, hidden),
        real(directions, 3 * hidden) if peephole else None,
        parse_steps[0],
        zero,
        parse_steps[1],
        zero,
    ]


CASES = {
    "one sample": layer(0, 5, 1, 7, 9),
    "samples": layer(1, 5, 3, 8, 16),
    "unsigned weights": layer(2, 12, 5, 20, 33, signed=False),
    "a scale for each gate": layer(3, 6, 2, 16, 24, columns=True),
    "both ways": layer(4, 7, 2, 12, 17, directions=2, columns=True),
    "no bias": layer(5, 4, 1, 16, 64, bias=False),
    "wide": layer(6, 3, 2, 5, 300),
}


@pytest.mark.parametrize("name", CASES)
def test_it_gives_what_the_runtime_gives(name):
    inputs = CASES[name]
    directions, hidden = inputs[2].shape[:2]
    attrs = {"hidden_size": hidden, "direction": "bidirectional" if directions == 2 else "forward"}
    theirs, ours = packed.run_both("DynamicQuantizeLSTM", inputs, outputs=3, fed=(0, 5, 6), **attrs)
    for one, other in zip(theirs, ours, strict=True):
        np.testing.assert_array_equal(other, one)


@pytest.mark.parametrize("way", ["forward", "reverse"])
def test_sequences_of_different_lengths(way):
    inputs = layer(7, 9, 4, 8, 10)
    inputs[4] = np.array([4, 7, 0, 3], np.int32)
    attrs = {"hidden_size": 10, "direction": way}
    theirs, ours = packed.run_both("DynamicQuantizeLSTM", inputs, outputs=3, fed=(0, 5, 6), **attrs)
    for one, other in zip(theirs, ours, strict=True):
        np.testing.assert_array_equal(other, one)


def test_peepholes_and_coupled_gates_up_to_rounding():
    inputs = layer(8, 6, 2, 8, 12, peephole=True)
    theirs, ours = packed.run_both(
        "DynamicQuantizeLSTM", inputs, outputs=3, fed=(0, 5, 6), hidden_size=12, input_forget=1
    )
    for one, other in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(other, one, rtol=0, atol=5e-7)


def recording(inputs, made, hidden):
    names = [name if value is not None else "" for name, value in zip("xWRBlhcpsztu", inputs, strict=True)]
    held = {name: value for name, value in zip(names, inputs, strict=True) if name}
    node = Node(
        name="lstm", op="DynamicQuantizeLSTM", domain=packed.MICROSOFT, inputs=tuple(names),
        outputs=("y", "yh", "yc"), attrs={"hidden_size": hidden},
    )  # fmt: skip
    held |= dict(zip(node.outputs, made, strict=True))
    infos = [
        TensorInfo(name=name, role=Role.INPUT if name == "x" else Role.CONSTANT, shape=held[name].shape)
        for name in filter(None, names)
    ]
    graph = Graph([node], tensors=infos, inputs=("x",), outputs=node.outputs, opset={packed.MICROSOFT: 1})
    return MemoryRecording.single(graph, held)


def test_a_run_is_explained_however_many_threads_share_the_samples():
    from qdebug.replay import run_node

    inputs = CASES["samples"]
    run = recording(inputs, [np.zeros(1, np.float32)] * 3, 16)
    (node,) = run.graph.nodes
    values = {name: run.load(name) for name in node.inputs if name}
    for groups in (1, 2, 3):
        way = Node(**{**node_facts(node), "attrs": {**node.attrs, ROW_GROUPS: groups}})
        made = run_node(way, values, run.graph.opset)
        found = explain_recording(recording(inputs, [made[name] for name in node.outputs], 16))
        assert {each.status for each in found.nodes} == {"in_band"}
        assert all((each.assumed is None) == (groups == 1) for each in found.nodes)


def node_facts(node):
    return {name: getattr(node, name) for name in ("name", "op", "domain", "inputs", "outputs", "attrs")}


def test_gates_in_another_order_are_found():
    inputs = CASES["one sample"]
    swapped = [None if value is None else value.copy() for value in inputs]
    for place in (1, 2):
        swapped[place] = inputs[place][..., np.r_[18:27, 9:18, 0:9, 27:36]]
    _, made = packed.run_both("DynamicQuantizeLSTM", swapped, outputs=3, fed=(0, 5, 6), hidden_size=9)
    found = explain_recording(recording(inputs, made, 9))
    assert found.exit_code == 1
    assert {each.status for each in found.nodes} == {"unexplained"}
