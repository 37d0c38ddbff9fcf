"""Which inputs a node reads by another scale or zero point than they were written with."""

from dataclasses import replace

import numpy as np
import pytest

from qdebug.analysis.declarations.misread import misread
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo

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
    assert misread(*recorded()) is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"scale": 1.0}, "it reads 'x' by scale 1, and that was written with 0.5"),
        ({"zero_point": 0}, "it reads 'x' by zero point 0, and that was written with 3"),
    ],
)
def test_other_numbers_are_named_with_both(changed, said):
    assert misread(*recorded(**changed)) == said


def test_an_input_without_known_quantization_is_left_out():
    assert misread(*recorded(scale=7.0, quant=None)) is None


def test_a_node_on_real_numbers_reads_no_scales():
    recording, _ = recorded()
    assert misread(recording, Node(name="add", op="Add", inputs=("x", "xs"), outputs=("z",))) is None


def test_rolled_scales_of_channels_are_shortened():
    recording, node = recorded()
    swapped = Node(
        name="again", op="QLinearConv", inputs=(*node.inputs[:3], "w", "rolled", "wz", "ys", "yz"), outputs=("z",)
    )
    tensors = [*recording.graph.tensors.values(), TensorInfo(name="rolled", role=Role.CONSTANT)]
    graph = Graph([node, swapped], tensors=tensors, inputs=["x"], outputs=["y", "z"])
    arrays = {name: recording.load(name) for name in recording.names} | {"rolled": np.array([0.2, 0.1], np.float32)}
    said = misread(MemoryRecording.single(graph, arrays), swapped)
    assert said == "it reads 'w' by scale [0.2, 0.1], and that was written with [0.1, 0.2]"


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (WRITTEN, None),
        (None, None),
        (
            QuantParams(dtype="uint8", scale=1.0, zero_point=3),
            "it hands on codes written with scale 0.5, and they are read by 1",
        ),
        (
            QuantParams(dtype="uint8", scale=0.5, zero_point=0),
            "it hands on codes written with zero point 3, and they are read by 0",
        ),
    ],
)
def test_codes_that_are_handed_on_keep_their_scale(read, said):
    node = Node(name="flat", op="Flatten", inputs=("x",), outputs=("y",))
    tensors = [TensorInfo(name="x", quant=WRITTEN), TensorInfo(name="y", quant=read)]
    graph = Graph([node], tensors=tensors, inputs=["x"], outputs=["y"])
    assert misread(MemoryRecording.single(graph, {}), node) == said
    computes = replace(node, op="HardSwish")
    assert misread(MemoryRecording.single(graph, {}), computes) is None
