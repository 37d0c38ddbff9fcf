"""Casts to truth values and to short floats."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.arithmetic.mistakes.casts import cast_mistakes
from qdebug.model import Node

BOOL, FLOAT16 = 9, 10


def made(data, target):
    node = Node(name="n", op="Cast", inputs=("x",), outputs=("y",), attrs={"to": target})
    with np.errstate(over="ignore"):
        return {each.likely: each.after(data) for each in cast_mistakes(node, {"x": data})}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("1 alone is true, not every number but 0", lambda x: x == 1),
        ("positive numbers alone are true, not every number but 0", lambda x: x > 0),
        ("the lowest bit decides, not whether the number is 0", lambda x: x % 2 == 1),
        ("the lowest 8 bits decide, not whether the number is 0", lambda x: x % 256 != 0),
    ],
)
def test_truth_values(text, rule):
    data = np.array([0, 1, 2, 3, -1, -2, 256, 512], np.int32)
    assert np.array_equal(made(data, BOOL)[text], rule(data))


def test_numbers_beyond_float16():
    data = np.array([1.0, 70000.0, -1e9], np.float32)
    result = made(data, FLOAT16)["numbers beyond float16 become 65504, its largest number, not infinite"]
    assert result.tolist() == [1.0, 65504.0, -65504.0]
    assert not [text for text in made(data[:1], FLOAT16) if "beyond" in text]
