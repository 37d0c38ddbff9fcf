"""The graph screen of a node that the reference alone has: its neighbours are those in the reference's graph."""

import numpy as np
import pytest

from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.session import DiffSession
from qdebug.tui.drawing.glyphs import UNICODE
from qdebug.tui.nodes.navigator import Navigator
from qdebug.tui.pages.elements import ElementCursor
from qdebug.tui.pages.page import Scene
from qdebug.tui.pages.table import Pages
from qdebug.tui.reading.plan_rows import describe
from qdebug.tui.screen.journey import to_worst_input
from qdebug.tui.screens import ScreenId

X = np.float32([[-1.0, 2.0, 3.0]])


def recording(nodes, arrays):
    tensors = [TensorInfo(name=name, dtype="float32", shape=array.shape) for name, array in arrays.items()]
    tensors += [TensorInfo(name="k", dtype="float32", shape=(), role=Role.CONSTANT)]
    made = [Node(name=name, op=op, inputs=inputs, outputs=(name,), attrs=attrs) for name, op, inputs, attrs in nodes]
    graph = Graph(made, tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 17})
    return MemoryRecording.single(graph, {**arrays, "k": np.float32(2)})


@pytest.fixture
def scene():
    """Return the screen's scene; of three nodes of the reference the backend has computed two together."""
    apart = [("a", "Mul", ("x", "k"), {}), ("b", "Sigmoid", ("a",), {"alpha": 0.5}), ("y", "Neg", ("b",), {})]
    b = (1 / (1 + np.exp(-X * 2))).astype(np.float32)
    reference = recording(apart, {"x": X, "a": X * 2, "b": b, "y": -b})
    backend = recording([("y", "Odd", ("x",), {})], {"x": X, "y": -b})
    opened = describe(DiffSession(reference, backend))
    return Scene(
        navigator=Navigator(opened.table, samples=1),
        opened=opened,
        result=None,
        ready=None,
        glyphs=UNICODE,
        colours=True,
    )


def row_of(scene, name):
    (row,) = (at for at, planned in enumerate(scene.table.rows) if planned.node == name)
    return row


def text(lines):
    return "\n".join("".join(piece for piece, _ in line) for line in lines)


def test_its_neighbours_are_those_of_the_reference_s_graph(scene):
    page = Pages(ElementCursor())[ScreenId.GRAPH]
    scene.navigator.go(row_of(scene, "b"))
    assert scene.planned.tensor == ""
    drawn = text(page.draw(scene, 100, 24))
    assert "1 input" in drawn
    assert "read by 1" in drawn
    assert "alpha=0.5" in drawn
    assert "the graph of the reference" in drawn
    page.side(scene, -1)
    assert scene.planned.node == "a"
    drawn = text(page.draw(scene, 100, 24))
    assert "2 inputs" in drawn
    assert "constant" in drawn
    page.side(scene, 1)
    page.side(scene, 1)
    assert scene.planned.node == "y"  # which is compared, and walked along in the backend's graph again
    assert "the graph of the reference" not in text(page.draw(scene, 100, 24))


def test_nothing_is_said_of_what_it_adds_itself(scene):
    scene.navigator.go(row_of(scene, "b"))
    assert to_worst_input(scene).startswith("not known: the reference alone has this node")
