"""Sums that are kept in a short float format."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from qdebug.arithmetic.mistakes.accumulation import short_sums
from qdebug.model import Node

RNG = np.random.default_rng(0)
X, W = (RNG.normal(size=shape).astype(np.float32) for shape in ((5, 30), (30, 4)))


def sums(node, values, shape):
    return {each.likely: each.after(np.zeros(shape, np.float32)) for each in short_sums(node, values)}


@pytest.mark.parametrize(("dtype", "name"), [(np.float16, "float16"), (ml_dtypes.bfloat16, "bfloat16")])
@pytest.mark.parametrize("transposed", [0, 1])
def test_a_product_is_summed_term_by_term(dtype, name, transposed):
    node = Node(name="n", op="Gemm", inputs=("x", "w"), outputs=("y",), attrs={"transB": transposed})
    made = sums(node, {"x": X, "w": W.T.copy() if transposed else W}, (5, 4))
    total, rounded = (np.zeros((5, 4), dtype) for _ in range(2))
    for at in range(30):
        term = X[:, at, None] * W[None, at]
        total = (total.astype(np.float32) + term).astype(dtype)
        rounded = (rounded.astype(np.float32) + term.astype(dtype).astype(np.float32)).astype(dtype)
    text = f"its sums are accumulated in {name}, term by term"
    assert np.array_equal(made[text], total.astype(np.float32))
    assert np.array_equal(made[f"{text}, as are its terms"], rounded.astype(np.float32))


@pytest.mark.parametrize(("op", "divisor"), [("ReduceSum", 1), ("ReduceMean", 30)])
def test_a_reduction_is_summed_term_by_term(op, divisor):
    node = Node(name="n", op=op, inputs=("x", "a"), outputs=("y",), attrs={"keepdims": 0})
    made = sums(node, {"x": X, "a": np.array([1])}, (5,))
    total = np.zeros(5, np.float16)
    for at in range(30):
        total = (total.astype(np.float32) + X[:, at]).astype(np.float16)
    expected = (total.astype(np.float32) / np.float32(divisor)).astype(np.float16)
    assert np.array_equal(made["its sums are accumulated in float16, term by term"], expected.astype(np.float32))


def test_other_nodes_have_no_sums_of_this_kind():
    assert not sums(Node(name="n", op="Add", inputs=("x", "w"), outputs=("y",)), {"x": X, "w": X}, (5, 30))
    gemm = Node(name="n", op="Gemm", inputs=("x", "w"), outputs=("y",), attrs={"alpha": 2.0})
    assert not sums(gemm, {"x": X, "w": W}, (5, 4))


@pytest.mark.parametrize("axis", [0, 1])
def test_a_cumulative_sum_is_rounded_at_each_step(axis):
    node = Node(name="n", op="CumSum", inputs=("x", "a"), outputs=("y",))
    made = sums(node, {"x": X, "a": np.array(axis)}, X.shape)
    total, expected = np.zeros(X.shape[1 - axis], np.float16), []
    for at in range(X.shape[axis]):
        total = (total.astype(np.float32) + X.take(at, axis)).astype(np.float16)
        expected.append(total.astype(np.float32))
    text = "its sums are accumulated in float16, term by term"
    assert np.array_equal(made[text], np.stack(expected, axis))
    assert not sums(
        node.__class__(name="n", op="CumProd", inputs=("x", "a"), outputs=("y",)), {"x": X, "a": np.array(0)}, X.shape
    )


def test_the_divisor_of_a_softmax_is_summed_term_by_term():
    made = sums(Node(name="n", op="Softmax", inputs=("x",), outputs=("y",)), {"x": X}, X.shape)
    powers = np.exp(X - X.max(-1, keepdims=True))
    total = np.zeros(5, np.float16)
    for at in range(30):
        total = (total.astype(np.float32) + powers[:, at]).astype(np.float16)
    text = "its sums are accumulated in float16, term by term"
    np.testing.assert_array_equal(made[text], powers / total.astype(np.float32)[:, None])


def test_the_elements_of_a_global_pool_are_summed_one_after_another():
    data = np.abs(RNG.normal(size=(2, 3, 40, 40))).astype(np.float16).astype(np.float32)
    made = sums(Node(name="n", op="GlobalAveragePool", inputs=("x",), outputs=("y",)), {"x": data}, (2, 3, 1, 1))
    total = np.zeros((2, 3), np.float16)
    for at in range(1600):
        total = (total + data.reshape(2, 3, -1)[..., at].astype(np.float16)).astype(np.float16)
    expected = (total.astype(np.float32) / np.float32(1600)).astype(np.float16)
    text = "its sums are accumulated in float16, term by term"
    np.testing.assert_array_equal(made[text].reshape(2, 3), expected.astype(np.float32))
    assert f"{text}, as are its terms" not in made  # the terms are float16 numbers already


def test_the_elements_of_each_window_of_a_pool_are_summed_one_after_another():
    data = RNG.normal(size=(1, 2, 9, 8)).astype(np.float32)
    attrs = {"kernel_shape": (3, 4), "strides": (2, 3)}
    node = Node(name="n", op="AveragePool", inputs=("x",), outputs=("y",), attrs=attrs)
    made = sums(node, {"x": data}, (1, 2, 4, 2))["its sums are accumulated in float16, term by term"]
    for row, column in np.ndindex(4, 2):
        total = np.zeros((1, 2), np.float16)
        for down, right in np.ndindex(3, 4):
            term = data[:, :, 2 * row + down, 3 * column + right]
            total = (total.astype(np.float32) + term).astype(np.float16)
        expected = (total.astype(np.float32) / np.float32(12)).astype(np.float16).astype(np.float32)
        np.testing.assert_array_equal(made[:, :, row, column], expected)
    padded = Node(name="n", op="AveragePool", inputs=("x",), outputs=("y",), attrs={**attrs, "pads": (1, 1, 1, 1)})
    assert not sums(padded, {"x": data}, (1, 2, 5, 3))
