"""Attention over many positions is computed in blocks of rows: its scores are never all in memory."""

import tracemalloc

import numpy as np
import pytest

from qdebug.model import Node
from qdebug.replay.kernels import attention
from qdebug.replay.registry import run_node

HEADS, POSITIONS, EXTENT = 4, 1500, 8
SCORES = HEADS * POSITIONS**2 * 4  # bytes


def softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def expected(q, k, v, *, causal, row):
    """Return one row of each head, computed by itself in float64."""
    scores = np.einsum("nh,nth->nt", q[0, :, row].astype(np.float64), k[0].astype(np.float64)) / np.sqrt(EXTENT)
    if causal:
        scores[:, row + 1 :] = -np.inf
    return np.einsum("nt,nth->nh", softmax(scores), v[0])


def merged(x):
    return x.transpose(0, 2, 1, 3).reshape(1, POSITIONS, -1)


def node(op, domain, count, **attrs):
    names = tuple(f"x{at}" for at in range(count))
    return Node(name="n", op=op, domain=domain, inputs=names, outputs=("y",), attrs=attrs)


def call(op, q, k, v, *, causal):
    flat = [merged(part) for part in (q, k, v)]
    if op == "ONNX":
        return node("Attention", "", 3, is_causal=int(causal)), [q, k, v]
    if op == "MultiHeadAttention":
        return node(op, "com.microsoft", 3, num_heads=HEADS, unidirectional=int(causal)), flat
    if op == "Attention":
        weight = np.eye(3 * HEADS * EXTENT, dtype=np.float32)
        joined = np.concatenate(flat, axis=2)
        return node(op, "com.microsoft", 2, num_heads=HEADS, unidirectional=int(causal)), [joined, weight]
    lengths = [np.int32([POSITIONS - 1]), np.int32([POSITIONS])]
    grouped = Node(
        name="n",
        op=op,
        domain="com.microsoft",
        inputs=("x0", "x1", "x2", "", "", "x3", "x4"),
        outputs=("y",),
        attrs={"num_heads": HEADS, "kv_num_heads": HEADS},
    )
    return grouped, [*flat, *lengths]


@pytest.mark.parametrize(
    ("op", "causal"),
    [
        ("ONNX", False),
        ("ONNX", True),
        ("MultiHeadAttention", True),
        ("Attention", True),
        ("GroupQueryAttention", True),
    ],
)
def test_attention_over_many_positions_needs_little_memory(op, causal, monkeypatch):
    monkeypatch.setattr(attention, "_SCORES_AT_ONCE", attention._SCORES_AT_ONCE >> 2)
    rng = np.random.default_rng(5)
    q, k, v = (rng.normal(size=(1, HEADS, POSITIONS, EXTENT)).astype(np.float32) for _ in range(3))
    asked, inputs = call(op, q, k, v, causal=causal)
    values = dict(zip([name for name in asked.inputs if name], inputs, strict=True))
    tracemalloc.start()
    try:
        made = run_node(asked, values, {"": 23})["y"]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < SCORES
    rows = made if made.ndim == 4 else made.reshape(1, POSITIONS, HEADS, EXTENT).transpose(0, 2, 1, 3)
    for row in (0, 1, POSITIONS // 2, POSITIONS - 1):
        np.testing.assert_allclose(rows[0, :, row], expected(q, k, v, causal=causal, row=row), rtol=1e-4, atol=1e-5)
