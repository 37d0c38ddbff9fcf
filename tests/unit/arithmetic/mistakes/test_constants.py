"""Constants of definitions whose wrong value is solved for."""

from __future__ import annotations

import numpy as np

from qdebug.arithmetic.definitions.catalogue import definition_of
from qdebug.arithmetic.mistakes.constants import constant_dials
from qdebug.model import Node
from qdebug.replay import run_node

X = np.random.default_rng(1).normal(size=(9, 20)).astype(np.float32)


def test_the_constant_of_a_gelu():
    node = Node(name="n", op="Gelu", inputs=("x",), outputs=("y",), attrs={"approximate": "tanh"})
    right = run_node(node, {"x": X}, {"": 20})["y"]
    (dial,) = constant_dials(node, definition_of(node, {"x": X}, {"": 20}, "y"), right)
    assert dial.start == 0.044715
    mistake = dial.mistake(0.005)
    expected = 0.5 * X * (1 + np.tanh(np.sqrt(2 / np.pi) * (X + 0.005 * X**3)))
    assert np.allclose(mistake.after(right), expected, atol=1e-6)
    assert mistake.likely.startswith("the constant 0.044715 in y = 0.5 * x")
    assert mistake.likely.endswith("is 0.005")
