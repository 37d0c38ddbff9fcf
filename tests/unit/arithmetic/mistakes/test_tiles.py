"""Results and reductions in tiles."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.arithmetic.mistakes.mistake import Mistake
from qdebug.arithmetic.mistakes.tiles import repeated_tiles, tile_mistakes
from qdebug.model import Node
from qdebug.replay import run_node

RNG = np.random.default_rng(9)
OPSET = {"": 21}
X = RNG.normal(size=(3, 40)).astype(np.float32)


def computed(mistake: Mistake, values):
    return mistake.after(run_node(mistake.node, {**values, **mistake.values}, OPSET)["y"])


@pytest.mark.parametrize(
    ("op", "reduce"),
    [
        ("ReduceMax", lambda x: x.max(1)),
        ("ReduceMean", lambda x: x.mean(1)),
        ("ReduceLogSumExp", lambda x: np.log(np.exp(x).sum(1))),
    ],
)
def test_only_the_first_elements_are_reduced(op, reduce):
    node = Node(name="n", op=op, inputs=("x", "a"), outputs=("y",), attrs={"keepdims": 0})
    values = {"x": X, "a": np.array([1])}
    mistakes = {each.likely: each for each in tile_mistakes(node, values)}
    first = mistakes["only the first 32 of 40 elements along axis 1 are reduced"]
    assert np.allclose(computed(first, values), reduce(X[:, :32]), rtol=1e-5)


def test_a_mean_over_the_padding_and_indices_within_tiles():
    mean = Node(name="n", op="ReduceMean", inputs=("x", "a"), outputs=("y",), attrs={"keepdims": 0})
    values = {"x": X, "a": np.array([1])}
    mistakes = {each.likely: each for each in tile_mistakes(mean, values)}
    padded = mistakes["the sums are divided by 48, the 40 elements and the padding of the last tile"]
    assert np.allclose(computed(padded, values), X.sum(1) / 48, rtol=1e-5)
    largest = Node(name="n", op="ArgMax", inputs=("x",), outputs=("y",), attrs={"keepdims": 0, "axis": 1})
    mistakes = {each.likely: each for each in tile_mistakes(largest, {"x": X})}
    within = mistakes["its indices count within each tile of 16 elements"]
    assert np.array_equal(computed(within, {"x": X}), X.argmax(1) % 16)


def test_tiles_of_a_convolution_that_lie_too_far_apart():
    node = Node(name="n", op="Conv", inputs=("x", "w"), outputs=("y",), attrs={"pads": (1, 1, 1, 1)})
    values = {"x": RNG.normal(size=(1, 2, 14, 9)).astype(np.float32)}
    values["w"] = RNG.normal(size=(3, 2, 3, 3)).astype(np.float32)
    right = run_node(node, values, OPSET)["y"]
    step = next(each for each in tile_mistakes(node, values) if "begin at every element 6 n, not 4 n" in each.likely)
    rows = [0, 1, 2, 3, 6, 7, 8, 9, 12, 13]
    assert step.determined[2] == slice(0, 10)
    assert np.array_equal(step.after(right)[step.determined], right[:, :, rows])


def test_tiles_that_repeat_others():
    array = np.arange(14)[:, None] * np.ones(3)
    results = {text: result[:, 0].astype(int).tolist() for text, result in repeated_tiles(array)}
    text = "each second tile of 4 indices of {} along axis 0 repeats the tile before it"
    assert results[text] == [0, 1, 2, 3, 0, 1, 2, 3, 8, 9, 10, 11, 8, 9]
    text = "the incomplete last tile of {} along axis 0 is that of the tile of 4 before it"
    assert results[text] == [*range(12), 8, 9]
