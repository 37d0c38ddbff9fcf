"""What the range of codes does in place of a clamp, and what codes without a scale are."""

import numpy as np
import pytest

from qdebug.compare.align.align import align_runs
from qdebug.compare.align.clamps import (
    bounds_of,
    clamp_to_next_codes,
    code_span,
    find_clamp_replaced_by_codes,
    is_clamped_by_codes,
    is_clamped_inside,
    is_codes_without_scale,
    lies_within,
    match_code_form,
    note_clamp_after,
    select_code_form,
)
from qdebug.compare.align.context import Context, make_pair
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.pairs import Match
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo


def node(op, inputs, output):
    return Node(name=f"n_{output}", op=op, inputs=tuple(inputs.split()), outputs=(output,))


@pytest.mark.parametrize(
    ("nodes", "quant", "expected"),
    [
        ([node("MatMulInteger", "x w", "y")], None, True),
        ([node("Reshape", "x s", "r"), node("Transpose", "r", "t"), node("MatMulInteger", "t w", "y")], None, True),
        ([node("Neg", "x", "r"), node("MatMulInteger", "r w", "y")], None, False),
        ([node("MatMulInteger", "a w x", "y")], None, False),  # its zero point
        ([node("Reshape", "x s", "y")], None, False),
        ([node("MatMulInteger", "x w", "y")], QuantParams(dtype="int8", scale=np.float32(0.5)), False),
    ],
)
def test_codes_without_a_scale_are_what_a_product_sums_up_however_they_are_arranged(nodes, quant, expected):
    infos = [TensorInfo(name="x", role=Role.INPUT, dtype="int8", quant=quant)]
    infos += [TensorInfo(name=name, role=Role.CONSTANT) for name in ("w", "s")]
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=("y",))
    run = IndexedRecording.of(MemoryRecording.single(graph, {"x": np.zeros((2, 2), np.int8)}))
    assert is_codes_without_scale(run, "x") is expected


def run_of(nodes, values, *, quants=None, outputs=("y",), opset=None):
    """Index a run of some nodes on x, with values of some tensors."""
    quants = quants or {}
    names = dict.fromkeys(["x", *(name for each in nodes for name in (*each.inputs, *each.outputs) if name)])
    infos = [
        TensorInfo(name=name, role=Role.CONSTANT if name.startswith("k_") else Role.ACTIVATION, quant=quants.get(name))
        for name in names
    ]
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=outputs, opset=opset or {"": 17})
    return IndexedRecording.of(MemoryRecording.single(graph, values))


def codes(scale, zero=0, dtype="int8", **facts):
    return QuantParams(dtype=dtype, scale=np.asarray(scale, np.float32), zero_point=zero, **facts)


@pytest.mark.parametrize(
    ("quant", "span"),
    [
        (None, None),
        (codes(0.5), (-64.0, 63.5)),
        (codes(0.5, 28), (-78.0, 49.5)),
        (codes(0.5, 128, "uint8"), (-64.0, 63.5)),
        (codes(0.5, qmin=-100, qmax=100), (-50.0, 50.0)),
        (codes([0.5, 0.25, 1.0], axis=0), (-128.0, 127.0)),
        (codes([0.5, 0.25], np.array([-128, 0]), axis=0), (-32.0, 127.5)),
    ],
)
def test_codes_stand_for_numbers_from_the_least_to_the_greatest(quant, span):
    run = run_of([node("Neg", "x", "y")], {}, quants={"x": quant})
    assert code_span(run, "x") == span


@pytest.mark.parametrize(
    ("quant", "bounds", "clamps"),
    [
        (codes(0.5, -128), (0.0, 127.5), True),
        (codes(0.5, -128), (0.25, 127.5), True),  # half a step is less than a code
        (codes(0.5, -128), (0.26, 127.5), False),
        (codes(0.5, -128), (0.0, 127.25), True),
        (codes(0.5, -128), (0.0, 127.24), False),
        (codes(0.5, -128), (0.0, np.inf), True),
        (codes(0.5, -127), (0.0, np.inf), False),
        (codes(0.5, -128), None, False),
        (None, (0.0, 1.0), False),
        (codes([0.5, 0.25], np.array([-128, -128]), axis=0), (0.25, 200.0), True),
        (codes([0.5, 0.25], np.array([-128, -128]), axis=0), (0.26, 200.0), False),
    ],
)
def test_codes_clamp_as_an_interval_does_that_holds_all_they_stand_for(quant, bounds, clamps):
    assert is_clamped_by_codes(run_of([node("Neg", "x", "y")], {}, quants={"x": quant}), "x", bounds) == clamps


