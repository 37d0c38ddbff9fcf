"""Powers, remainders, bounds and norms of single elements."""

from __future__ import annotations

import numpy as np

from qdebug.arithmetic.mistakes.elements import power_mistakes
from qdebug.model import Node
from qdebug.replay import run_node

X = np.random.default_rng(1).normal(size=(6, 7)).astype(np.float32)


def made(op, values, **attrs):
    node = Node(name="n", op=op, inputs=tuple(values), outputs=("y",), attrs=attrs)
    right = run_node(node, values, {"": 18})["y"]
    return {each.likely: each.after(right) for each in power_mistakes(node, values)}


def test_powers_of_negative_numbers():
    results = made("Pow", {"x": X, "z": np.float32(3)})
    expected = np.where(X < 0, np.nan, X**3)
    assert np.allclose(results["negative numbers give NaN, as in exp(y * log(x))"], expected, equal_nan=True)
    assert not made("Pow", {"x": np.abs(X), "z": np.float32(3)})


def test_remainders_bounds_and_norms():
    divisor = np.where(X > 0, 3, -3).astype(np.int32)
    data = np.arange(-21, 21, dtype=np.int32).reshape(X.shape)
    assert np.array_equal(made("Mod", {"x": data, "z": divisor})["remainders are never negative"], data % 3)
    low, high = np.float32(1), np.float32(-1)
    bounds = made("Clip", {"x": X, "l": low, "h": high})
    assert np.array_equal(
        bounds["the bounds are swapped, as the lower one is above the upper one"], np.clip(X, high, low)
    )
    norm = made("LpNormalization", {"x": X}, axis=1)["1e-06 is added to the sum of squares, under the root"]
    assert np.allclose(norm, X / np.sqrt(np.square(X).sum(1, keepdims=True) + 1e-6))
    images = X.reshape(1, 1, 6, 7)
    unbiased = made("MeanVarianceNormalization", {"x": images})["the variance is divided by 41, not by the 42 elements"]
    assert np.allclose(unbiased, (images - X.mean()) / X.std(ddof=1), rtol=1e-4)
