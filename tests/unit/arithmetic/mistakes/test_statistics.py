"""Normalizations whose squares are kept in a 16-bit format."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.arithmetic.mistakes.statistics import short_statistics
from qdebug.model import Node
from qdebug.replay import run_node

RNG = np.random.default_rng(5)
OPSET = {"": 23, "com.microsoft": 1}
X = (RNG.normal(size=(4, 48)) * np.geomspace(0.5, 300, 4)[:, None]).astype(np.float32)
VALUES = {"x": X, "skip": X[::-1].copy(), "g": RNG.normal(size=48).astype(np.float32)}
RMS = Node(name="n", op="RMSNormalization", inputs=("x", "g"), outputs=("y",), attrs={"epsilon": 1e-5})
SKIP = Node(
    name="n", op="SkipSimplifiedLayerNormalization", domain="com.microsoft", inputs=("x", "skip", "g"), outputs=("y",)
)


def made(node):
    right = run_node(node, VALUES, OPSET)["y"]
    return {each.likely: each for each in short_statistics(node, VALUES, OPSET)}, right


@pytest.mark.parametrize(("node", "read", "epsilon"), [(RMS, X, 1e-5), (SKIP, X + X[::-1], 1e-12)])
def test_squares_sums_and_means_in_float16(node, read, epsilon):
    mistakes, right = made(node)
    with np.errstate(all="ignore"):
        squares = np.square(read.astype(np.float16)).astype(np.float64)
        total = np.float16(0)
        for at in range(48):
            total = (total + squares[:, at].astype(np.float16)).astype(np.float16)
        means = {
            "the squares of its numbers are rounded to float16": squares.mean(1),
            "the sum of squares is kept in float16": np.square(read.astype(np.float64)).sum(1).astype(np.float16) / 48,
            "the sum of squares is accumulated in float16, as are the squares": total.astype(np.float64) / 48,
        }
        for text, mean in means.items():
            expected = read / np.sqrt(mean.astype(np.float64)[:, None] + epsilon) * VALUES["g"]
            assert np.allclose(mistakes[text].after(right), expected, rtol=1e-4, atol=1e-6)
    assert not mistakes["the sum of squares is kept in float16"].is_rounding  # the largest rows overflow
    assert mistakes["the sum of squares is kept in bfloat16"].is_rounding


def test_other_nodes_have_no_statistics():
    node = Node(name="n", op="Mul", inputs=("x", "g"), outputs=("y",))
    assert not list(short_statistics(node, VALUES, OPSET))
