"""Own kernels of operators over which the reference implementation of ONNX loops, held against that one."""

import numpy as np
import pytest

from qdebug.backends.onnx.reference import kernel_of
from qdebug.model import Node
from qdebug.replay.registry import Call, run_node


def both(op, inputs, *, opset=22, **attrs):
    """Compute a node by the kernel here and by the reference implementation."""
    names = tuple("" if array is None else f"x{at}" for at, array in enumerate(inputs))
    node = Node(name="n", op=op, inputs=names, outputs=("y",), attrs=attrs)
    values = {name: array for name, array in zip(names, inputs, strict=True) if name}
    own = run_node(node, values, {"": opset})["y"]
    borrowed = kernel_of(op, "")(Call(inputs=tuple(inputs), attrs=attrs, opset=opset, op=op, node="n"))
    return own, borrowed[0]


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("extents", [(5, 4), (3, 4, 2)])
def test_grid_sample(extents, mode, padding, aligned):
    rng = np.random.default_rng(7)
    x = rng.normal(size=(2, 3, *extents)).astype(np.float32)
    grid = rng.uniform(-2.6, 2.6, (2, *(4, 5, 3)[: len(extents)], len(extents))).astype(np.float32)
    grid.reshape(-1)[:4] = 1, -1, 0, 1
    own, borrowed = both("GridSample", [x, grid], mode=mode, padding_mode=padding, align_corners=aligned)
    assert (own.shape, own.dtype) == (borrowed.shape, borrowed.dtype)
    np.testing.assert_allclose(own, borrowed, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize("most", [0, 3, 50])
@pytest.mark.parametrize("least", [None, 0.3])
def test_non_max_suppression(centred, most, least):
    rng = np.random.default_rng(9)
    boxes, scores = rng.uniform(0, 1, (2, 40, 4)), rng.uniform(0, 1, (2, 3, 40)).round(1)
    boxes[0, 3], boxes[1, 5, 2:] = boxes[0, 4], 0
    settings = [np.int64([most]), np.float32([0.4]), None if least is None else np.float32([least])]
    inputs = [boxes.astype(np.float32), scores.astype(np.float32), *settings]
    own, borrowed = both("NonMaxSuppression", inputs, center_point_box=centred)
    assert own.dtype == np.int64
    np.testing.assert_array_equal(own, borrowed.reshape(-1, 3))


@pytest.mark.parametrize(
    ("group", "moved", "masked"),
    [
        (1, 1, True),
        (2, 4, False),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [(1, 1, False), (2, 1, False), (2, 1, True), (1, 2, False), (1, 2, True), (2, 4, True)]
        ),
    ],
)
def test_deform_conv(group, moved, masked):
    rng = np.random.default_rng(2)
    x, weight = rng.normal(size=(2, 4, 7, 6)), rng.normal(size=(6, 4 // group, 3, 2))
    offset, mask = rng.normal(size=(2, moved * 12, 4, 3)) * 2, rng.uniform(size=(2, moved * 6, 4, 3))
    inputs = [each.astype(np.float32) for each in (x, weight, offset, rng.normal(size=6), mask)]
    attrs = {"strides": (2, 2), "pads": (1, 0, 2, 1), "dilations": (1, 2), "group": group, "offset_group": moved}
    own, borrowed = both("DeformConv", inputs[: 5 if masked else 4], **attrs)
    np.testing.assert_allclose(own, borrowed, rtol=1e-4, atol=1e-4)
