"""Two roundings of quantized kernels: they differ at ties and nowhere else."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.model import Node
from qdebug.replay import Arithmetic, Step, run_node
from qdebug.replay.variant import DEFAULTS


def rounded(variant):
    """Return a variant that rounds half away from zero where it rounds half to even."""
    even, away = Step(op="round", rounding="even"), Step(op="round", rounding="away")
    return replace(variant, requantize=tuple(away if step == even else step for step in variant.requantize))


EVEN, AWAY = Arithmetic(), Arithmetic(variants={kind: rounded(variant) for kind, variant in DEFAULTS.items()})


def both(node, values):
    return tuple(run_node(node, values, arithmetic=choice)["y"] for choice in (EVEN, AWAY))


def test_quantize_at_ties():
    node = Node(name="n", op="QuantizeLinear", inputs=("x", "s", "z"), outputs=("y",))
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, 2.4999998], np.float32)
    values = {"x": x, "s": np.array(1, np.float32), "z": np.array(3, np.int8)}
    even, away = both(node, values)
    assert even.tolist() == [1, 1, 3, 3, 5, 5, 3, 5]
    assert away.tolist() == [0, 1, 2, 4, 5, 6, 3, 5]


@drawn(80)
@given(st.integers(0, 2**16), st.sampled_from([np.uint8, np.int8]), st.integers(0, 4))
def test_qlinear_conv_differs_at_ties_alone(seed, dtype, exponent):
    rng = np.random.default_rng(seed)
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max + 1, (1, 3, 6, 6)).astype(dtype)
    w = rng.integers(-2, 3, (4, 3, 3, 3)).astype(np.int8)
    zero, out_zero = np.array(info.max // 2, dtype), np.array(info.max // 3, dtype)
    values = {
        "x": x, "xs": np.array(0.5, np.float32), "xz": zero,
        "w": w, "ws": np.array(2.0**-exponent, np.float32), "wz": np.array(0, np.int8),
        "ys": np.array(4, np.float32), "yz": out_zero,
    }  # fmt: skip
    node = Node(name="n", op="QLinearConv", inputs=tuple(values), outputs=("y",))
    even, away = both(node, values)
    sums_node = Node(name="n", op="ConvInteger", inputs=("x", "w", "xz"), outputs=("y",))
    sums = run_node(sums_node, values)["y"].astype(np.int64)
    scale = 2 ** (3 + exponent)  # sx sw / sy = 1 / scale
    tie = (2 * sums) % (2 * scale) == scale
    np.testing.assert_array_equal(even[~tie], away[~tie])
    half_up = (np.abs(sums) + scale // 2) // scale
    expected = np.clip(np.sign(sums) * half_up + int(out_zero), info.min, info.max)
    np.testing.assert_array_equal(away, expected)
    low = sums // scale
    to_even = np.where(tie, low + low % 2, np.floor(sums / scale + 0.5)).astype(np.int64)
    np.testing.assert_array_equal(even, np.clip(to_even + int(out_zero), info.min, info.max))


def average_pool(scale):
    x = np.array([[[[1, 1], [2, 2]]]], np.uint8)
    zero = np.array(0, np.uint8)
    values = {"x": x, "xs": scale, "xz": zero, "ys": scale, "yz": zero}
    node = Node(
        name="n", op="QLinearAveragePool", domain="com.microsoft", inputs=tuple(values), outputs=("y",),
        attrs={"kernel_shape": (2, 2)},
    )  # fmt: skip
    return both(node, values)


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_the_rounding_reaches_pools(scale):
    even, away = average_pool(np.array(scale, np.float32))
    assert (even.item(), away.item()) == (2, 2)  # 1.5 both ways
    node = Node(name="n", op="QLinearMul", domain="com.microsoft", inputs=tuple("abcdefgh"), outputs=("y",))
    one, zero = np.array(1, np.float32), np.array(0, np.int8)
    codes = np.array([1, 3, 5], np.int8)
    values = dict(
        zip("abcdefgh", (codes, one, zero, codes * 0 + 1, one, zero, np.float32(2).reshape(()), zero), strict=True)
    )
    even, away = both(node, values)
    assert even.tolist() == [0, 2, 2]
    assert away.tolist() == [1, 2, 3]


def test_float_kernels_take_no_notice():
    values = {"x": np.linspace(-3, 3, 13, dtype=np.float32)}
    even, away = both(Node(name="n", op="Round", inputs=("x",), outputs=("y",)), values)
    np.testing.assert_array_equal(even, away)
