"""Resizes that take the nearest elements by another rule."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.arithmetic.mistakes.known import mistakes
from qdebug.model import Node
from qdebug.replay.registry import run_node

DATA = np.random.default_rng(0).normal(size=(1, 2, 6, 6)).astype(np.float32)
OPSET = {"": 17}


def resize(scale, transform, rounding):
    attrs = {"mode": "nearest", "coordinate_transformation_mode": transform, "nearest_mode": rounding}
    node = Node(name="n", op="Resize", inputs=("x", "", "s"), outputs=("y",), attrs=attrs)
    return node, {"x": DATA, "s": np.array([1, 1, scale, scale], np.float32)}


def texts_for(node, values, recorded):
    """Return the mistakes that compute the recorded values."""
    texts = []
    for each in mistakes(node, values, OPSET):
        result = each.after(run_node(each.node, {**values, **each.values}, each.opset or OPSET)["y"])
        if np.array_equal(result, recorded):
            texts.append(each.likely)
    return texts


def taken(count, rule):
    return np.clip(rule(np.arange(count)), 0, DATA.shape[-1] - 1).astype(int)


def test_both_attributes_are_other_ones():
    node, values = resize(2.5, "asymmetric", "floor")
    at = taken(15, lambda index: np.floor((index + 0.5) / 2.5))
    texts = texts_for(node, values, DATA[:, :, at][..., at])
    rule = "coordinate_transformation_mode = half_pixel and nearest_mode = round_prefer_ceil"
    formula = "it takes the source index floor((i + 0.5) / scale)"
    assert texts == [f"it uses {rule}, not asymmetric and floor ({formula})"]


def test_rules_with_the_same_elements_are_one_mistake():
    node, values = resize(3, "asymmetric", "round_prefer_floor")
    at = taken(18, lambda index: index // 3)
    texts = texts_for(node, values, DATA[:, :, at][..., at])
    assert texts == [
        "it uses nearest_mode = floor, not round_prefer_floor (it takes the source index floor(i / scale))"
    ]


@pytest.mark.parametrize("axis", [2, 3])
def test_one_axis_alone_has_another_rule(axis):
    node, values = resize(3, "asymmetric", "round_prefer_floor")
    floors, rounds = taken(18, lambda index: index // 3), taken(18, lambda index: np.ceil(index / 3 - 0.5))
    recorded = DATA.take(floors if axis == 2 else rounds, 2).take(floors if axis == 3 else rounds, 3)
    (text,) = texts_for(node, values, recorded)
    assert text.startswith(f"along axis {axis} it uses nearest_mode = floor, not round_prefer_floor")


def test_sizes_give_the_same_rules_as_scales():
    node, values = resize(2, "half_pixel", "round_prefer_floor")
    sized = Node(name="n", op="Resize", inputs=("x", "", "", "s"), outputs=("y",), attrs=node.attrs)
    at = taken(11, lambda index: np.ceil(index / (11 / 6)))
    (text,) = texts_for(sized, {"x": DATA, "s": np.array([1, 2, 11, 11])}, DATA[:, :, at][..., at])
    assert "nearest_mode = ceil, not half_pixel and round_prefer_floor" in text
    assert texts_for(node, values, DATA.repeat(2, 2)) == []
