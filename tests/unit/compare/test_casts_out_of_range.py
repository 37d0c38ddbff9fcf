"""A cast of numbers that an integer type does not hold is the processor's: what it did is named."""

from __future__ import annotations

import numpy as np
import pytest

import qdebug
from qdebug.model import Graph, Node

X = (np.random.default_rng(0).standard_normal((2, 4, 8, 8)) * 300).astype(np.float32)
NODES = [
    Node(name="cast", op="Cast", inputs=("x",), outputs=("i",), attrs={"to": 3}),
    Node(name="back", op="Cast", inputs=("i",), outputs=("y",), attrs={"to": 1}),
]


def saturated(x):
    return np.clip(np.trunc(x), -128, 127).astype(np.int8)


def wrapped(x):
    return np.trunc(x).astype(np.int64).astype(np.int8)


def lowest(x):
    whole = np.trunc(x)
    return np.where((whole < -128) | (whole > 127), -128, whole).astype(np.int8)


def recorded(cast):
    with qdebug.Recorder(None, backend="b", graph=Graph(NODES, inputs=["x"], outputs=["y"])) as rec:
        rec.put("x", X)
        rec.put("i", cast(X))
        rec.put("y", cast(X).astype(np.float32))
    return rec.recording


WORDS = {
    saturated: "numbers beyond int8 saturate",
    wrapped: "numbers beyond int8 wrap around (the low bits are kept)",
    lowest: "numbers beyond int8 become the lowest int8 value",
}


@pytest.mark.parametrize("cast", WORDS)
def test_what_a_cast_makes_of_them_is_named(cast):
    other = saturated if cast is not saturated else wrapped
    result = qdebug.diff(recorded(other), recorded(cast))
    (node,) = (each for each in result.nodes if each.node == "cast")
    assert node.status == "diverged"
    said = f"in the backend, {WORDS[cast]}; in the reference, {WORDS[other]}. This reproduces every element"
    assert node.reason.startswith(said)
    assert qdebug.diff(recorded(cast), recorded(cast)).status == "identical"
