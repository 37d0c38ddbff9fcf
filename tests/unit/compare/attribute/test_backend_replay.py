"""A node is replayed on what its own run recorded, as real numbers."""

import numpy as np
import pytest

from qdebug.compare.attribute.backend_replay import describe_missing_kernel, quant_shared_with_data, replay
from qdebug.errors import KernelError, RecordingError
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo

QUANT = QuantParams(dtype="uint8", scale=np.float32(0.1), zero_point=7)


def recorded(node, arrays, *, quants=None, constants=()):
    tensors = [
        TensorInfo(name=name, role=Role.CONSTANT if name in constants else Role.INPUT, quant=(quants or {}).get(name))
        for name in node.inputs
    ]
    tensors.append(TensorInfo(name="y", role=Role.ACTIVATION, quant=(quants or {}).get("y")))
    graph = Graph([node], tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 17})
    return MemoryRecording.single(graph, arrays)


def replayed(recording):
    return replay(recording, recording.graph.nodes[0], "y", (0, 0))


def test_what_a_pad_fills_in_among_codes_is_a_code():
    node = Node(name="pad", op="Pad", inputs=("x", "pads", "fill"), outputs=("y",), attrs={"mode": "constant"})
    arrays = {
        "x": np.array([[3, 9, 250]], np.uint8),
        "pads": np.array([0, 1, 0, 1], np.int64),
        "fill": np.array(7, np.uint8),
    }
    padded = np.array([[7, 3, 9, 250, 7]], np.float32)
    run = recorded(node, arrays, quants={"x": QUANT, "y": QUANT}, constants=("pads", "fill"))
    np.testing.assert_allclose(replayed(run), (padded - 7) * np.float32(0.1), rtol=1e-6)


def test_codes_are_real_numbers():
    run = recorded(
        Node(name="r", op="Relu", inputs=("x",), outputs=("y",)), {"x": np.array([3, 9], np.uint8)}, quants={"x": QUANT}
    )
    np.testing.assert_allclose(replayed(run), [0, 0.2], rtol=1e-6)


def test_an_input_that_was_not_recorded_is_named():
    run = recorded(Node(name="a", op="Add", inputs=("x", "other"), outputs=("y",)), {"x": np.ones(2, np.float32)})
    with pytest.raises(RecordingError, match="'other' was not recorded"):
        replayed(run)


@pytest.mark.parametrize(("op", "why"), [("If", "inside this If"), ("Mystery", "no kernel is known for Mystery")])
def test_an_operator_without_kernel_is_named(op, why):
    node = Node(name="m", op=op, inputs=("x",), outputs=("y",))
    assert why in describe_missing_kernel(node)
    with pytest.raises(KernelError):
        replayed(recorded(node, {"x": np.ones(2, np.float32)}))


def test_of_what_a_pad_reads_the_fill_alone_is_in_the_codes_of_its_data():
    node = Node(name="pad", op="Pad", inputs=("x", "pads", "fill"), outputs=("y",))
    arrays = {"x": np.zeros((1, 3), np.uint8), "pads": np.int64([0, 1, 0, 1]), "fill": np.array(7, np.uint8)}

    def shared(quant, constants=("pads", "fill")):
        run = recorded(node, arrays, quants={"x": quant}, constants=constants)
        return [quant_shared_with_data(run, node, name) for name in node.inputs]

    assert shared(QUANT) == [None, None, QUANT]
    assert shared(QUANT, constants=("pads",)) == [None, None, None]
    assert shared(None) == [None, None, None]
    channels = QuantParams(dtype="uint8", scale=np.float32([0.1, 0.2, 0.3]), axis=1)
    assert shared(channels) == [None, None, None]
