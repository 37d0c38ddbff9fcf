"""Mistakes inside the step of a recurrent layer."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.arithmetic.mistakes import cells
from qdebug.arithmetic.mistakes.cells import wrong_cells
from qdebug.model import Node
from qdebug.replay.registry import run_node

DRAWN = np.random.default_rng(5)
HIDDEN, SIZE, BATCH, STEPS = 6, 5, 2, 7


def real(*shape):
    return DRAWN.normal(size=shape).astype(np.float32)


def layer(op, gates, names, **attrs):
    shapes = {
        "x": (STEPS, BATCH, SIZE), "W": (1, gates * HIDDEN, SIZE), "R": (1, gates * HIDDEN, HIDDEN),
        "B": (1, 2 * gates * HIDDEN), "h": (1, BATCH, HIDDEN), "c": (1, BATCH, HIDDEN), "P": (1, 3 * HIDDEN),
    }  # fmt: skip
    inputs = tuple("" if name == "-" else name for name in names.split())
    values = {name: real(*shapes[name]) for name in inputs if name}
    return Node(name="n", op=op, inputs=inputs, outputs=("y",), attrs={"hidden_size": HIDDEN, **attrs}), values


CELLS = {"LSTM": cells.LSTM_CELLS, "GRU": cells.GRU_CELLS}
LAYERS = {
    "lstm": layer("LSTM", 4, "x W R B - h c P"),
    "lstm without states": layer("LSTM", 4, "x W R B"),
    "gru": layer("GRU", 3, "x W R B - h"),
    "gru after": layer("GRU", 3, "x W R B", linear_before_reset=1),
}


@pytest.mark.parametrize(("node", "values"), LAYERS.values(), ids=LAYERS)
def test_cells_without_a_mistake_give_what_the_kernel_gives(node, values):
    inputs = [*(values.get(name) for name in node.inputs), *[None] * (8 - len(node.inputs))]
    right = (cells._lstm_cell if node.op == "LSTM" else cells._gru_cell)()
    computed = cells._Layer.of(node, inputs).run(right)
    np.testing.assert_allclose(computed, run_node(node, values, {"": 21})["y"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("node", "values"), [LAYERS["lstm"], LAYERS["gru"]], ids=["lstm", "gru"])
def test_each_mistake_gives_another_result(node, values):
    results = [np.zeros((STEPS, 1, BATCH, HIDDEN)), run_node(node, values, {"": 21})["y"]]
    for mistake in wrong_cells(node, values, CELLS[node.op]):
        result = mistake.after(results[0])
        assert all(np.abs(result - other).max() > 0.01 for other in results), mistake.likely
        results.append(result)
    assert len(results) > 5


def test_other_directions_and_activations_are_left_to_others():
    node, values = LAYERS["lstm"]
    for attrs in ({"direction": "reverse"}, {"activations": ("Relu", "Tanh", "Tanh")}, {"layout": 1}):
        other = Node(name="n", op="LSTM", inputs=node.inputs, outputs=("y",), attrs=attrs)
        assert not list(wrong_cells(other, values, CELLS["LSTM"]))
