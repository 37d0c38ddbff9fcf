"""Windows that move over images: what a kernel takes the padding and the groups for."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.arithmetic.mistakes.windows import window_mistakes, with_explicit_pads
from qdebug.model import Node
from qdebug.replay import run_node

RNG = np.random.default_rng(4)


def real(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def results(values, **attrs):
    """Return what a convolution with each mistake gives, by text."""
    conv = Node(name="n", op="Conv", inputs=tuple(values), outputs=("y",), attrs=attrs)
    made = {}
    for mistake in window_mistakes(conv, values, {"": 21}):
        result = run_node(mistake.node, {**values, **mistake.values}, {"": 21})["y"]
        made[mistake.likely] = mistake.after(result)
    return made


@pytest.mark.parametrize(
    ("memory", "order", "before"),
    [("channels-last", (0, 2, 3, 1), (0, slice(None), 0, 3)), ("channels-first", (0, 1, 2, 3), (0, slice(None), 0, 3))],
)
def test_padding_that_is_read_from_the_memory_around_a_row(memory, order, before):
    x, w = real(1, 2, 3, 4), real(1, 2, 1, 2)
    (found,) = [y for text, y in results({"x": x, "w": w}, pads=(0, 1, 0, 0)).items() if memory in text]
    # at the first column of row 1, the window begins with the last pixel of row 0
    assert np.isclose(found[0, 0, 1, 0], x[before] @ w[0, :, 0, 0] + x[0, :, 1, 0] @ w[0, :, 0, 1])
    # at the first column of row 0, with what comes before in memory: nothing, or the end of another channel
    stored = np.ascontiguousarray(x.transpose(order)).reshape(-1)
    earlier = [0, 0] if memory == "channels-last" else [0, stored[x[0, 0].size - 1]]
    assert np.isclose(found[0, 0, 0, 0], earlier @ w[0, :, 0, 0] + x[0, :, 0, 0] @ w[0, :, 0, 1])


def test_a_transposed_convolution_that_is_cropped_elsewhere():
    x, w, b = real(1, 2, 5, 4), real(2, 3, 5, 3), real(3)
    node = Node(
        name="n",
        op="ConvTranspose",
        inputs=("x", "w", "b"),
        outputs=("y",),
        attrs={"auto_pad": "SAME_UPPER", "strides": (2, 2)},
    )
    values = {"x": x, "w": w, "b": b}
    whole = run_node(Node(name="n", op=node.op, inputs=node.inputs, outputs=("y",), attrs={"strides": (2, 2)}), values)
    bias = b.reshape(1, 3, 1, 1)
    reached = np.pad(whole["y"] - bias, ((0, 0), (0, 0), (0, 5), (0, 3)))
    expected = reached[:, :, 1:11, 2:10] + bias
    found = {mistake.likely: mistake.after(x) for mistake in window_mistakes(node, values, {"": 21})}
    np.testing.assert_allclose(found["its result is cropped at 1 and 2, not at 1 and 0"], expected, atol=1e-5)
    assert with_explicit_pads(node, values).attrs["pads"] == (1, 0, 2, 1)


def test_sums_over_all_groups():
    x, w, b = real(1, 6, 4, 4), real(4, 3, 1, 1), real(4)
    made = results({"x": x, "w": w, "b": b}, group=2)
    per_group = np.stack(
        [np.einsum("nchw,oc->nohw", x[:, 3 * g : 3 * g + 3], w[2 * g : 2 * g + 2, :, 0, 0]) for g in (0, 1)]
    )
    added = np.concatenate([per_group.sum(0)] * 2, axis=1) + b.reshape(1, -1, 1, 1)
    assert np.allclose(made["the results of all groups are added up"], added, atol=1e-5)
    own = np.einsum("nchw,oc->nohw", x[:, :3] + x[:, 3:], w[:, :, 0, 0]) + b.reshape(1, -1, 1, 1)
    assert np.allclose(made["each channel sums over the inputs of all groups with its own weights"], own, atol=1e-5)


def test_a_convolution_without_padding_and_groups_can_only_count_its_windows_wrongly():
    text, *others = results({"x": real(1, 2, 4, 4), "w": real(1, 2, 2, 2)})
    assert text.startswith("windows are counted over the width of the input")
    assert all("the rows of each window are read" in each for each in others)


def test_windows_that_are_counted_over_the_width_of_the_input():
    x, w = real(1, 2, 5, 7), real(3, 2, 3, 3)
    (wrong,) = [y for text, y in results({"x": x, "w": w}).items() if "over the width of the input" in text]
    conv = Node(name="n", op="Conv", inputs=("x", "w"), outputs=("y",))
    wide = run_node(conv, {"x": np.pad(x, ((0, 0), (0, 0), (0, 0), (0, 2))), "w": w}, {"": 21})["y"]
    # the result has rows of 5 elements, of which the first two rows hold the windows at 0 to 6 and 7 to 9
    np.testing.assert_allclose(wrong[:, :, 0], wide[:, :, 0, :5], atol=1e-5)
    np.testing.assert_allclose(wrong[:, :, 1], np.concatenate([wide[:, :, 0, 5:], wide[:, :, 1, :3]], -1), atol=1e-5)


def test_windows_that_begin_one_element_late():
    x, w = real(1, 2, 6, 8), real(3, 2, 1, 1)
    texts = results({"x": x, "w": w}, strides=(2, 2))
    expected = np.einsum("nchw,oc->nohw", x[:, :, 1::2, 1::2], w[:, :, 0, 0])
    wrong = texts["all windows are moved by (+1, +1) elements along the spatial axes"]
    np.testing.assert_allclose(wrong, expected, atol=1e-5)
