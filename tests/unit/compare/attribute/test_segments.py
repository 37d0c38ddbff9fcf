"""The parts of two graphs that lead from compared tensors to one compared tensor."""

from itertools import pairwise

import pytest

from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.pairs import Match, Pair
from qdebug.compare.attribute.segments import SegmentFinder, main_node
from qdebug.model import Graph, MemoryRecording, Node
from qdebug.model.thresholds.alignment import SEGMENT_MAX_NODES


def indexed(*nodes, inputs=("x",), output="y"):
    """Index a graph of nodes that are given as "Op input ... -> output"."""
    made = []
    for said in nodes:
        (op, *read), out = said.split("->")[0].split(), said.split("->")[1].strip()
        made.append(Node(name=f"n_{out}", op=op, inputs=tuple(read), outputs=(out,)))
    return IndexedRecording.of(MemoryRecording(Graph(made, inputs=inputs, outputs=(output,)), {}))


def paired(*names):
    pairs = [Pair(reference=name, backend=f"{name}_b", match=Match.EXACT, reason="") for name in names]
    return {pair.backend: pair for pair in pairs}


def found(ref, be, *names):
    pairs = paired(*names)
    return SegmentFinder(ref, be, pairs).of(pairs["y_b"])


def listed(nodes):
    return [node.name for node in nodes]


def test_both_sides_go_back_to_the_nearest_compared_tensors():
    ref = indexed("Tanh x -> a", "MatMul a a -> b", "Add b a -> c", "Relu c -> y")
    be = indexed("Tanh x_b -> a_b", "MatMul a_b a_b -> y_b", inputs=("x_b",), output="y_b")
    segment = found(ref, be, "x", "a", "y")
    assert listed(segment.nodes) == ["n_b", "n_c", "n_y"]
    assert (dict(segment.feeds), listed(segment.own)) == ({"a": "a_b"}, ["n_y_b"])
    assert (segment.has_extra_inputs, segment.has_several_nodes) == (False, False)
    product, own = segment.products
    assert (product.name, own.name) == ("n_b", "n_y_b")
    assert listed(segment.nodes_except(product)) == ["n_c", "n_y"]
    assert main_node(own, segment) is product


def test_backend_nodes_without_a_partner_in_between_are_judged_together():
    ref = indexed("Add x x -> y")
    be = indexed("Mul x_b x_b -> h_b", "Tanh h_b -> k_b", "Add h_b k_b -> y_b", inputs=("x_b",), output="y_b")
    segment = found(ref, be, "x", "y")
    assert (listed(segment.own), segment.has_several_nodes, segment.products) == (
        ["n_h_b", "n_k_b", "n_y_b"],
        True,
        None,
    )
    assert main_node(segment.own[0], segment) is None


def test_what_the_reference_alone_reads_is_fed_if_it_is_compared():
    ref = indexed("Tanh x -> a", "Sin x -> b", "Add a b -> y")
    be = indexed(
        "Tanh x_b -> a_b", "Sin x_b -> b_b", "Exp b_b -> o_b", "Add a_b a_b -> y_b", inputs=("x_b",), output="y_b"
    )
    segment = found(ref, be, "x", "a", "b", "y")
    assert (listed(segment.nodes), dict(segment.feeds), segment.has_extra_inputs) == (
        ["n_y"],
        {"a": "a_b", "b": "b_b"},
        True,
    )
    assert found(ref, be, "a", "y") is None  # what Sin reads is no compared tensor


def test_an_input_of_the_backend_that_is_not_compared_leads_nowhere():
    ref = indexed("Tanh x -> y")
    be = indexed("Add x_b z_b -> y_b", inputs=("x_b", "z_b"), output="y_b")
    assert found(ref, be, "x", "y") is None


@pytest.mark.parametrize("side", ["reference", "backend"])
def test_a_part_of_too_many_nodes_is_none(side):
    def chain(length, end):
        names = [f"x{end}", *(f"h{at}{end}" for at in range(1, length)), f"y{end}"]
        steps = [f"Tanh {one} -> {other}" for one, other in pairwise(names)]
        return indexed(*steps, inputs=(f"x{end}",), output=f"y{end}")

    def of(length):
        ref, be = (chain(length if side == own else 1, end) for own, end in (("reference", ""), ("backend", "_b")))
        return found(ref, be, "x", "y")

    segment = of(SEGMENT_MAX_NODES + 1)
    assert len(segment.nodes if side == "reference" else segment.own) == SEGMENT_MAX_NODES + 1
    assert of(SEGMENT_MAX_NODES + 2) is None