@pytest.mark.parametrize(
    ("values", "bounds", "inside"),
    [
        ([0, 1, 2], (0, 2), True),
        ([0, 1, 2], (0.1, 2), False),
        ([0, 1, 2], (0, 1.9), False),
        ([], (0, 2), False),
        ([np.nan], (0, 2), False),
        ([1], (0, np.inf), True),
    ],
)
def test_values_lie_in_an_interval_with_its_ends(values, bounds, inside):
    assert lies_within(run_of([node("Neg", "x", "y")], {"x": np.float32(values)}), "x", bounds) == inside


def test_the_interval_of_a_clamp_is_that_of_its_constants():
    nodes = [node("Relu", "x", "a"), node("Clip", "a k_low k_high", "b"), node("Clip", "b k_low k_none", "y")]
    run = run_of(nodes, {"k_low": np.float32(-1), "k_high": np.float32(6)})
    assert bounds_of(run, nodes[0]) == (0.0, np.inf)
    assert bounds_of(run, nodes[1]) == (-1.0, 6.0)
    assert bounds_of(run, nodes[2]) is None


@pytest.mark.parametrize(
    ("op", "given", "before", "clamped"),
    [
        ("conv2d", [0, 3], [-2, 3], True),  # a node whose words say nothing of what it has inside
        ("Conv", [0, 3], [-2, 3], False),
        ("conv2d", [-1, 3], [-2, 3], False),
        ("conv2d", [0, 3], [1, 3], False),  # nothing to clamp
        ("conv2d", None, [-2, 3], False),
        ("conv2d", [0, 3], None, False),
    ],
)
def test_values_show_a_clamp_inside_a_node_that_does_not_say_what_it_does(op, given, before, clamped):
    held = {} if given is None else {"y": np.float32(given)}
    ours = run_of([node(op, "x", "y")], held)
    theirs = run_of(
        [node("Conv", "x w", "a"), node("Relu", "a", "y")], {} if before is None else {"a": np.float32(before)}
    )
    assert is_clamped_inside(ours, "y", theirs, "a", (0.0, np.inf)) == clamped
    assert not is_clamped_inside(ours, "y", theirs, "a", None)
    assert not is_clamped_inside(ours, "x", theirs, "a", (0.0, np.inf))  # nothing makes it
    silent = run_of([Node(name="n", op="Conv", outputs=("y",))], held)
    assert is_clamped_inside(silent, "y", theirs, "a", (0.0, np.inf)) == (
        clamped or (given, before) == ([0, 3], [-2, 3])
    )


CLAMPED = [node("Conv", "x k", "c"), node("Relu", "c", "y")]


@pytest.mark.parametrize(
    ("readers", "zero", "noted"),
    [
        ([node("QuantizeLinear", "c ks kz", "q")], -128, True),
        ([node("QuantizeLinear", "c ks kz", "q")], -100, False),  # codes of numbers below 0
        ([node("QuantizeLinear", "c ks kz", "q"), node("Exp", "c", "e")], -128, False),  # somebody reads it before
        ([node("QuantizeLinear", "c ks kz", "q"), node("QuantizeLinear", "c ks kz", "q2")], -128, True),
        ([node("ReorderOutput", "c", "r"), node("QuantizeLinear", "r ks kz", "q")], -128, True),  # values only move
        ([node("ReorderOutput", "c", "r")], -128, False),
        ([node("Exp", "c", "q")], -128, False),
        ([], -128, False),
    ],
)
def test_codes_that_follow_stand_for_the_result_of_a_clamp(readers, zero, noted):
    quants = dict.fromkeys(("q", "q2"), codes(0.5, zero))
    context = Context(
        ref=run_of(CLAMPED, {}), be=run_of([node("Conv", "x k", "c"), *readers], {}, quants=quants, outputs=("q",))
    )
    pair = make_pair("c", "c", Match.SIGNATURE, "one operator")
    assert match_code_form(context, pair) == pair
    assert context.clamped_later == ({"c": "y"} if noted else {})
    note_clamp_after(context, make_pair("x", "x", Match.EXACT, "input"))
    assert context.clamped_later == ({"c": "y"} if noted else {})
    assert find_clamp_replaced_by_codes(context, "c", "y") == (CLAMPED[1] if noted else None)
    assert find_clamp_replaced_by_codes(context, "c", "c") is None  # no clamp makes it
    other = Context(ref=run_of([node("Exp", "x", "c"), CLAMPED[1]], {}), be=context.be)
    assert find_clamp_replaced_by_codes(other, "c", "y") is None  # another operator before it


