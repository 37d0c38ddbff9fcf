"""What a name leads to, and what it is worth: how well two graphs bear it out."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.compare.align.context import Context, make_pair
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.names import (
    _adds_missing_bias,
    _compare_entries,
    _find_by_node_name,
    _have_same_readers,
    _measure_support,
    find_namesake,
    is_claimed,
    pair_other_form,
    spell_tensor_name,
)
from qdebug.compare.align.pairs import Match
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo

RNG = np.random.default_rng(2)
CODES = QuantParams(dtype="int8", scale=np.float32(0.5))


def node(op, inputs, outputs, name=None):
    made = tuple(outputs.split())
    return Node(name=name or f"n_{made[0]}", op=op, inputs=tuple(inputs.split()), outputs=made)


def run_of(nodes, values=None, *, outputs=None, quants=None, stands_for=None):
    """Index a run of some nodes on x; tensors whose names begin with k are constants."""
    names = dict.fromkeys(["x", *(name for each in nodes for name in (*each.inputs, *each.outputs) if name)])
    infos = [
        TensorInfo(
            name=name,
            role=Role.CONSTANT if name[0] == "k" else Role.ACTIVATION,
            quant=(quants or {}).get(name),
            stands_for=(stands_for or {}).get(name),
        )
        for name in names
    ]
    ends = (nodes[-1].outputs if nodes else ()) if outputs is None else outputs
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=ends, opset={"": 17})
    return IndexedRecording.of(MemoryRecording.single(graph, values or {}))


def context_of(theirs, ours, *pairs, ref=None, be=None, outputs=None, **facts):
    context = Context(ref=run_of(theirs, ref, outputs=outputs), be=run_of(ours, be, outputs=outputs, **facts))
    for backend, reference in pairs:
        context.add(make_pair(backend, reference, Match.EXACT, "known"))
    return context


SAME = ("x", "x")


@pytest.mark.parametrize(
    ("theirs", "ours", "pairs", "worth"),
    [
        # one operator on one input
        ([node("Exp", "x", "t")], [node("Exp", "x", "t")], [SAME], "STRONG"),
        ([node("Exp", "x", "t")], [node("Exp", "x", "t")], [], "WEAK"),  # both read by nothing
        # the operator and the readers
        (
            [node("Neg", "x", "a"), node("Exp", "a", "t"), node("Tanh", "t", "y")],
            [node("Abs", "x", "a"), node("Exp", "a", "t"), node("Tanh", "t", "y")],
            [SAME],
            "WEAK",
        ),
        # the inputs and the readers
        (
            [node("Exp", "x", "t"), node("Tanh", "t", "y")],
            [node("Sin", "x", "t"), node("Tanh", "t", "y")],
            [SAME],
            "WEAK",
        ),
        # the operator alone
        (
            [node("Neg", "z", "a"), node("Exp", "a", "t"), node("Tanh", "t", "y")],
            [node("Exp", "x", "t"), node("Sin", "t", "y")],
            [SAME],
            "NONE",
        ),
        # the readers alone
        (
            [node("Exp", "z", "t"), node("Tanh", "t", "y")],
            [node("Sin", "x", "t"), node("Tanh", "t", "y")],
            [SAME],
            "NONE",
        ),
        # the inputs alone
        (
            [node("Exp", "x", "t"), node("Tanh", "t", "y")],
            [node("Sin", "x", "t"), node("Cos", "t", "y")],
            [SAME],
            "NONE",
        ),
        # the inputs, with several nodes in between
        (
            [node("Exp", "x", "a"), node("Neg", "a", "t"), node("Tanh", "t", "y")],
            [node("Sin", "x", "t"), node("Cos", "t", "y")],
            [SAME],
            "WEAK",
        ),
        # nobody says what is read
        (
            [node("Exp", "x", "t"), node("Tanh", "t", "y")],
            [Node(name="s", op="Exp", outputs=("t",)), node("Sin", "x", "y")],
            [SAME],
            "WEAK",
        ),
        ([], [node("Exp", "x", "t"), node("Sin", "t", "y")], [SAME], "STRONG"),
    ],
)
def test_two_of_three_bear_a_name_out_and_one_does_not(theirs, ours, pairs, worth):
    context = context_of(theirs, ours, *pairs, outputs=("y",))
    assert _measure_support(context, "t", "t" if theirs else "x").name == worth


def test_outputs_and_inputs_of_both_are_what_they_are_called():
    context = context_of([node("Exp", "x", "t")], [node("Sin", "x", "t")])
    assert _measure_support(context, "t", "t").name == "STRONG"
    assert _measure_support(context, "x", "x").name == "STRONG"
    assert _measure_support(context, "x", "t").name == "WEAK"


def test_a_product_of_other_weights_is_another_one():
    weight, other = RNG.normal(size=(4, 4)), RNG.normal(size=(4, 4))
    theirs = [node("Gemm", "a k", "m"), node("Add", "m kb", "t"), node("Tanh", "t", "y")]
    ours = [node("Gemm", "a k kb", "t"), node("Tanh", "t", "y")]
    for held, worth in ((weight, "WEAK"), (weight * 1.1, "WEAK"), (other, "NONE"), (None, "WEAK")):
        values = {} if held is None else {"k": held}
        context = context_of(theirs, ours, ref={"k": weight}, be=values, outputs=("y",))
        assert _measure_support(context, "t", "t").name == worth


@pytest.mark.parametrize(
    ("theirs", "ours", "found"),
    [
        ([node("Exp", "x", "a", "t")], [Node(name="t", op="Exp", outputs=("t",))], "a"),
        ([node("Exp", "x", "a", "layer")], [Node(name="layer", op="Exp", outputs=("t",))], "a"),
        ([node("Split", "x", "a b", "t")], [Node(name="t", op="Exp", outputs=("t",))], None),  # it makes two
        ([node("Exp", "x", "a", "t:0")], [Node(name="n", op="Exp", outputs=("t",))], "a"),
        ([Node(name="h", op="Exp", outputs=("m",))], [node("Exp", "x", "t", "m")], "m"),
        ([Node(name="h", op="Exp", outputs=("m",))], [node("Split", "x", "t u", "m")], None),
        ([node("Exp", "x", "a", "m")], [node("Exp", "x", "t", "m")], None),  # both say what they read
        ([node("Exp", "x", "a", "other")], [node("Exp", "x", "t", "m")], None),
    ],
)
def test_a_name_may_be_that_of_the_node_where_either_side_says_nothing_else(theirs, ours, found):
    context = context_of(theirs, ours)
    assert _find_by_node_name(context, "t") == found
    assert _find_by_node_name(context, "x") is None  # nothing makes it


def test_a_name_leads_to_the_tensor_of_it_or_to_one_that_stands_for_it():
    assert spell_tensor_name("a") == ("a", "a:0")
    assert spell_tensor_name("a:0") == ("a:0", "a")
    ours = [node("Exp", "x", "t:0"), node("Exp", "t:0", "u"), node("Exp", "u", "k1"), node("Exp", "u", "v")]
    context = Context(
        ref=run_of(
            [node("Exp", "x", "t"), node("Exp", "t", "m"), node("Exp", "k1 k2", "k3")], stands_for={"m": "model"}
        ),
        be=run_of(ours, stands_for={"u": "model"}),
    )
    assert [find_namesake(context, name) for name in ("t:0", "u", "v", "k1")] == ["t", "m", None, None]


@pytest.mark.parametrize(
    ("op", "reader", "theirs", "adds"),
    [
        ("MatMul", "Add", node("Gemm", "x k kb", "r"), True),
        ("MatMul", "Mul", node("Gemm", "x k kb", "r"), False),
        ("MatMul", "Add", node("Gemm", "x k", "r"), False),
        ("Conv", "Add", node("Conv", "x k kb", "r"), True),
        ("Conv", "Add", node("Conv", "x k", "r"), False),
        ("Exp", "Add", node("Exp", "x", "r"), False),
    ],
)
def test_a_node_behind_a_product_may_add_the_bias_that_the_other_has_inside(op, reader, theirs, adds):
    ours = [node(op, "x k" if op != "Exp" else "x", "t"), node(reader, "t kb", "y")]
    context = context_of([theirs], ours)
    assert _adds_missing_bias(context, "t", "r", ours[1]) == adds
    assert not _adds_missing_bias(context, "x", "r", ours[1])
    assert not _adds_missing_bias(context, "t", "x", ours[1])
    if op == "Conv":
        whole = [node(op, "x k kb", "t"), ours[1]]
        assert not _adds_missing_bias(context_of([theirs], whole), "t", "r", whole[1])


@pytest.mark.parametrize(
    ("nodes", "tensor", "reason"),
    [
        ([node("QuantizeLinear", "x ks kz", "q")], "q", "codes of 'x'"),
        (
            [node("QuantizeLinear", "x ks kz", "q"), node("DequantizeLinear", "q ks kz", "d")],
            "d",
            "dequantized values of 'q'",
        ),
        ([node("Identity", "x", "i")], "i", "same values as 'x'"),
    ],
)
def test_another_form_of_a_tensor_has_its_partner_and_says_what_it_is(nodes, tensor, reason):
    context = context_of([node("Exp", "x", "y")], nodes, SAME, quants={"q": CODES})
    maker = context.be.graph.producer(tensor)
    if tensor == "d":
        context.add(make_pair("q", "x", Match.QUANTIZATION, "codes"))
    pair = pair_other_form(context, tensor, maker)
    assert (pair.reference, pair.reason) == ("x", reason)
    lonely = context_of([node("Exp", "x", "y")], nodes, quants={"q": CODES})
    assert pair_other_form(lonely, tensor, lonely.be.graph.producer(tensor)) is None
    assert lonely.notes[tensor].startswith("it is equivalent to ")


def test_tensors_are_used_alike_if_one_operator_reads_both_or_none_does():
    theirs = [node("Exp", "x", "a"), node("Tanh", "a", "b"), node("Sin", "a", "c")]
    ours = [node("Exp", "x", "a"), node("Sin", "a", "b"), node("Cos", "b", "c")]
    context = context_of(theirs, ours)
    assert _have_same_readers(context, "a", "a")
    assert not _have_same_readers(context, "b", "a")
    assert not _have_same_readers(context, "b", "b")
    assert _have_same_readers(context, "c", "b")


def test_what_leads_to_two_tensors_begins_at_the_same_ones():
    theirs = [node("Exp", "x", "a"), node("Tanh", "a", "b"), node("Add", "b z", "c")]
    ours = [node("Exp", "x", "a"), node("Add", "a w", "c")]
    facts = [SAME, ("w", "z")]
    context = context_of(theirs, ours, *facts)
    assert _compare_entries(context, "c", "c") == (True, True)
    assert _compare_entries(context, "a", "a") == (True, False)
    assert _compare_entries(context, "c", "b") == (False, False)  # it reads another one besides
    assert _compare_entries(context_of(theirs, ours, SAME), "c", "c") == (False, False)
    moved = context_of([node("Transpose", "x", "a")], [node("Exp", "x", "a")], SAME)
    assert _compare_entries(moved, "a", "a") == (False, False)


def test_a_reference_tensor_is_claimed_by_its_partner_or_by_a_name_that_the_graphs_bear_out():
    nodes = [node("Exp", "x", "a"), node("Tanh", "a", "y")]
    context = context_of(nodes, nodes, SAME)
    assert is_claimed(context, "a", "y")  # the backend's own "a" is it
    assert not is_claimed(context, "a", "a")
    other = [node("Exp", "x", "b"), node("Tanh", "b", "y")]
    free = context_of(nodes, other, SAME)
    assert not is_claimed(free, "a", "b")
    free.add(make_pair("b", "a", Match.SIGNATURE, "found"))
    assert is_claimed(free, "a", "y")
