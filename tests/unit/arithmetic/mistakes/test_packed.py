"""Packed zero points can be misread in type, order and row pitch."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.arithmetic.mistakes.packed import packed_mistakes
from qdebug.model import Node

DRAWN = np.random.default_rng(6)


def zero_points(blocks, columns=6):
    """Return the zero points of a packed weight, (columns, blocks), and those of each mistake, by its words."""
    codes = np.zeros((columns, blocks + blocks % 2), np.uint8)
    codes[:, :blocks] = DRAWN.integers(5, 11, (columns, blocks))
    packed = (codes[:, ::2] | codes[:, 1::2] << 4).reshape(-1)
    weight = DRAWN.integers(0, 256, (columns, blocks, 16)).astype(np.uint8)
    values = {"x": np.ones((2, 32 * blocks), np.float32), "w": weight, "s": np.ones(columns * blocks, np.float32)}
    attrs = {"K": 32 * blocks, "N": columns, "bits": 4, "block_size": 32}
    node = Node(
        name="n", op="MatMulNBits", domain="com.microsoft", inputs=("x", "w", "s", "z"), outputs=("y",), attrs=attrs
    )
    made = list(packed_mistakes(node, values | {"z": packed}))
    return codes, packed, {each.likely: each for each in made if "packed zero points" in each.likely}


def of(made, words):
    (name,) = [name for name in made if words in name]
    return made[name].values["z"]


@pytest.mark.parametrize("blocks", [3, 4])
def test_zero_points_are_misread(blocks):
    codes, packed, made = zero_points(blocks)
    as_half = packed.view(np.float16).astype(np.float32)
    np.testing.assert_array_equal(of(made, "read as float16").reshape(-1)[: as_half.size], as_half)
    np.testing.assert_array_equal(of(made, "read as uint8").reshape(-1)[: packed.size], packed[: 6 * blocks])
    np.testing.assert_array_equal(of(made, "first block in each row"), np.repeat(codes[:, :1], blocks, 1))
    assert any("not padded" in name for name in made) is bool(blocks % 2)


def test_rows_that_are_not_padded_are_read_from_one_stream():
    codes, _, made = zero_points(3)
    np.testing.assert_array_equal(of(made, "not padded"), codes.reshape(-1)[:18].reshape(6, 3))
