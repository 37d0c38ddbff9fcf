"""Weights of a few bits, packed in blocks: what the bytes stand for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from qdebug.errors import KernelError
from qdebug.model import Node
from qdebug.replay.blockwise_weight import blockwise_weight, round_in_blocks

RNG = np.random.default_rng(5)


def product(bits, *, rows=40, columns=3, block=16, points=True, group=""):
    inputs = ("x", "w", "s", "z" if points else "", group)
    attrs = {"K": rows, "N": columns, "bits": bits, "block_size": block}
    return Node(name="p", op="MatMulNBits", domain="com.microsoft", inputs=inputs, outputs=("y",), attrs=attrs)


def packed(codes, bits):
    """Pack codes along the last axis, the first of a byte in its lowest bits."""
    share = 8 // bits
    codes = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, -codes.shape[-1] % share)])
    parts = codes.reshape(*codes.shape[:-1], -1, share).astype(np.uint16)
    return (parts << (np.arange(share) * bits)).sum(-1).astype(np.uint8)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("points", [True, False])
def test_codes_are_unpacked_column_by_column_and_block_by_block(bits, points):
    codes = RNG.integers(0, 2**bits, (3, 3, 16))
    zero = RNG.integers(0, 2**bits, (3, 3))
    scale = RNG.uniform(0.1, 1, (3, 3)).astype(np.float32)
    values = {"w": packed(codes, bits), "s": scale.ravel()}
    if points:
        values["z"] = packed(zero, bits).ravel()
    made, steps = blockwise_weight(product(bits, points=points), values)
    centred = codes - (zero[..., None] if points else 2 ** (bits - 1))
    assert made.shape == steps.shape == (40, 3)
    np.testing.assert_array_equal(made, centred.reshape(3, 48)[:, :40].T)
    np.testing.assert_array_equal(steps, np.repeat(scale, 16, axis=1)[:, :40].T)


def test_what_does_not_fit_is_refused_by_name():
    values = {"w": np.zeros((3, 3, 8), np.uint8), "s": np.ones(9, np.float32), "z": np.zeros(6, np.uint8)}
    with pytest.raises(KernelError, match="'p' groups its rows by an index"):
        blockwise_weight(product(4, group="g"), values)
    with pytest.raises(KernelError, match="'p' has a weight of"):
        blockwise_weight(product(4), values | {"s": np.ones(4, np.float32)})
    with pytest.raises(KernelError, match="'p' has 24 codes per column"):
        blockwise_weight(product(8), values)


def test_data_are_rounded_to_steps_of_the_largest_of_their_block():
    x = np.float32([[127, 1.4, -0.5, 2.5, 0, 0, 0, 0, 5, -10]])
    rounded = round_in_blocks(x, 4)
    np.testing.assert_allclose(rounded, [[127, 1, 0, 2, 0, 0, 0, 0, 64 * 10 / 127, -10]], rtol=1e-6)


ELEMENTS = st.floats(-(2.0**60), 2.0**60, width=32).map(lambda x: x if abs(x) > 1e-20 else 0.0)


@given(arrays(np.float32, (3, 11), elements=ELEMENTS), st.integers(1, 12))
def test_rounding_moves_no_element_by_more_than_half_a_step(x, block):
    rounded = round_in_blocks(x, block)
    for start in range(0, 11, block):
        part = np.abs(x[:, start : start + block]).astype(np.float64)
        off = np.abs(rounded[:, start : start + block].astype(np.float64) - x[:, start : start + block])
        assert (off <= 0.5001 * part.max(axis=1, keepdims=True) / 127 + 1e-38).all()
