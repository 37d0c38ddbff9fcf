"""The graph around a node: two edges each way, no constants, the errors of edges, and a row for each node."""

import pytest

from qdebug.compare.result.result import Status
from qdebug.model import Graph, Node, Role, TensorInfo
from qdebug.present.surroundings import surroundings


def graph_of(*edges, inputs=("x",), constants=()):
    """Make a graph of (name, inputs) with one output each, `NAME_out`."""
    nodes = [Node(name=name, op="Conv", inputs=tuple(read), outputs=(f"{name}_out",)) for name, read in edges]
    tensors = [TensorInfo(name=name, role=Role.CONSTANT) for name in constants]
    return Graph(nodes=nodes, tensors=tensors, inputs=inputs, outputs=(f"{edges[-1][0]}_out",))


@pytest.fixture
def results(made):
    def of(**errors):
        return {
            name: made.node(at, Status.WITHIN, tensor=name, metrics=made.stats(rel_l2=error))
            for at, (name, error) in enumerate(errors.items())
        }

    return of


def seen(found):
    return {node.name: node.level for node in found.nodes}


def test_two_edges_each_way_and_no_constant(results):
    chain = graph_of(*((f"n{i}", (f"n{i - 1}_out" if i else "x", "w")) for i in range(7)), constants=("w",))
    found = surroundings(chain, results(n3_out=0.5, n4_out=0.25), "n3_out")
    assert seen(found) == {"n1": -2, "n2": -1, "n3": 0, "n4": 1, "n5": 2}
    names = [node.name for node in found.nodes]
    errors = {(names[edge.source], names[edge.target]): edge.error for edge in found.edges}
    assert errors == {("n1", "n2"): None, ("n2", "n3"): None, ("n3", "n4"): 0.5, ("n4", "n5"): 0.25}
    assert found.left_out == (0, 0)
    assert [node.result is not None for node in found.nodes] == [False, False, True, True, False]


def test_an_input_of_the_network_is_a_neighbour_and_can_be_the_middle(results):
    chain = graph_of(("a", ("x",)), ("b", ("a_out",)))
    assert seen(surroundings(chain, results(), "a_out")) == {"x": -1, "a": 0, "b": 1}
    assert seen(surroundings(chain, results(), "x")) == {"x": 0, "a": 1, "b": 2}


def test_no_edge_stays_within_a_row(results):
    """The skip of a residual block reads the same tensor as its branch."""
    block = graph_of(("a", ("x",)), ("b", ("a_out",)), ("c", ("b_out",)), ("add", ("c_out", "b_out")))
    found = surroundings(block, results(), "add_out")
    assert seen(found) == {"a": -3, "b": -2, "c": -1, "add": 0}
    assert all(found.nodes[edge.source].level < found.nodes[edge.target].level for edge in found.edges)
    assert len(found.edges) == 4


def test_of_many_readers_those_with_the_largest_error_are_kept(results):
    wide = graph_of(("a", ("x",)), *((f"r{i}", ("a_out",)) for i in range(9)))
    errors = {f"r{i}_out": i / 10 for i in range(8)} | {"r8_out": float("nan")}
    found = surroundings(wide, results(**errors), "a_out")
    assert [node.name for node in found.nodes if node.level == 1] == ["r6", "r7", "r8"]
    assert found.left_out == (0, 6)


def test_a_node_of_several_outputs_stands_for_the_worst(results):
    split = Node(name="s", op="Split", inputs=("x",), outputs=("s0", "s1"))
    graph = Graph(nodes=[split], inputs=("x",), outputs=("s0",))
    found = surroundings(graph, results(s0=0.1, s1=0.9), "s0")
    (middle,) = [node for node in found.nodes if node.level == 0]
    assert middle.result.tensor == "s1"
