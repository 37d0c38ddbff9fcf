"""Forms of operators from older operator sets: attributes where newer sets have inputs, and other defaults."""

import numpy as np
import pytest

from qdebug.errors import KernelError
from qdebug.model import Node
from qdebug.replay import run_node

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def run(op, *inputs, opset, outputs=1, **attrs):
    names = tuple(f"i{k}" for k in range(len(inputs)))
    outs = tuple(f"o{k}" for k in range(outputs))
    node = Node(name="n", op=op, inputs=names, outputs=outs, attrs=attrs)
    found = run_node(node, dict(zip(names, inputs, strict=True)), {"": opset})
    return found["o0"] if outputs == 1 else [found[name] for name in outs]


def integers(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("op", "old", "new"),
    [
        ("Slice", (9, (), {"starts": (0, 1), "ends": (2, 99), "axes": (0, 1)}),
         (13, (integers(0, 1), integers(2, 99), integers(0, 1)), {})),
        ("Squeeze", (11, (), {"axes": (0,)}), (13, (integers(0),), {})),
        ("Unsqueeze", (11, (), {"axes": (0, 3)}), (13, (integers(0, 3),), {})),
        ("Reshape", (1, (), {"shape": (4, -1)}), (13, (integers(4, -1),), {})),
        ("ReduceSum", (11, (), {"axes": (1,)}), (13, (integers(1),), {})),
        ("ReduceMean", (11, (), {"axes": (0,), "keepdims": 0}), (18, (integers(0),), {"keepdims": 0})),
        ("Clip", (6, (), {"min": 2.0, "max": 7.0}), (13, (np.float32(2), np.float32(7)), {})),
        ("Pad", (2, (), {"pads": (1, 0, 0, 2), "value": 5.0}), (13, (integers(1, 0, 0, 2), np.float32(5)), {})),
    ],
)  # fmt: skip
def test_attributes_became_inputs(op, old, new):
    x = X[None, :, :1][:, :, :, None][:, :1] if op == "Squeeze" else X
    results = [run(op, x, *map(np.asarray, inputs), opset=opset, **attrs) for opset, inputs, attrs in (old, new)]
    np.testing.assert_array_equal(*results)
    assert results[0].dtype == np.float32


def test_split_sizes_became_an_input():
    old = run("Split", X, opset=11, outputs=2, axis=1, split=(1, 3))
    new = run("Split", X, integers(1, 3), opset=13, outputs=2, axis=1)
    for a, b in zip(old, new, strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(KernelError, match="do not make up axis 1 of size 4"):
        run("Split", X, integers(1, 2), opset=13, outputs=2, axis=1)


def test_top_k_count_became_an_input():
    old = run("TopK", X, opset=9, outputs=2, k=2)
    new = run("TopK", X, integers(2), opset=11, outputs=2)
    for a, b in zip(old, new, strict=True):
        np.testing.assert_array_equal(a, b)
    assert new[1].dtype == np.int64
    assert new[0][0].tolist() == [3, 2]


def test_equal_elements_keep_their_order():
    values, places = run("TopK", np.array([1, 5, 5, 2, 5], np.float32), integers(3), opset=11, outputs=2)
    assert (values.tolist(), places.tolist()) == ([5, 5, 5], [1, 2, 4])


def test_broadcast_along_an_axis():
    row = np.arange(3, dtype=np.float32)
    out = run("Add", X, row, opset=6, axis=0, broadcast=1)
    np.testing.assert_array_equal(out, X + row[:, None])


def test_upsample_by_attribute_and_input():
    image = X.reshape(1, 1, 3, 4)
    scales = np.array([1, 1, 2, 2], np.float32)
    expected = image.repeat(2, axis=2).repeat(2, axis=3)
    np.testing.assert_array_equal(run("Upsample", image, opset=7, scales=(1.0, 1.0, 2.0, 2.0)), expected)
    np.testing.assert_array_equal(run("Upsample", image, scales, opset=9), expected)
    np.testing.assert_array_equal(run("Resize", image, scales, opset=10), expected)


def test_softmax_default_axis_changed():
    x = X.reshape(1, 3, 4)
    assert run("LogSoftmax", x, opset=11).shape == x.shape
    np.testing.assert_allclose(np.exp(run("LogSoftmax", x, opset=11)).sum(), 1, rtol=1e-5)
    np.testing.assert_allclose(np.exp(run("LogSoftmax", x, opset=13)).sum(axis=-1), 1, rtol=1e-5)


def test_zero_in_a_shape():
    np.testing.assert_array_equal(run("Reshape", X, integers(0, 2, 2), opset=13), X.reshape(3, 2, 2))
    empty = np.zeros((0, 4), np.float32)
    assert run("Reshape", empty, integers(4, 0), opset=14, allowzero=1).shape == (4, 0)


def test_negative_pads_cut():
    out = run("Pad", X, integers(-1, 0, 1, -1), opset=13)
    np.testing.assert_array_equal(out, np.pad(X[1:, :-1], ((0, 1), (0, 0))))
    reflected = run("Pad", X, integers(0, 2, 0, 1), opset=13, mode="reflect")
    np.testing.assert_array_equal(reflected, np.pad(X, ((0, 0), (2, 1)), mode="reflect"))
    with pytest.raises(KernelError, match="'mirror'"):
        run("Pad", X, integers(0, 0, 0, 0), opset=13, mode="mirror")
