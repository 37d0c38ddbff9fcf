"""What lies around a row: how far out each tensor stands, and which lead to which."""

from types import SimpleNamespace

import pytest

from qdebug.model import Graph, Node, Role, TensorInfo
from qdebug.tui.nodes.neighbourhood import find_neighbourhood
from qdebug.tui.nodes.rows import NodeTable, PlannedRow


@pytest.fixture
def around():
    """Return a function that finds what lies around a tensor; each tensor is named with what it is computed of."""

    def find(reads, tensor, **options):
        nodes = [Node(name=name, op="Op", inputs=inputs, outputs=(name,)) for name, inputs in reads.items()]
        tensors = [TensorInfo(name="w", shape=(2,), role=Role.CONSTANT)]
        graph = Graph(nodes, tensors=tensors, inputs=("x",), outputs=())
        names = ["x", *reads]
        rows = [PlannedRow(node=name, op="Op", tensor=name, reference_tensor=name) for name in names]
        found = find_neighbourhood(graph, NodeTable(rows), names.index(tensor), **options)
        levels = {level: [edge.tensor for edge in edges] for level, edges in found.levels.items()}
        return SimpleNamespace(levels=levels, links=set(found.links), inputs=[e.tensor for e in found.inputs])

    return find


def test_what_leads_past_another_input_stands_further_out(around):
    found = around({"a": ("x",), "b": ("a", "w"), "sum": ("b", "a"), "y": ("sum",)}, "sum")
    assert found.levels == {-3: ["x"], -2: ["a"], -1: ["b"], 0: ["sum"], 1: ["y"]}
    assert found.links == {("x", "a"), ("a", "b"), ("a", "sum"), ("b", "sum"), ("sum", "y")}
    assert found.inputs == ["b", "a"]


def test_constants_are_those_of_the_node_itself(around):
    found = around({"a": ("x", "w"), "b": ("a", "w"), "c": ("b",)}, "b")
    assert found.levels[-1] == ["a", "w"]
    assert ("w", "b") in found.links
    assert ("w", "a") not in found.links


def test_an_edge_past_the_node_is_known(around):
    found = around({"a": ("x",), "b": ("a",), "sum": ("b", "a")}, "b")
    assert ("a", "sum") in found.links


def test_no_more_levels_than_asked_and_not_all_of_a_crowd_far_away(around):
    chain = {f"t{at}": (f"t{at - 1}" if at else "x",) for at in range(10)}
    assert sorted(around(chain, "t5", depth=2).levels) == [-2, -1, 0, 1, 2]
    crowd = {"a": ("x",), **{f"r{at}": ("a",) for at in range(50)}, **{f"s{at}": (f"r{at}",) for at in range(50)}}
    found = around(crowd, "a")
    assert len(found.levels[1]) == 50, "all that read it can be chosen"
    assert len(found.levels[2]) == 8
