"""Integers in fewer bits, or in floats."""

from __future__ import annotations

import numpy as np

from qdebug.arithmetic.mistakes.integers import integer_mistakes
from qdebug.model import Node
from qdebug.replay import run_node

RNG = np.random.default_rng(11)
A, B = (RNG.integers(-(2**40), 2**40, 50) for _ in range(2))
ADD = Node(name="n", op="Add", inputs=("a", "b"), outputs=("y",))


def test_sums_of_large_integers():
    results = {}
    for each in integer_mistakes(ADD, {"a": A, "b": B}):
        results[each.likely] = each.after(run_node(ADD, {"a": A, "b": B, **each.values}, {"": 21})["y"])
    assert np.array_equal(results["results beyond int32 saturate"], np.clip(A + B, -(2**31), 2**31 - 1))
    assert np.array_equal(results["results are kept in int32 and wrap around"], (A + B).astype(np.int32))
    in_float = (A.astype(np.float32) + B.astype(np.float32)).astype(np.int64)
    assert np.array_equal(results["integers are computed in float32, which does not hold all their digits"], in_float)


def test_numbers_that_are_no_integers_are_left_alone():
    assert not list(integer_mistakes(ADD, {"a": A.astype(np.float32), "b": B.astype(np.float32)}))
