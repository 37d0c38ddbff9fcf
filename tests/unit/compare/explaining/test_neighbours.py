"""What neighbours say of an unexplained node."""

from __future__ import annotations

from qdebug.compare.explaining.explanation import ExplainStatus, NodeExplanation
from qdebug.compare.explaining.neighbours import with_neighbours
from qdebug.model import Graph, Node

CHAIN = Graph(
    [
        Node(name="conv", op="Conv", inputs=("x",), outputs=("a",), attrs={"channels_last": 1}),
        Node(name="add", op="Add", inputs=("a", "b"), outputs=("c",)),
        Node(name="turn", op="Transpose", inputs=("c",), outputs=("d",)),
        Node(name="mul", op="Mul", inputs=("d", "d"), outputs=("e",)),
        Node(name="last", op="Conv", inputs=("e",), outputs=("f",)),
    ],
    inputs=["x", "b"],
    outputs=["f"],
)


def reasons(*unexplained, graph=CHAIN, reason=None):
    answers = [
        NodeExplanation(
            node=node.name,
            op=node.op,
            tensor=node.outputs[0],
            status=ExplainStatus.UNEXPLAINED if node.name in unexplained else ExplainStatus.EXPLAINED,
            reason=reason if node.name in unexplained else None,
        )
        for node in graph.nodes
    ]
    return {answer.node: answer.reason for answer in with_neighbours(graph, answers)}


def test_a_wrong_kernel_alone_is_no_wrong_recording():
    assert set(reasons("add").values()) == {None}


def test_values_that_nothing_goes_with_may_have_been_recorded_wrongly():
    found = reasons("add", "turn", reason="known before")
    assert found["add"].startswith("known before; the nodes that read it are unexplained too")
    assert "its input 'c' is unexplained too" in found["turn"]
    assert found["mul"] is None


def test_where_most_is_unexplained_neighbours_say_nothing():
    assert set(reasons("conv", "add", "turn").values()) == {None}
