"""Convolutions against the sum that defines them, written out element by element."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.errors import KernelError
from qdebug.model import Node
from qdebug.replay import run_node
from qdebug.replay import windows as convolve_module


def direct(x, w, strides, dilations, begin, end, group):
    """Sum products one by one, in Python's exact integers or float64."""
    padding = [(0, 0), (0, 0), *zip(begin, end, strict=True)]
    x = np.pad(x, padding)
    per_in, per_out = w.shape[1], w.shape[0] // group
    spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    out = [(n - s) // t + 1 for n, s, t in zip(x.shape[2:], spans, strides, strict=True)]
    y = np.zeros((x.shape[0], w.shape[0], *out), dtype=x.dtype)
    for n, m in product(range(x.shape[0]), range(w.shape[0])):
        source = x[n, m // per_out * per_in : (m // per_out + 1) * per_in]
        for place in product(*(range(count) for count in out)):
            window = tuple(
                slice(p * t, p * t + s, d) for p, t, s, d in zip(place, strides, spans, dilations, strict=True)
            )
            y[(n, m, *place)] = (source[(slice(None), *window)] * w[m]).sum()
    return y


@st.composite
def geometries(draw):
    axes = draw(st.integers(1, 3))
    kernel = draw(st.tuples(*[st.integers(1, 3)] * axes))
    dilations = draw(st.tuples(*[st.integers(1, 2)] * axes))
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    group = draw(st.integers(1, 3))
    return {
        "extent": tuple(s + draw(st.integers(0, 4)) for s in spans),
        "kernel": kernel,
        "strides": draw(st.tuples(*[st.integers(1, 3)] * axes)),
        "dilations": dilations,
        "begin": draw(st.tuples(*[st.integers(0, 2)] * axes)),
        "end": draw(st.tuples(*[st.integers(0, 2)] * axes)),
        "group": group,
        "per_in": draw(st.integers(1, 2)),
        "per_out": draw(st.integers(1, 2)),
        "seed": draw(st.integers(0, 2**16)),
    }


def arrays(shape, draw_one):
    """Draw the input and filters of a geometry."""
    x = draw_one((2, shape["group"] * shape["per_in"], *shape["extent"]))
    w = draw_one((shape["group"] * shape["per_out"], shape["per_in"], *shape["kernel"]))
    return x, w


def attrs_of(shape):
    return {
        "strides": shape["strides"],
        "dilations": shape["dilations"],
        "pads": (*shape["begin"], *shape["end"]),
        "group": shape["group"],
    }


def expected_of(shape, x, w):
    return direct(x, w, shape["strides"], shape["dilations"], shape["begin"], shape["end"], shape["group"])


@drawn(60)
@given(geometries())
def test_float_convolution_is_the_sum_that_defines_it(shape):
    rng = np.random.default_rng(shape["seed"])
    x, w = arrays(shape, lambda s: rng.normal(size=s))
    node = Node(name="n", op="Conv", inputs=("x", "w"), outputs=("y",), attrs=attrs_of(shape))
    expected = expected_of(shape, x, w)
    wide = run_node(node, {"x": x, "w": w})["y"]
    assert wide.dtype == np.float64
    np.testing.assert_allclose(wide, expected, rtol=1e-12, atol=1e-12)
    single = run_node(node, {"x": x.astype(np.float32), "w": w.astype(np.float32)})["y"]
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, rtol=1e-4, atol=1e-4)


@drawn(60)
@given(geometries())
def test_integer_convolution_is_exact(shape):
    rng = np.random.default_rng(shape["seed"])
    x, w = arrays(shape, lambda s: rng.integers(-128, 128, s))
    node = Node(name="n", op="ConvInteger", inputs=("x", "w"), outputs=("y",), attrs=attrs_of(shape))
    sums = run_node(node, {"x": x.astype(np.int8), "w": w.astype(np.int8)})["y"]
    np.testing.assert_array_equal(sums, expected_of(shape, x, w))


@drawn(30)
@given(geometries())
def test_transposed_convolution_is_the_adjoint(shape):
    # <conv(x), y> = <x, conv_transpose(y)> for any x and y, up to rounding.
    rng = np.random.default_rng(shape["seed"])
    x, w = arrays(shape, lambda s: rng.normal(size=s))
    attrs = attrs_of(shape)
    forward = run_node(Node(name="n", op="Conv", inputs=("x", "w"), outputs=("y",), attrs=attrs), {"x": x, "w": w})["y"]
    y = rng.normal(size=forward.shape)
    attrs["output_padding"] = [
        (n + b + e - (k - 1) * d - 1) % s
        for n, b, e, k, d, s in zip(*(shape[f] for f in ("extent", "begin", "end", "kernel", "dilations", "strides")))  # noqa: B905
    ]
    node = Node(name="n", op="ConvTranspose", inputs=("y", "w"), outputs=("x",), attrs=attrs)
    back = run_node(node, {"y": y, "w": w})["x"]
    assert back.shape == x.shape
    np.testing.assert_allclose(np.vdot(forward, y), np.vdot(x, back), rtol=1e-9, atol=1e-9)


def test_blocks_of_rows_give_the_same_result(monkeypatch):
    rng = np.random.default_rng(3)
    x, w = rng.integers(-9, 9, (1, 4, 23, 9)), rng.integers(-9, 9, (6, 2, 3, 3))
    node = Node(name="n", op="ConvInteger", inputs=("x", "w"), outputs=("y",), attrs={"group": 2, "pads": (1, 1, 1, 1)})
    values = {"x": x.astype(np.int8), "w": w.astype(np.int8)}
    whole = run_node(node, values)["y"]
    monkeypatch.setattr(convolve_module, "_BLOCK_BYTES", 4096)
    np.testing.assert_array_equal(run_node(node, values)["y"], whole)
    np.testing.assert_array_equal(whole, direct(x, w, (1, 1), (1, 1), (1, 1), (1, 1), 2))


def test_blocks_of_depthwise_channels_give_the_same_result(monkeypatch):
    rng = np.random.default_rng(4)
    x, w = rng.integers(-9, 9, (1, 7, 8, 8)), rng.integers(-9, 9, (7, 1, 3, 3))
    node = Node(name="n", op="ConvInteger", inputs=("x", "w"), outputs=("y",), attrs={"group": 7})
    monkeypatch.setattr(convolve_module, "_DEPTHWISE_ELEMENTS", 80)
    sums = run_node(node, {"x": x.astype(np.int8), "w": w.astype(np.int8)})["y"]
    np.testing.assert_array_equal(sums, direct(x, w, (1, 1), (1, 1), (0, 0), (0, 0), 7))


def test_sums_beyond_float32_stay_exact():
    # 2**24 is passed: a float32 product would lose the ones.
    depth = 1200
    x = np.full((1, depth, 1, 1), 127, np.int8)
    x[0, 0] = 126
    w = np.full((1, depth, 1, 1), 127, np.int8)
    node = Node(name="n", op="ConvInteger", inputs=("x", "w"), outputs=("y",))
    assert run_node(node, {"x": x, "w": w})["y"].item() == 127 * 127 * depth - 127


def test_what_is_padded_is_the_zero_point():
    x = np.full((1, 1, 2, 2), 7, np.uint8)
    w = np.ones((1, 1, 3, 3), np.int8)
    node = Node(name="n", op="ConvInteger", inputs=("x", "w", "z"), outputs=("y",), attrs={"pads": (1, 1, 1, 1)})
    sums = run_node(node, {"x": x, "w": w, "z": np.array(7, np.uint8)})["y"]
    np.testing.assert_array_equal(sums, np.zeros((1, 1, 2, 2)))


def test_inputs_are_left_alone():
    rng = np.random.default_rng(5)
    x, w, b = (rng.normal(size=s).astype(np.float32) for s in ((1, 2, 5, 5), (3, 2, 1, 1), (3,)))
    before = [array.copy() for array in (x, w, b)]
    for array in (x, w, b):
        array.flags.writeable = False
    run_node(Node(name="n", op="Conv", inputs=("x", "w", "b"), outputs=("y",)), {"x": x, "w": w, "b": b})
    for array, old in zip((x, w, b), before, strict=True):
        np.testing.assert_array_equal(array, old)


@pytest.mark.parametrize(
    ("w_shape", "attrs", "named"),
    [
        ((2, 3, 3, 3), {}, "4 channels"),
        ((2, 4, 9, 9), {}, "do not fit"),
        ((2, 4, 3, 3), {"strides": (1,)}, "strides has 1 values"),
        ((2, 4, 3, 3), {"auto_pad": "SOME"}, "auto_pad"),
    ],
)
def test_what_does_not_fit_is_named(w_shape, attrs, named):
    values = {"x": np.zeros((1, 4, 5, 5), np.float32), "w": np.zeros(w_shape, np.float32)}
    with pytest.raises(KernelError, match=named) as error:
        run_node(Node(name="c9", op="Conv", inputs=("x", "w"), outputs=("y",), attrs=attrs), values)
    assert "'c9' (Conv)" in error.value.message
    assert "float32[1, 4, 5, 5]" in error.value.message


def test_no_samples_give_no_samples():
    values = {"x": np.zeros((0, 4, 5, 5), np.float32), "w": np.zeros((2, 4, 3, 3), np.float32)}
    out = run_node(Node(name="n", op="Conv", inputs=("x", "w"), outputs=("y",)), values)["y"]
    assert out.shape == (0, 2, 3, 3)


def test_a_kernel_of_one_still_strides():
    x = np.array([[[1.0, 2.0]]], np.float32)
    attrs = {"kernel_shape": (1,), "strides": (2,), "pads": (0, 1)}
    node = Node(name="c", op="Conv", inputs=("x", "w"), outputs=("y",), attrs=attrs)
    y = run_node(node, {"x": x, "w": np.ones((1, 1, 1), np.float32)})["y"]
    np.testing.assert_array_equal(y, [[[1.0, 0.0]]])
