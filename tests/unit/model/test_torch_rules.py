"""Nodes in PyTorch's own words, as torch.export names them, compute what PyTorch defines, or are left as they are."""

from math import erf, sqrt

import numpy as np
import pytest

from qdebug.model import Graph, Node, Role, TensorInfo
from qdebug.model.operators.dialects import translate_to_onnx
from qdebug.replay.registry import run_node

RNG = np.random.default_rng(5)
X = RNG.normal(size=(2, 3, 4)).astype(np.float32)
W, B = RNG.normal(size=(5, 4)).astype(np.float32), RNG.normal(size=5).astype(np.float32)
SCALE, SHIFT = RNG.normal(size=(2, 4)).astype(np.float32)
TABLE = RNG.normal(size=(7, 4)).astype(np.float32)
MASK = RNG.normal(size=(2, 3, 4)) > 0
HEADS = RNG.normal(size=(3, 1, 2, 5, 4)).astype(np.float32)
IMAGE = RNG.normal(size=(1, 2, 4, 6)).astype(np.float32)


def computed(op, attrs, values, right):
    """Return what a translated node computes; None if it is not translated."""
    names = tuple(f"c{at}" for at in range(len(values)))
    node = Node(name="n", op=op, inputs=names, outputs=tuple(f"y{at}" for at in range(len(right))), attrs=attrs)
    infos = [
        TensorInfo(name=name, role=Role.CONSTANT if at else Role.INPUT, shape=array.shape, dtype=array.dtype.name)
        for at, (name, array) in enumerate(zip(names, values, strict=True))
    ]
    infos += [
        TensorInfo(name=name, shape=array.shape, dtype=array.dtype.name)
        for name, array in zip(node.outputs, right, strict=True)
    ]
    kept = dict(zip(names, values, strict=True))
    found = translate_to_onnx(node, Graph([node], tensors=infos, inputs=names[:1], outputs=node.outputs), kept.get)
    return None if found is None else list(run_node(found.node, kept | found.constants).values())


def normalized(x):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * SCALE + SHIFT


def attended(q, k, v, hidden):
    scores = q @ k.swapaxes(-1, -2) / sqrt(q.shape[-1])
    weights = np.exp(np.where(hidden, -np.inf, scores))
    return weights / weights.sum(-1, keepdims=True) @ v


def gelu(x):
    return (x * (1 + np.vectorize(erf)(x / sqrt(2))) / 2).astype(np.float32)


CAUSAL = np.triu(np.ones((5, 5), bool), 1)
SEEN = RNG.normal(size=(1, 2, 5, 5)) > -1
CODES = RNG.integers(-128, 128, size=(3, 4)).astype(np.int8)
NUMBER = np.float32(2.5)


