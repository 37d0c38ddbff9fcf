"""What the range of codes does in place of a clamp, and what codes without a scale are."""

import numpy as np
import pytest

from qdebug.compare.align.clamps import (
    bounds_of,
    clamped_inside,
    code_span,
    codes_clamp,
    is_codes_without_scale,
    within,
)
from qdebug.compare.align.indexed_recording import IndexedRecording
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
    assert codes_clamp(run_of([node("Neg", "x", "y")], {}, quants={"x": quant}), "x", bounds) == clamps


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
    assert within(run_of([node("Neg", "x", "y")], {"x": np.float32(values)}), "x", bounds) == inside


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
    assert clamped_inside(ours, "y", theirs, "a", (0.0, np.inf)) == clamped
    assert not clamped_inside(ours, "y", theirs, "a", None)
    assert not clamped_inside(ours, "x", theirs, "a", (0.0, np.inf))  # nothing makes it
    silent = run_of([Node(name="n", op="Conv", outputs=("y",))], held)
    assert clamped_inside(silent, "y", theirs, "a", (0.0, np.inf)) == (clamped or (given, before) == ([0, 3], [-2, 3]))
