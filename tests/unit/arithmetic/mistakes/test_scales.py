"""Mistakes with codes of operands whose products and averages are real numbers."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.arithmetic.mistakes.scales import divisions_of_codes, saturating_pairs, scales_by_flat_index
from qdebug.model import Node, QuantParams
from qdebug.replay import run_node

DRAWN = np.random.default_rng(7)
DATA, WEIGHT = DRAWN.integers(0, 256, (2, 6, 32)), DRAWN.integers(-127, 128, (32, 5))
SCALES, ZERO = (np.float32(0.02), np.float32(0.01)), 110
QUANTS = {
    "x": QuantParams(dtype="uint8", scale=SCALES[0], zero_point=ZERO),
    "w": QuantParams(dtype="int8", scale=SCALES[1], zero_point=0),
}
VALUES = {"x": ((DATA - ZERO) * SCALES[0]).astype(np.float32), "w": (WEIGHT * SCALES[1]).astype(np.float32)}


def test_pairs_of_products_that_saturate_in_16_bits():
    node = Node(name="n", op="MatMul", inputs=("x", "w"), outputs=("y",))
    (mistake,) = saturating_pairs(node, VALUES, QUANTS)
    expected = np.zeros((2, 6, 5))
    for at in range(0, 32, 2):
        pair = sum(DATA[..., k, None] * WEIGHT[k] for k in (at, at + 1))
        expected += np.clip(pair, -32768, 32767)
    expected = (expected - ZERO * WEIGHT.sum(0)) * 0.0002
    np.testing.assert_allclose(mistake.after(np.zeros(0)), expected, rtol=1e-5)
    assert np.abs(expected - VALUES["x"] @ VALUES["w"]).max() > 0.1
    assert not list(saturating_pairs(node, VALUES, {"x": QUANTS["x"]}))


@pytest.mark.parametrize("zero_point", [0, 3])
def test_codes_that_are_divided_before_they_are_summed(zero_point):
    quant = QuantParams(dtype="uint8", scale=np.float32(0.5), zero_point=zero_point)
    codes = DRAWN.integers(0, 256, (1, 2, 6, 6))
    node = Node(name="n", op="AveragePool", inputs=("x",), outputs=("y",), attrs={"kernel_shape": (3, 3)})
    found = list(divisions_of_codes(node, {"x": ((codes - zero_point) * 0.5).astype(np.float32)}, quant))
    assert len(found) == (1 if zero_point == 0 else 2)
    np.testing.assert_allclose(found[0].values["x"] / 9, np.trunc((codes - zero_point) / 9) * 0.5)


@pytest.mark.parametrize(("extent", "count"), [(30, 1), (32, 0)])
def test_the_block_of_a_code_is_taken_from_its_index_in_memory(extent, count):
    codes, scales = DRAWN.integers(-128, 128, (9, extent), np.int8), DRAWN.random((9, 4)).astype(np.float32)
    attrs = {"axis": 1, "block_size": 8}
    node = Node(name="n", op="DequantizeLinear", inputs=("x", "s"), outputs=("y",), attrs=attrs)
    mistakes = list(scales_by_flat_index(node, {"x": codes, "s": scales}))
    assert len(mistakes) == count
    for mistake in mistakes:
        result = run_node(mistake.node, {"x": codes, "s": scales, **mistake.values}, {"": 21})["y"]
        expected = codes * scales.reshape(-1)[np.arange(270) // 8].reshape(9, 30)
        np.testing.assert_allclose(result, expected, rtol=1e-6)
