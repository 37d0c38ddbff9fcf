"""A view changes what it is made to change; all else is the recording's."""

import numpy as np

from qdebug.model import Graph, MemoryRecording, Node, QuantParams
from qdebug.model.view import View

GRAPH = Graph([Node(name="n", op="Relu", inputs=("x",), outputs=("y",))], inputs=["x"], outputs=["y"])
ARRAYS = {(name, sample, 0): np.full(2, float(sample)) for name in ("x", "y") for sample in range(2)}
RECORDING = MemoryRecording(GRAPH, ARRAYS, quants={("x", 1, 0): QuantParams(dtype="int8", scale=0.5)})


def test_without_changes_all_is_the_recordings():
    view = View(RECORDING)
    for name in ("info", "graph", "samples", "steps", "names", "event_quants"):
        assert getattr(view, name) is getattr(RECORDING, name)
    assert view.places("x") == RECORDING.places("x")
    assert view.load("x", 1) is RECORDING.load("x", 1)
    assert view.has("y", 1)
    assert not view.has("y", 2)
    assert view.kept("x") is None


def test_a_view_has_its_own_graph_constants_and_values():
    graph, constant = Graph(), np.ones(3)
    view = View(RECORDING, graph=graph, constants={"c": constant}, changes={"y": lambda array: array + 1})
    assert view.graph is graph
    assert view.names == RECORDING.names
    assert view.load("c", 5) is constant
    assert view.has("c", 5)
    assert view.places("c") == ((0, 0),)
    assert view.kept("c") is None
    assert view.load("y", 1).tolist() == [2.0, 2.0]
    assert view.load("x", 1).tolist() == [1.0, 1.0]
