"""Softmaxes over tiles with one wrong step, alone and in an attention."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.arithmetic.mistakes.softmax import softmax_mistakes
from qdebug.model import Node
from qdebug.replay import run_node

RNG = np.random.default_rng(3)
OPSET = {"": 23}
SOFTMAX = Node(name="n", op="Softmax", inputs=("x",), outputs=("y",))
X = RNG.normal(size=(5, 21)).astype(np.float32) * 3
QKV = {name: RNG.normal(size=(1, 2, size, 8)).astype(np.float32) for name, size in (("q", 4), ("k", 21), ("v", 21))}


def made(node, values):
    right = run_node(node, values, OPSET)["y"]
    return {each.likely: each.after(right) for each in softmax_mistakes(node, values, OPSET)}


def tiled(scores, tile, *, rescales):
    top, total = np.full((*scores.shape[:-1], 1), -np.inf), 0.0
    for start in range(0, scores.shape[-1], tile):
        part = scores[..., start : start + tile]
        new = np.maximum(top, part.max(-1, keepdims=True))
        total = total * (np.exp(top - new) if rescales else 1) + np.exp(part - new).sum(-1, keepdims=True)
        top = new
    return np.exp(scores - top) / total


def test_tiles_that_rescale_are_right():
    assert np.allclose(tiled(X.astype(np.float64), 8, rescales=True), run_node(SOFTMAX, {"x": X}, OPSET)["y"])


@pytest.mark.parametrize("tile", [8, 16])
def test_a_sum_that_is_not_rescaled(tile):
    text = f"the running sum is not rescaled when the maximum grows after a tile of {tile} elements"
    expected = tiled(X.astype(np.float64), tile, rescales=False)
    assert np.allclose(made(SOFTMAX, {"x": X})[text], expected, rtol=1e-6)
    attention = Node(name="n", op="Attention", inputs=("q", "k", "v"), outputs=("y",))
    scores = QKV["q"].astype(np.float64) @ QKV["k"].swapaxes(2, 3) / np.sqrt(8)
    expected = tiled(scores, tile, rescales=False) @ QKV["v"]
    assert np.allclose(made(attention, QKV)[text], expected, rtol=1e-5, atol=1e-6)


def test_a_sum_and_keys_without_the_last_tile():
    powers = np.exp(X.astype(np.float64))
    text = "the sum covers only the first 16 of 21 elements"
    expected = powers / powers[:, :16].sum(1, keepdims=True)
    assert np.allclose(made(SOFTMAX, {"x": X})[text], expected, rtol=1e-5)
    attention = Node(name="n", op="Attention", inputs=("q", "k", "v"), outputs=("y",))
    fewer = {"q": QKV["q"], "k": QKV["k"][:, :, :16], "v": QKV["v"][:, :, :16]}
    text = "the last 5 of 21 keys are not seen, as they do not fill a tile"
    assert np.allclose(made(attention, QKV)[text], run_node(attention, fewer, OPSET)["y"], rtol=1e-5, atol=1e-6)


def test_queries_that_see_no_key():
    attention = Node(name="n", op="Attention", inputs=("q", "k", "v", "m"), outputs=("y",))
    mask = np.where(RNG.random((4, 21)) < 0.3, -np.inf, 0).astype(np.float32)
    mask[1] = -np.inf
    values = {**QKV, "m": mask}
    right = run_node(attention, values, OPSET)["y"]
    results = {text.partition(",")[0]: result for text, result in made(attention, values).items()}
    rest = [0, 2, 3]
    for text, row in (
        ("queries that see no key get the average of all values", QKV["v"].mean(2)),
        ("queries that see no key get NaN", np.full((1, 2, 8), np.nan)),
    ):
        assert np.allclose(results[text][:, :, 1], row, equal_nan=True, atol=1e-6)
        assert np.allclose(results[text][:, :, rest], right[:, :, rest], atol=1e-6)
