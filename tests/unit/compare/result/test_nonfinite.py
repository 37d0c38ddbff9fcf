"""The birth that reaches the worst output, and the shortest path from there."""

import pytest

from qdebug.compare.align.pairs import Match
from qdebug.compare.attribute.birth import Birth, BirthRule
from qdebug.compare.policy import verdict
from qdebug.compare.result.nonfinite import find_nonfinite_origin
from qdebug.compare.result.result import NodeResult, Status
from qdebug.compare.result.result_table import ResultTable
from qdebug.model import Graph, Node


def birth(name):
    return Birth(
        node=name, op="Div", tensor=name, sample=0, step=0, index=(1,), value=float("inf"), elements=1,
        rule=BirthRule.OVERFLOW, format="float16", largest=65504.0, exact=7e4,
    )  # fmt: skip


def results(graph, *, spoilt, births):
    """Return a result for each node: those in `spoilt` are not finite, those in `births` are where it is born."""
    nodes = [
        NodeResult(
            index=index, node=node.name, op=node.op, tensor=node.outputs[0], reference_tensor=node.outputs[0],
            match=Match.EXACT, match_reason="same name",
            status=Status.NONFINITE if node.name in spoilt else Status.WITHIN,
            born=birth(node.name) if node.name in births else None,
        )
        for index, node in enumerate(graph.nodes)
    ]  # fmt: skip
    return ResultTable(nodes)


def net(edges, outputs):
    """Return a graph of nodes given as "name: inputs"."""
    nodes = []
    for edge in edges:
        name, _, inputs = edge.partition(":")
        nodes.append(Node(name=name, op="Op", inputs=tuple(inputs.split()), outputs=(name,)))
    return Graph(nodes, inputs=["x"], outputs=list(outputs))


LADDER = net(["a: x", "b: a", "c: a b", "d: c", "e: x", "y: d e"], "y")


def test_the_path_is_the_shortest_and_begins_where_it_is_born():
    found = find_nonfinite_origin(results(LADDER, spoilt="abcdy", births="a"), LADDER)
    assert (found.path, found.output, found.left_out) == (("a", "c", "d", "y"), "y", 0)


def test_of_several_births_above_the_output_the_first_one_counts():
    found = find_nonfinite_origin(results(LADDER, spoilt="abcdey", births="ae"), LADDER)
    assert found.born.node == "a"
    found = find_nonfinite_origin(results(LADDER, spoilt="aey", births="ae"), LADDER)  # that of a ends there
    assert (found.born.node, found.path) == ("e", ("e", "y"))


def test_a_birth_that_reaches_no_output_is_followed_as_far_as_it_goes():
    found = find_nonfinite_origin(results(LADDER, spoilt="abc", births="a"), LADDER)
    assert (found.path, found.output) == (("a", "c"), None)
    assert (
        "It ends after 'c' and reaches no output."
        in verdict(results(LADDER, spoilt="abc", births="a"), (), nonfinite=found).sentence
    )


@pytest.mark.parametrize("spoilt", ["", "abcdy"])
def test_where_no_birth_is_known_nothing_is_said(spoilt):
    assert find_nonfinite_origin(results(LADDER, spoilt=spoilt, births=""), LADDER) is None


def test_tensors_that_were_not_compared_do_not_end_the_path():
    table = results(LADDER, spoilt="abcdy", births="a")
    compared = ResultTable([node for node in table.nodes if node.node not in ("c", "b")])
    assert find_nonfinite_origin(compared, LADDER).path == ("a", "d", "y")
