"""Nodes that enlarge error far more than others of their operator."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from qdebug.compare.align.pairs import Match
from qdebug.compare.policy import verdict
from qdebug.compare.result.origin import find_compounding_nodes, with_gain
from qdebug.compare.result.result import NodeResult, Status
from qdebug.compare.result.result_table import ResultTable
from qdebug.model import Graph, Node
from qdebug.numerics.accumulate import ErrorAccumulator


def stats_of(error):
    """Return the metrics of a tensor of ones that is off by this much."""
    accumulator = ErrorAccumulator()
    accumulator.update(np.ones(4, np.float64), np.full(4, 1.0 + error), sample=0)
    return accumulator.stats()


def chain(gains, *, op="Conv", outputs=None):
    """Return a chain of nodes with these gains, and its graph; errors are as the gains make them, from 1e-3."""
    nodes = [
        Node(name=f"n{i}", op=op, inputs=(f"t{i - 1}" if i else "x",), outputs=(f"t{i}",)) for i in range(len(gains))
    ]
    graph = Graph(nodes, inputs=["x"], outputs=outputs or [f"t{len(gains) - 1}"])
    results, error = [], 1e-3
    for index, gain in enumerate(gains):
        error *= gain
        results.append(
            NodeResult(
                index=index,
                node=f"n{index}",
                op=op,
                tensor=f"t{index}",
                reference_tensor=f"t{index}",
                match=Match.EXACT,
                match_reason="",
                status=Status.WITHIN,
                metrics=stats_of(error),
                introduced=stats_of(error * 0.1),
                propagated=stats_of(error * 0.9),
                relative_gain=gain,
            )
        )
    return results, graph


USUAL = [1.0, 1.1, 0.9, 1.05, 0.95]


def named(found):
    return [entry.node for entry in found]


def test_a_gain_far_above_the_median_is_named_with_what_is_usual():
    results, graph = chain([*USUAL, 8.0, 1.0])
    (found,) = find_compounding_nodes(ResultTable(results), graph)
    assert (found.node, found.op, found.tensor, found.gain, found.nodes) == ("n5", "Conv", "t5", 8.0, 7)
    assert found.usual == pytest.approx(1.0)


def test_the_largest_excess_comes_first():
    results, graph = chain([*USUAL, 4.0, 16.0, *USUAL])
    assert named(find_compounding_nodes(ResultTable(results), graph)) == ["n6", "n5"]


@pytest.mark.parametrize(
    "gains",
    [
        [1.0, 1.0, 1.0, 8.0],  # too few to know what is usual
        [*USUAL, 1.9],  # less than twice
        [1.0, 2.0, 4.0, 8.0, 16.0, 32.0],  # all of them differ by as much
        [0.05, 0.05, 0.05, 0.05, 0.05, 0.9],  # it makes no error larger
        [0.1, 0.1, 0.1, 0.1, 0.1, 1.1],  # hardly larger, however much the others damp
    ],
)
def test_what_is_not_unusual_is_not_named(gains):
    results, graph = chain(gains)
    assert find_compounding_nodes(ResultTable(results), graph) == ()


def test_a_node_that_adds_the_error_itself_is_no_compounding_one():
    results, graph = chain([*USUAL, 8.0, 1.0])
    own = replace(results[5], introduced=results[5].propagated, propagated=results[5].introduced)
    assert find_compounding_nodes(ResultTable([*results[:5], own, results[6]]), graph) == ()
    unknown = replace(results[5], introduced=None, propagated=None)
    assert find_compounding_nodes(ResultTable([*results[:5], unknown, results[6]]), graph) == (), (
        "it may add it all itself"
    )


def test_only_error_that_reaches_an_output_counts():
    results, graph = chain([*USUAL, 8.0, 1.0], outputs=["t4"])
    assert find_compounding_nodes(ResultTable(results), graph) == ()
    faded, graph = chain([*USUAL, 8.0, 1.0, 1.0])
    small = replace(faded[5], metrics=stats_of(1e-9))
    assert find_compounding_nodes(ResultTable([*faded[:5], small, *faded[6:]]), graph) == ()


def test_operators_are_compared_with_their_kind_alone():
    results, graph = chain([*USUAL, 8.0, 1.0])
    names = ["QLinearConv", "Conv", "FusedConv", "Conv", "NhwcFusedConv", "Conv", "Conv"]
    mixed = Graph(
        [replace(node, op=op) for node, op in zip(graph.nodes, names, strict=True)],
        inputs=graph.inputs,
        outputs=graph.outputs,
    )
    assert named(find_compounding_nodes(ResultTable(results), mixed)) == ["n5"]
    apart = Graph(
        [replace(node, op="Softmax" if node.name == "n5" else "Conv") for node in graph.nodes],
        inputs=graph.inputs,
        outputs=graph.outputs,
    )
    assert find_compounding_nodes(ResultTable(results), apart) == ()


def test_the_verdict_says_so_in_a_sentence():
    results, graph = chain([*USUAL, 4.0, 16.0, *USUAL])
    summed = verdict(ResultTable(results), (), compounding=find_compounding_nodes(ResultTable(results), graph))
    assert summed.sentence.endswith(
        "Conv 'n6' amplifies the error of its input 16 times (the median of Conv in this network is "
        "1.02); so does 1 more node."
    )
    assert named(summed.compounding) == ["n6", "n5"]
    assert SimpleNamespace(**summed.to_dict()["compounding"][0]).usual == pytest.approx(1.025, rel=1e-2)


def test_a_change_of_units_is_no_compounding():
    results, graph = chain([*USUAL, 8.0, 1.0])
    before = results[4].metrics
    in_other_units = replace(results[5], metrics=before, propagated=before)  # eight times the error, and the signal
    assert find_compounding_nodes(ResultTable([*results[:5], in_other_units, *results[6:]]), graph) == ()


def test_what_a_node_adds_itself_is_no_gain():
    results, graph = chain([1.0, 1.0])
    into, node = results
    own = replace(node, metrics=stats_of(0.08), introduced=stats_of(0.07), propagated=stats_of(0.01), gain=None)
    errors = {into.tensor: stats_of(0.02)}
    assert with_gain(own, graph, errors.get).relative_gain == pytest.approx(0.5)
    unknown = with_gain(replace(own, introduced=None, propagated=None), graph, errors.get)
    assert unknown.relative_gain == pytest.approx(4.0)
