"""What one side computes in one node and the other in several: how far it is followed, and where it ends."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.compare.align.context import Context, make_pair
from qdebug.compare.align.fused import (
    _can_fold_into_constants,
    _factors_of_next_products,
    follow_folded_nodes,
    is_applied_later,
    output_of_next_transpose,
    pair_absorbed_node,
    reads_only,
)
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.pairs import Match
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.model.thresholds.alignment import FUSED_CHAIN_MAX_NODES

RNG = np.random.default_rng(9)
CODES = QuantParams(dtype="int8", scale=np.float32(0.5), zero_point=-128)


def node(op, inputs, output, **attrs):
    return Node(name=f"n_{output}", op=op, inputs=tuple(inputs.split()), outputs=(output,), attrs=attrs)


def run_of(nodes, values=None, *, quants=None, outputs=None):
    """Index a run of some nodes on x; tensors whose names begin with k are constants."""
    names = dict.fromkeys(["x", *(name for each in nodes for name in (*each.inputs, *each.outputs) if name)])
    infos = [
        TensorInfo(name=name, role=Role.CONSTANT if name[0] == "k" else Role.ACTIVATION, quant=(quants or {}).get(name))
        for name in names
    ]
    ends = nodes[-1].outputs if outputs is None else outputs
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=ends, opset={"": 17})
    return IndexedRecording.of(MemoryRecording.single(graph, values or {}))


def context_of(theirs, ours, *, ref=None, be=None, **facts):
    return Context(ref=run_of(theirs, ref), be=run_of(ours, be, **facts))


CHAIN = [
    node("Conv", "x k", "a"),
    node("Mul", "a k1", "b"),
    node("Add", "b k2", "c"),
    node("Relu", "c", "d"),
    node("Exp", "d", "y"),
]


@pytest.mark.parametrize(
    ("theirs", "into_weights", "end"),
    [
        (CHAIN, True, "c"),  # a Relu is none that goes into weights, and no range of codes shows it
        (CHAIN, False, "a"),
        ([CHAIN[0], CHAIN[1], node("Exp", "a", "z"), node("Exp", "b", "y")], True, "a"),  # two read it
        ([CHAIN[0], node("Mul", "a x", "b"), node("Exp", "b", "y")], True, "a"),  # not by a constant
        ([CHAIN[0], node("Exp", "a", "y")], True, "a"),
        (
            [CHAIN[0], node("Transpose", "a", "t", perm=(0, 2, 3, 1)), node("Mul", "t k1", "b"), node("Exp", "b", "y")],
            True,
            "b",
        ),
        ([CHAIN[0], node("Transpose", "a", "t", perm=(0, 2, 3, 1)), node("Exp", "t", "y")], True, "a"),
    ],
)
def test_constants_behind_a_product_are_followed_as_far_as_they_can_have_gone_into_it(theirs, into_weights, end):
    context = context_of(theirs, [node("Conv", "x k", "t"), node("Exp", "t", "y")])
    output, folded = follow_folded_nodes(context, "t", "a", into_weights=into_weights)
    assert output == end
    assert [each.outputs[0] for each in folded] == [name for name in ("t", "b", "c") if name in _between(theirs, end)]


def _between(nodes, end):
    """Return the results behind the product up to one, in order."""
    made = [each.outputs[0] for each in nodes][1:]
    return made[: made.index(end) + 1] if end in made else []


def test_what_the_backend_does_in_a_node_of_its_own_is_not_followed():
    split = [node("Conv", "x k", "t"), node("Mul", "t k1", "u"), node("Exp", "u", "y")]
    values = {"k1": np.float32([2.0])}
    context = context_of(CHAIN, split, ref=values, be=values)
    assert follow_folded_nodes(context, "t", "a", into_weights=True)[0] == "a"
    other = context_of(CHAIN, split, ref=values, be={"k1": np.float32([9.0, 9.0, 9.0])})
    assert follow_folded_nodes(other, "t", "a", into_weights=True)[0] in ("a", "c")


@pytest.mark.parametrize(("zero", "end"), [(-128, "r"), (-100, "a")])
def test_a_relu_is_followed_where_the_range_of_the_codes_shows_it(zero, end):
    theirs = [node("Conv", "x k", "a"), node("Relu", "a", "r"), node("Exp", "r", "y")]
    quant = QuantParams(dtype="int8", scale=np.float32(0.5), zero_point=zero)
    context = context_of(theirs, [node("Conv", "x k", "t"), node("Exp", "t", "y")], quants={"t": quant})
    assert follow_folded_nodes(context, "t", "a")[0] == end


@pytest.mark.parametrize(
    ("nodes", "factors"),
    [
        ([node("Gemm", "x k", "y", alpha=0.5)], {0.5}),
        ([node("Gemm", "x k", "y")], {1.0}),
        ([node("Gemm", "x k", "a", alpha=0.5), node("Gemm", "x k", "y", alpha=2.0)], {0.5, 2.0}),
        ([node("Transpose", "x", "a", perm=(1, 0)), node("Gemm", "a k", "y", alpha=0.5)], {0.5}),
        ([node("Exp", "x", "a"), node("Gemm", "a k", "y", alpha=0.5)], set()),
        ([node("Gemm", "x k", "a", alpha=0.5), node("Gemm", "a k", "y", alpha=2.0)], {0.5}),
    ],
)
def test_factors_are_those_of_the_products_that_read_a_tensor_or_what_is_moved_of_it(nodes, factors):
    assert _factors_of_next_products(run_of(nodes), "x") == factors


def test_factors_are_looked_for_behind_a_few_nodes():
    for many, found in ((FUSED_CHAIN_MAX_NODES - 1, {0.5}), (FUSED_CHAIN_MAX_NODES, set())):
        moves = [node("Reshape", f"t{at} k1" if at else "x k1", f"t{at + 1}") for at in range(many)]
        assert _factors_of_next_products(run_of([*moves, node("Gemm", f"t{many} k", "y", alpha=0.5)]), "x") == found


def test_a_factor_that_went_into_the_product_behind_was_not_taken_in_before():
    def taken(ours, theirs):
        behind = [node("Gemm", "t k2", "y", **({} if alpha is None else {"alpha": alpha})) for alpha in (ours, theirs)]
        context = context_of([node("Gemm", "x k", "t"), behind[1]], [node("Mul", "x k1", "t"), behind[0]])
        return _can_fold_into_constants(context, "t", "t", node("Mul", "x k1", "t"))

    assert taken(1.0, 1.0)
    assert taken(0.5, 0.5)
    assert not taken(1.0, 0.5)
    context = context_of([node("Gemm", "x z", "t")], [node("Mul", "x k1", "t")])
    assert not _can_fold_into_constants(context, "t", "t", node("Mul", "x k1", "t"))  # it has no constant
    assert not _can_fold_into_constants(context, "t", "x", node("Mul", "x k1", "t"))  # nothing makes it


@pytest.mark.parametrize(
    ("ours", "wanted", "later"),
    [
        ([node("Relu", "t", "y")], node("Relu", "x", "z"), True),
        ([node("Relu", "t", "a"), node("Tanh", "a", "y")], node("Tanh", "x", "z"), True),
        ([node("Exp", "t", "a"), node("Tanh", "a", "y")], node("Sin", "x", "z"), False),
        ([node("Reshape", "t k", "a"), node("Relu", "a", "y")], node("Relu", "x", "z"), False),  # constants alone tell
        ([node("Add", "t x", "y")], node("Add", "x k", "z"), False),  # a sum of two tensors
        ([node("Softmax", "t", "a"), node("Relu", "a", "y")], node("Relu", "x", "z"), False),
    ],
)
def test_what_a_backend_does_right_behind_a_tensor_is_done_later(ours, wanted, later):
    context = context_of([wanted], [node("Conv", "x k9", "t"), *ours])
    assert is_applied_later(context, "t", wanted) == later


def test_constants_tell_whether_it_is_the_same_that_is_done_later():
    wanted = node("Add", "x k", "z")
    behind = [node("Conv", "x k9", "t"), node("Mul", "t k1", "a"), node("Add", "a k", "y")]
    bias = RNG.normal(size=4)
    for held, later in ((bias, True), (bias * 1.1, True), (bias * -1, False)):
        assert (
            is_applied_later(
                context_of([wanted], behind, ref={"k": bias}, be={"k": held, "k1": np.ones(4) * 3}), "t", wanted
            )
            == later
        )


def test_a_node_reads_one_tensor_beside_constants():
    run = run_of([node("Identity", "x", "i"), node("Mul", "i k", "a"), node("Add", "a x", "y")])
    assert reads_only(run, run.graph.nodes[1], "x")
    assert not reads_only(run, run.graph.nodes[1], "a")
    assert not reads_only(run, run.graph.nodes[2], "a")


@pytest.mark.parametrize(
    ("nodes", "behind"),
    [
        ([node("Transpose", "x", "t", perm=(1, 0))], "t"),
        ([node("Reshape", "x k", "t")], None),
        ([node("Transpose", "x", "t", perm=(1, 0)), node("Exp", "x", "y")], None),
        ([node("Exp", "z", "y")], None),
    ],
)
def test_a_turn_of_the_one_reader_is_seen_behind_a_tensor(nodes, behind):
    assert output_of_next_transpose(run_of(nodes), "x") == behind


@pytest.mark.parametrize(
    ("ours", "match", "taken"),
    [
        ([node("Conv", "x k", "t"), node("Mul", "t k1", "u")], Match.SIGNATURE, True),
        ([node("Conv", "x k", "t"), node("Mul", "t k1", "u")], Match.EXACT, False),  # its name is worth more
        ([node("Conv", "x k", "t"), node("Mul", "t k1", "u"), node("Exp", "t", "e")], Match.SIGNATURE, False),
        ([node("Conv", "x k", "t"), node("Exp", "t", "u")], Match.SIGNATURE, False),
        ([node("Conv", "x k", "t"), node("Mul", "t x", "u")], Match.SIGNATURE, False),
    ],
)
def test_a_factor_that_the_reference_has_inside_its_product_takes_over_its_partner(ours, match, taken):
    context = context_of([node("Conv", "x k", "r"), node("Sin", "r", "y")], ours)
    context.add(make_pair("t", "r", match, "known"))
    pair = pair_absorbed_node(context, "u", context.be.graph.producer("u"))
    assert (pair is not None) == taken
    if taken:
        assert (pair.reference, pair.backend) == ("r", "u")
        assert "t" not in context.pair_map
        assert context.notes["t"] == "the reference fuses this node with Mul 'n_u'"
    else:
        assert context.pair_map["t"].reference == "r"
