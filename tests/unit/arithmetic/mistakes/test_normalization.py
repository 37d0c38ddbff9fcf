"""Statistics of normalizations that differ from those that the operator defines."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.arithmetic.mistakes.normalization import cancelled_variance, normalization_mistakes, other_windows
from qdebug.model import Node
from qdebug.replay.registry import run_node

RNG = np.random.default_rng(4)
ROWS = (RNG.normal(size=(6, 40)) + 0.7).astype(np.float32)
SCALE, BIAS = (RNG.normal(size=40).astype(np.float32) for _ in range(2))
MEAN, SIZE = ROWS.mean(1, keepdims=True), 40
POWER, VARIANCE = np.square(ROWS).mean(1, keepdims=True), ROWS.var(1, keepdims=True)
EPSILON = 1e-3


def said(op, values, **attrs):
    node = Node(name="n", op=op, inputs=tuple(values), outputs=("y",), attrs={"epsilon": EPSILON, **attrs})
    data = values["x"]
    return {each.likely: each.after(np.zeros_like(data)) for each in normalization_mistakes(node, values)}


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("the mean is not subtracted, as in an RMSNormalization", ROWS / np.sqrt(POWER + EPSILON)),
        ("the mean is not subtracted after squaring", ROWS / np.sqrt(VARIANCE + EPSILON)),
        ("the mean is not subtracted before squaring", (ROWS - MEAN) / np.sqrt(POWER + EPSILON)),
        (
            "the variance is divided by 39, not by the 40 elements",
            (ROWS - MEAN) / np.sqrt(VARIANCE * 40 / 39 + EPSILON),
        ),
        ("squares are summed, but not divided by their count", (ROWS - MEAN) / np.sqrt(VARIANCE * SIZE + EPSILON)),
        ("epsilon is added to the deviation, not the variance", (ROWS - MEAN) / (np.sqrt(VARIANCE) + EPSILON)),
        ("it divides by the variance, not its root", (ROWS - MEAN) / (VARIANCE + EPSILON)),
        ("the statistics are taken along axes 0", (ROWS - ROWS.mean(0)) / np.sqrt(ROWS.var(0) + EPSILON)),
    ],
)
def test_other_statistics_of_rows(text, normalized):
    made = said("LayerNormalization", {"x": ROWS, "g": SCALE, "b": BIAS})
    assert np.allclose(made[text], normalized * SCALE + BIAS, rtol=1e-5, atol=1e-5)


def test_a_bias_is_scaled_as_well():
    made = said("LayerNormalization", {"x": ROWS, "g": SCALE, "b": BIAS})
    expected = ((ROWS - MEAN) / np.sqrt(VARIANCE + EPSILON) + BIAS) * SCALE
    assert np.allclose(made["the bias is added before the scale is applied"], expected, rtol=1e-5, atol=1e-5)


def test_a_mean_is_subtracted_where_there_is_none():
    made = said("RMSNormalization", {"x": ROWS, "g": SCALE})
    expected = (ROWS - MEAN) / np.sqrt(VARIANCE + EPSILON) * SCALE
    assert np.allclose(made["the mean is subtracted first, as in a LayerNormalization"], expected, rtol=1e-5, atol=1e-5)
    assert "the mean is not subtracted, as in an RMSNormalization" not in made


def test_statistics_of_images_are_taken_along_other_axes():
    x = RNG.normal(size=(3, 5, 6, 6)).astype(np.float32)
    made = said("InstanceNormalization", {"x": x, "g": np.ones(5, np.float32), "b": np.zeros(5, np.float32)})
    expected = (x - x.mean((0, 2, 3), keepdims=True)) / np.sqrt(x.var((0, 2, 3), keepdims=True) + EPSILON)
    assert np.allclose(made["the statistics are taken along axes 0, 2, 3"], expected, rtol=1e-5, atol=1e-5)
    assert "the statistics are taken along axes 2, 3" not in made


def test_mean_and_variance_count_zeros_beyond_the_row():
    padded = np.pad(ROWS, ((0, 0), (0, 24)))
    expected = (ROWS - padded.mean(1, keepdims=True)) / np.sqrt(padded.var(1, keepdims=True) + EPSILON)
    made = said("LayerNormalization", {"x": ROWS, "g": SCALE, "b": BIAS})
    text = "mean and variance include 24 zeros beyond the 40 elements"
    assert np.allclose(made[text], expected * SCALE + BIAS, rtol=1e-5, atol=1e-5)


def test_a_window_of_channels_has_one_more_at_its_end():
    data = (RNG.normal(size=(1, 9, 4)) * 30).astype(np.float32)
    node = Node(name="n", op="LRN", inputs=("x",), outputs=("y",), attrs={"size": 3, "alpha": 0.01})
    sums = sum(np.pad(data**2, ((0, 0), (1, 2), (0, 0)))[:, at : at + 9] for at in range(4))
    made = {each.likely: each.after(np.zeros_like(data)) for each in other_windows(node, {"x": data})}
    text = "the sums run from channel -1 to +2, not from -1 to +1"
    assert np.allclose(made[text], data / (1 + 0.01 / 3 * sums) ** 0.75, rtol=1e-5)


def one_pass(x, dtype):
    """Standardize rows by sums in a format, the variance being the mean square less the squared mean."""
    count = dtype(x.shape[-1])
    total, squares = np.cumsum(x, -1, dtype=dtype)[..., -1:], np.cumsum(x * x, -1, dtype=dtype)[..., -1:]
    mean = total / count
    return (x - mean) / np.sqrt(np.maximum(squares / count - mean * mean, 0) + dtype(1e-5))


def test_a_variance_that_is_lost_by_cancellation():
    drawn = np.random.default_rng(12)
    x = (drawn.normal(size=(40, 64)) + drawn.choice([0, 300, 1500], (40, 1))).astype(np.float32)
    values = {"x": x, "g": drawn.uniform(0.5, 2, 64).astype(np.float32), "b": drawn.normal(size=64).astype(np.float32)}
    node = Node(name="n", op="LayerNormalization", inputs=("x", "g", "b"), outputs=("y",), attrs={"epsilon": 1e-5})
    lost = one_pass(x, np.float32) * values["g"] + values["b"]
    assert cancelled_variance(node, values, lost) == "float32"
    right = run_node(node, values, {"": 21})["y"]
    assert cancelled_variance(node, values, right) is None
    wider = Node(name="n", op=node.op, inputs=node.inputs, outputs=("y",), attrs={"epsilon": 0.1})
    other_epsilon = run_node(wider, values, {"": 21})
    assert cancelled_variance(node, values, other_epsilon["y"]) is None
    noisy = (right + drawn.normal(size=right.shape) * 0.05).astype(np.float32)
    assert cancelled_variance(node, values, noisy) is None