@pytest.mark.parametrize(
    ("op", "attrs", "values", "right"),
    [
        ("aten.linear.default", {}, [X, W, B], [X @ W.T + B]),
        ("aten.linear.default", {}, [X, W], [X @ W.T]),
        ("aten.addmm.default", {"alpha": 1, "beta": 1}, [B, X[0], W.T], [X[0] @ W.T + B]),
        ("aten.layer_norm.default", {"normalized_shape": (4,), "eps": 1e-5}, [X, SCALE, SHIFT], [normalized(X)]),
        ("aten.embedding.default", {"padding_idx": -1}, [TABLE, np.array([[1, 6]])], [TABLE[[[1, 6]]]]),
        ("aten.select.int", {"dim": 1}, [X, np.array(2)], [X[:, 2]]),
        ("aten.index_select.default", {"dim": 2}, [X, np.array([3, 0])], [X[..., [3, 0]]]),
        (
            "aten.gather.default",
            {"dim": 1},
            [X, np.array([[[0, 1, 2, 0]]] * 2)],
            [np.take_along_axis(X, np.array([[[0, 1, 2, 0]]] * 2), 1)],
        ),
        ("aten.slice.Tensor", {"dim": 1, "start": 1, "end": 2**63 - 1, "step": 1}, [X], [X[:, 1:]]),
        ("aten.slice.Tensor", {"dim": -1, "start": -3, "end": -1, "step": 1}, [X], [X[..., 1:3]]),
        ("aten.slice.Tensor", {"dim": 1, "start": 0, "end": 3, "step": 2}, [X], [X[:, ::2]]),
        ("aten.split.Tensor", {"split_size": 2, "dim": -1}, [X], [X[..., :2], X[..., 2:]]),
        ("aten.t.default", {}, [W], [W.T]),
        ("aten._int_mm.default", {}, [CODES, CODES.T], [CODES.astype(np.int32) @ CODES.T]),
        ("aten.unbind.int", {"dim": 1}, [X], [X[:, 0], X[:, 1], X[:, 2]]),
        ("aten.where.self", {}, [MASK, X, -X], [np.where(MASK, X, -X)]),
        ("aten.masked_fill.Scalar", {}, [X, MASK, NUMBER], [np.where(MASK, NUMBER, X)]),
        ("aten.gelu.default", {"approximate": "none"}, [X], [gelu(X)]),
        ("aten.silu.default", {}, [X], [X / (1 + np.exp(-X))]),
        ("aten.hardtanh.default", {"min_val": -0.5, "max_val": 0.25}, [X], [np.clip(X, -0.5, 0.25)]),
        ("aten.relu6.default", {}, [4 * X], [np.clip(4 * X, 0, 6)]),
        ("aten.clamp.default", {"min": 0.1}, [X], [np.maximum(X, np.float32(0.1))]),
        ("aten.pow.Tensor_Scalar", {}, [np.abs(X), NUMBER], [np.abs(X) ** NUMBER]),
        ("aten.to.dtype", {"dtype": "float16"}, [X], [X.astype(np.float16)]),
        ("aten.dropout.default", {"p": 0.5, "train": False}, [X], [X]),
        ("aten.flatten.using_ints", {"start_dim": 1, "end_dim": -1}, [X], [X.reshape(2, 12)]),
        ("aten.softmax.int", {"dim": 1}, [X], [np.exp(X) / np.exp(X).sum(1, keepdims=True)]),
        (
            "aten.adaptive_avg_pool2d.default",
            {"output_size": (2, 2)},
            [IMAGE],
            [IMAGE.reshape(1, 2, 2, 2, 2, 3).mean((3, 5))],
        ),
        ("aten.adaptive_avg_pool2d.default", {"output_size": (1, 1)}, [IMAGE], [IMAGE.mean((2, 3), keepdims=True)]),
        (
            "aten.scaled_dot_product_attention.default",
            {"is_causal": True, "dropout_p": 0.0},
            list(HEADS),
            [attended(*HEADS, CAUSAL)],
        ),
        ("aten.scaled_dot_product_attention.default", {}, [*HEADS, SEEN], [attended(*HEADS, ~SEEN)]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_operators_of_nets_and_transformers(op, attrs, values, right):
    found = computed(op, attrs, values, right)
    assert [part.shape for part in found[: len(right)]] == [part.shape for part in right]
    for part, expected in zip(found, right, strict=False):
        assert part == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(
    ("op", "attrs", "values", "right"),
    [
        ("aten.dropout.default", {"p": 0.5, "train": True}, [X], [X]),
        ("aten.batch_norm.default", {"training": True, "eps": 1e-5}, [X, B[:3], B[:3], B[:3], B[:3]], [X]),
        ("aten.softmax.int", {"dim": 1, "dtype": "float64"}, [X], [X.astype(np.float64)]),
        ("aten.avg_pool2d.default", {"kernel_size": (2, 2), "divisor_override": 3}, [IMAGE], [IMAGE[:, :, :2, :3]]),
        ("aten.adaptive_avg_pool2d.default", {"output_size": (3, 3)}, [IMAGE], [IMAGE[:, :, :3, :3]]),
        ("aten.scaled_dot_product_attention.default", {"dropout_p": 0.1}, list(HEADS), [HEADS[0]]),
        ("aten.clamp.Tensor", {}, [X, X, X], [X]),
        ("aten.layer_norm.default", {"normalized_shape": (4,)}, [X], [X]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_onnx_cannot_say_stays_as_it_is(op, attrs, values, right):
    assert computed(op, attrs, values, right) is None
