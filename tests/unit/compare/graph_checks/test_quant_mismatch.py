"""Which inputs a node reads by another scale or zero point than they were written with."""

from dataclasses import replace

import numpy as np
import pytest

from qdebug.api import diff
from qdebug.compare.graph_checks.quant_mismatch import find_contradicted_codes, quant_mismatch
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.replay.run import run_graph

WRITTEN = QuantParams(dtype="uint8", scale=0.5, zero_point=3)


def recorded(*, scale=0.5, zero_point=3, quant=WRITTEN):
    constants = {
        "xs": np.float32(scale),
        "xz": np.uint8(zero_point),
        "w": np.ones((2, 1, 1, 1), np.int8),
        "ws": np.array([0.1, 0.2], np.float32),
        "wz": np.zeros(2, np.int8),
        "ys": np.float32(1),
        "yz": np.uint8(0),
        "b": np.zeros(2, np.int32),
    }
    node = Node(
        name="conv", op="QLinearConv", inputs=("x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"), outputs=("y",)
    )
    quants = {
        "x": quant,
        "w": QuantParams(dtype="int8", scale=constants["ws"], zero_point=[0, 0], axis=0),
        "b": QuantParams(dtype="int32", scale=[0.05, 0.1], axis=0),
    }
    tensors = [TensorInfo(name=name, role=Role.CONSTANT, quant=quants.get(name)) for name in constants]
    graph = Graph(
        [node], tensors=[*tensors, TensorInfo(name="x", role=Role.INPUT, quant=quant)], inputs=["x"], outputs=["y"]
    )
    arrays = {name: np.asarray(array) for name, array in constants.items()}
    return MemoryRecording.single(graph, arrays), node


def test_a_node_that_reads_what_was_written_has_no_finding():
    assert quant_mismatch(*recorded()) is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"scale": 1.0}, "it reads 'x' with scale 1, but 'x' was written with scale 0.5"),
        ({"zero_point": 0}, "it reads 'x' with zero point 0, but 'x' was written with zero point 3"),
    ],
)
def test_other_numbers_are_named_with_both(changed, said):
    assert quant_mismatch(*recorded(**changed)).sentence == said


def test_an_input_without_known_quantization_is_left_out():
    assert quant_mismatch(*recorded(scale=7.0, quant=None)) is None


def test_a_node_on_real_numbers_reads_no_scales():
    recording, _ = recorded()
    assert quant_mismatch(recording, Node(name="add", op="Add", inputs=("x", "xs"), outputs=("z",))) is None


def test_rolled_scales_of_channels_are_shortened():
    recording, node = recorded()
    swapped = Node(
        name="again", op="QLinearConv", inputs=(*node.inputs[:3], "w", "rolled", "wz", "ys", "yz"), outputs=("z",)
    )
    tensors = [*recording.graph.tensors.values(), TensorInfo(name="rolled", role=Role.CONSTANT)]
    graph = Graph([node, swapped], tensors=tensors, inputs=["x"], outputs=["y", "z"])
    arrays = {name: recording.load(name) for name in recording.names} | {"rolled": np.array([0.2, 0.1], np.float32)}
    found = quant_mismatch(MemoryRecording.single(graph, arrays), swapped)
    assert found.sentence == "it reads 'w' with scale [0.2, 0.1], but 'w' was written with scale [0.1, 0.2]"


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (WRITTEN, None),
        (None, None),
        (
            QuantParams(dtype="uint8", scale=1.0, zero_point=3),
            "its codes are written with scale 0.5, but read with scale 1",
        ),
        (
            QuantParams(dtype="uint8", scale=0.5, zero_point=0),
            "its codes are written with zero point 3, but read with zero point 0",
        ),
    ],
)
def test_codes_that_are_handed_on_keep_their_scale(read, said):
    node = Node(name="flat", op="Flatten", inputs=("x",), outputs=("y",))
    tensors = [TensorInfo(name="x", quant=WRITTEN), TensorInfo(name="y", quant=read)]
    graph = Graph([node], tensors=tensors, inputs=["x"], outputs=["y"])
    found = quant_mismatch(MemoryRecording.single(graph, {}), node)
    assert (found and found.sentence) == said
    computes = replace(node, op="HardSwish")
    assert quant_mismatch(MemoryRecording.single(graph, {}), computes) is None


X = np.random.default_rng(2).normal(size=(4, 64)).astype(np.float32)


def added(*, zero_point=30, scale=0.05, coded=True):
    """Run Tanh(x) + k, in real numbers or in codes; the sum's step is 8 times that of what it reads."""
    nodes = [Node(name="tanh", op="Tanh", inputs=("x",), outputs=("t",))]
    constants, known = {"k": np.full(64, 5, np.float32)}, {}
    if coded:
        known = {"t_q": QuantParams(dtype="uint8", scale=0.05, zero_point=30)}
        known["k"] = QuantParams(dtype="uint8", scale=0.05, zero_point=0)
        known["y_q"] = QuantParams(dtype="uint8", scale=0.4, zero_point=10)
        constants = {"k": np.full(64, 100, np.uint8), "ks": np.float32(0.05), "kz": np.uint8(0)}
        constants |= {"ts": np.float32(0.05), "tz": np.uint8(30), "ys": np.float32(0.4), "yz": np.uint8(10)}
        constants |= {"rs": np.float32(scale), "rz": np.uint8(zero_point)}
        inputs = ("t_q", "rs", "rz", "k", "ks", "kz", "ys", "yz")
        nodes.append(Node(name="codes", op="QuantizeLinear", inputs=("t", "ts", "tz"), outputs=("t_q",)))
        nodes.append(Node(name="sum", op="QLinearAdd", domain="com.microsoft", inputs=inputs, outputs=("y_q",)))
        nodes.append(Node(name="real", op="DequantizeLinear", inputs=("y_q", "ys", "yz"), outputs=("y",)))
    else:
        nodes.append(Node(name="sum", op="Add", inputs=("t", "k"), outputs=("y",)))
    infos = [TensorInfo(name=name, role=Role.CONSTANT, quant=known.get(name)) for name in constants]
    infos += [TensorInfo(name=name, quant=known[name]) for name in ("t_q", "y_q") if name in known]
    graph = Graph(nodes, tensors=infos, inputs=["x"], outputs=["y"], opset={"": 17, "com.microsoft": 1})
    arrays = {"x": X, **constants}
    run_graph(graph, {"x": X}, constants, on_tensor=lambda name, array: arrays.setdefault(name, np.array(array)))
    return MemoryRecording.single(graph, {name: np.asarray(array) for name, array in arrays.items()})


def test_a_zero_point_that_is_off_is_told_though_its_effect_is_less_than_a_code():
    real = added(coded=False)
    healthy = diff(real, added())
    assert healthy.exit_code == 0, healthy.verdict.sentence
    found = diff(real, added(zero_point=31))
    assert (found.origin, found.first_divergence) == ("sum", "sum"), found.verdict.sentence
    assert "it reads 't_q' with zero point 31, but 't_q' was written with zero point 30" in found.verdict.sentence


def test_a_reference_that_says_the_same_is_not_contradicted():
    assert diff(added(zero_point=31), added(zero_point=31)).exit_code == 0


def test_scales_that_are_rounded_differently_contradict_nobody():
    real = added(coded=False)
    assert diff(real, added(scale=0.05 * (1 + 1e-6))).exit_code == 0
    assert diff(real, added(scale=0.051)).exit_code == 1


def test_what_no_node_writes_contradicts_nobody():
    recording, node = recorded(zero_point=0)
    assert quant_mismatch(recording, node) is not None
    assert find_contradicted_codes(recording, node) is None