def test_a_tensor_that_becomes_codes_is_held_to_their_range_where_its_partner_was_codes():
    theirs = [
        node("Conv", "x k", "c"),
        node("QuantizeLinear", "c ks kz", "q"),
        node("DequantizeLinear", "q ks kz", "d"),
    ]
    spans = {"q": codes(0.5, -128), "q2": codes(0.5, -128)}
    ours = [node("Conv", "x k", "c"), node("QuantizeLinear", "c ks kz", "q")]
    ref = run_of(theirs, {}, quants=spans, outputs=("d",))

    def held(nodes, reference="d", **facts):
        known = {"quants": spans, "outputs": ("q",)} | facts
        context = Context(ref=ref, be=run_of(nodes, {}, **known))
        context.add(make_pair("c", reference, Match.QUANTIZATION, "why"))
        return list(clamp_to_next_codes(context))

    (pair,) = held(ours)
    assert (pair.backend_view.clamp_low, pair.backend_view.clamp_high) == (0, 127.5)
    assert pair.reason == "why; clipped to the range of the next quantizer"
    assert held(ours, "c") == []  # which was never codes
    assert held(ours, outputs=("q", "c")) == []
    assert held([*ours, node("Exp", "c", "e")]) == []
    assert len(held([*ours, node("QuantizeLinear", "c ks kz", "q2")])) == 1
    assert held([*ours, node("QuantizeLinear", "c ks kz", "q2")], quants=spans | {"q2": codes(0.25)}) == []
    assert held(ours, quants={}) == []


@pytest.mark.parametrize(("tensor", "form"), [("r", "d"), ("q", "q"), ("d", "d"), ("c", "d")])
def test_a_tensor_is_compared_with_the_form_of_its_kind_after_codes(tensor, form):
    theirs = [
        node("Conv", "x k", "c"),
        node("QuantizeLinear", "c ks kz", "q"),
        node("DequantizeLinear", "q ks kz", "d"),
    ]
    ours = [*theirs, node("Exp", "d", "r")]
    quants = {"q": codes(0.5, -128)}
    context = Context(
        ref=run_of(theirs, {}, quants=quants, outputs=("d",)), be=run_of(ours, {}, quants=quants, outputs=("r",))
    )
    assert select_code_form(context, tensor, "c") == form
    assert select_code_form(context, tensor, "x") == "x"  # which has been through none


def test_a_moved_result_that_becomes_codes_is_paired_before_the_clamp():
    ours = [
        node("Conv", "x k", "c_blocks"),
        node("ReorderOutput", "c_blocks", "y"),  # it has the name of the clamp's result
        node("QuantizeLinear", "y ks kz", "q"),
    ]
    x, below = np.float32([1, -2]), np.float32([3, -4])
    ref = run_of(CLAMPED, {"x": x, "c": below, "y": np.maximum(below, 0)}, outputs=("y",))
    be = run_of(ours, {"x": x, "c_blocks": below, "y": below}, quants={"q": codes(0.5, -128)}, outputs=("q",))
    pairs = {pair.backend: pair for pair in align_runs(ref, be, report_progress=str).pairs}
    assert pairs["y"].reference == "c"
