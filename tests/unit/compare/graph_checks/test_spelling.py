"""What two graphs say in other words is no difference, and does not come before one."""

from __future__ import annotations

import numpy as np
import pytest

import qdebug
from qdebug.model import Graph, Node
from qdebug.replay.registry import run_node

RNG = np.random.default_rng(4)
X = RNG.standard_normal((1, 3, 11, 12)).astype(np.float32)
W = RNG.standard_normal((4, 3, 3, 3)).astype(np.float32)
B = RNG.standard_normal(4).astype(np.float32)


def recorded(nodes, constants):
    """Record nodes that a chain of replays gives the values of; the last tensor is the output."""
    values = {"x": X, **constants}
    with qdebug.Recorder(None, backend="b", graph=Graph(nodes, inputs=["x"], outputs=[nodes[-1].outputs[0]])) as rec:
        for name, array in constants.items():
            rec.constant(name, array)
        rec.put("x", X)
        for node in nodes:
            values |= run_node(node, {name: values[name] for name in node.inputs})
            for name in node.outputs:
                rec.put(name, values[name])
    return rec.recording


def conv(*, bias=True, **attrs):
    inputs = ("x", "w", "b") if bias else ("x", "w")
    return Node(name="conv", op="Conv", inputs=inputs, outputs=("c",), attrs={"kernel_shape": (3, 3), **attrs})


PADS = [
    ({"pads": (0, 0, 0, 0), "auto_pad": "NOTSET"}, {"auto_pad": "VALID"}),
    ({"pads": (1, 1, 1, 1), "auto_pad": "NOTSET"}, {"auto_pad": "SAME_UPPER"}),
    ({"pads": (1, 0, 1, 1), "strides": (2, 2), "auto_pad": "NOTSET"}, {"auto_pad": "SAME_UPPER", "strides": (2, 2)}),
    ({"pads": (1, 1, 1, 0), "strides": (2, 2), "auto_pad": "NOTSET"}, {"auto_pad": "SAME_LOWER", "strides": (2, 2)}),
]


@pytest.mark.parametrize(("one", "other"), [*PADS, *(pair[::-1] for pair in PADS)])
def test_padding_by_name_hides_no_other_weight(one, other):
    wrong = W.copy()
    wrong[2] += np.float32(0.3)
    reference = recorded([conv(**one)], {"w": W, "b": B})
    assert qdebug.diff(reference, recorded([conv(**other)], {"w": W, "b": B})).status in {"identical", "within"}
    result = qdebug.diff(reference, recorded([conv(**other)], {"w": wrong, "b": B}))
    (node,) = (each for each in result.nodes if each.node == "conv")
    assert node.status == "diverged"
    assert [found.kind for found in node.findings if found.role == "difference"] == ["weight"]
    assert "auto_pad" not in node.reason


def test_other_padding_is_a_difference_still():
    reference = recorded([conv(pads=(1, 1, 1, 1), auto_pad="NOTSET", strides=(2, 2))], {"w": W, "b": B})
    backend = recorded([conv(auto_pad="SAME_UPPER", strides=(2, 2))], {"w": W, "b": B})
    result = qdebug.diff(reference, backend)
    (node,) = (each for each in result.nodes if each.node == "conv")
    assert node.reason == "its pads is (1, 0, 1, 1); the reference's is (1, 1, 1, 1)"


def softmax(axis):
    return Node(name="s", op="Softmax", inputs=("x",), outputs=("y",), attrs={"axis": axis})


def test_an_axis_counts_from_either_end():
    assert qdebug.diff(recorded([softmax(3)], {}), recorded([softmax(-1)], {})).status == "identical"
    result = qdebug.diff(recorded([softmax(3)], {}), recorded([softmax(-2)], {}))
    assert "its axis is 2; the reference's is 3" in result.verdict.sentence


RELU = Node(name="relu", op="Relu", inputs=("c",), outputs=("r",))
ADD = Node(name="add", op="Add", inputs=("c", "a"), outputs=("s",))
RELU_BEHIND = Node(name="relu", op="Relu", inputs=("s",), outputs=("r",))
TOGETHER = [conv(), RELU], {"w": W, "b": B}
APART = [conv(bias=False), ADD, RELU_BEHIND], {"w": W, "a": B.reshape(1, 4, 1, 1)}


@pytest.mark.parametrize("sides", [(TOGETHER, APART), (APART, TOGETHER)])
def test_a_bias_may_be_added_by_a_node_of_its_own(sides):
    result = qdebug.diff(*(recorded(*side) for side in sides))
    assert result.status in {"identical", "within"}
    assert not [each for each in result.coverage.unmatched if each.kind == "lost"]


@pytest.mark.parametrize("sides", [(TOGETHER, APART), (APART, TOGETHER)])
@pytest.mark.parametrize("kind", ["weight", "bias"])
def test_a_wrong_constant_is_found_beside_a_bias_that_stands_apart(sides, kind):
    nodes, constants = sides[1]
    name = "w" if kind == "weight" else next(each for each in constants if each != "w")
    wrong = {**constants, name: constants[name] + np.float32(0.5)}
    result = qdebug.diff(recorded(*sides[0]), recorded(nodes, wrong))
    (first,) = (each for each in result.nodes if each.node == result.first_divergence)
    assert f"of {kind} {name!r} differ from the reference" in first.reason.partition(";")[0]


def test_a_lost_bias_is_said():
    result = qdebug.diff(recorded(*TOGETHER), recorded([conv(bias=False), RELU], {"w": W}))
    assert "it has no bias, but the reference has one" in result.verdict.sentence
