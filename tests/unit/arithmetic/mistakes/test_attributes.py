"""Other attributes and other operators in place of a node's."""

from __future__ import annotations

import numpy as np

from qdebug.arithmetic.mistakes.attributes import other_attributes, other_integers, other_operators
from qdebug.model import Node
from qdebug.replay.registry import run_node

X = np.random.default_rng(0).normal(size=(1, 8, 12, 12)).astype(np.float32)
OPSET = {"": 21}


def said(node, values):
    return {mistake.likely: mistake for mistake in other_attributes(node, values, OPSET)}


def test_other_attributes_and_defaults_are_tried():
    node = Node(name="n", op="GridSample", inputs=("x", "g"), outputs=("y",))
    grid = np.zeros((1, 4, 4, 2), np.float32)
    assert said(node, {"x": X, "g": grid})["it uses align_corners = 1, not 0"].node.attrs["align_corners"] == 1
    norm = Node(name="n", op="LpNormalization", inputs=("x",), outputs=("y",), attrs={"p": 2, "axis": 1})
    texts = said(norm, {"x": X})
    assert {"it uses p = 1, not 2", "it uses p = 3, not 2"} <= set(texts)
    assert "it uses p = -1, not 2" not in texts
    grouped = Node(
        name="n",
        op="Conv",
        inputs=("x", "w"),
        outputs=("y",),
        attrs={"group": 2, "strides": (2, 1), "dilations": (1, 1)},
    )
    texts = said(grouped, {"x": X, "w": np.ones((4, 4, 3, 3), np.float32)})
    assert {"it uses group = 1, not 2", "it uses group = 4, not 2", "it uses strides = [1, 2], not [2, 1]"} <= set(
        texts
    )


def test_a_larger_result_is_cut_to_its_beginning():
    pool = Node(
        name="n", op="MaxPool", inputs=("x",), outputs=("y",), attrs={"kernel_shape": (2, 2), "strides": (2, 2)}
    )
    mistake = said(pool, {"x": X})["it uses strides = [1, 1], not [2, 2]"]
    result = mistake.after(run_node(mistake.node, {"x": X}, OPSET)["y"])
    windows = np.lib.stride_tricks.sliding_window_view(X, (2, 2), (2, 3)).max((-1, -2))
    assert np.array_equal(result, windows[:, :, :6, :6])


def test_types_of_casts_are_no_numbers():
    cast = Node(name="n", op="Cast", inputs=("x",), outputs=("y",), attrs={"to": 1})
    assert not said(cast, {"x": X})


def names(op, count=1):
    inputs = tuple(f"x{at}" for at in range(count))
    return {mistake.node.op for mistake in other_operators(Node(name="n", op=op, inputs=inputs, outputs=("y",)))}


def test_operators_of_the_same_kind_are_tried():
    assert {"Relu", "Tanh"} <= names("Softplus")
    assert {"Sub", "Mul", "Max"} <= names("Add", 2)
    assert "Greater" not in names("Add", 2)
    assert "Less" in names("Greater", 2)
    assert "ArgMin" in names("ArgMax")
    assert {"ReduceSum", "ReduceMax"} <= names("ReduceMean")
    assert "ArgMax" not in names("ReduceMean")
    assert "AveragePool" in names("MaxPool")
    assert "Conv" not in names("MaxPool")
    assert not names("Conv", 2) & {"MaxPool"}
    assert not names("LSTM", 3)


def test_a_comparison_may_be_negated():
    node = Node(name="n", op="Equal", inputs=("a", "b"), outputs=("y",))
    (negated,) = [each for each in other_operators(node) if each.likely == "its result is negated"]
    assert negated.after(np.array([True, False])).tolist() == [False, True]


def test_single_integers_are_tried():
    node = Node(name="n", op="Gather", inputs=("x", "i"), outputs=("y",))
    made = {each.likely: each.values["i"] for each in other_integers(node, {"x": X, "i": np.array(-1)})}
    assert next(iter(made)) == "'i' is taken as 0, not -1"
    assert made["'i' is taken as 2, not -1"].shape == ()
    assert "'i' is taken as -1, not -1" not in made
    assert not [*other_integers(node, {"x": X, "i": np.array([1, 2])})]
