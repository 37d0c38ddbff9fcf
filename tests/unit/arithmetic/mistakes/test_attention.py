"""Attention that sees other keys than it should is named, by what it sees."""

import numpy as np
import pytest

from qdebug.compare.explaining.mistaken import mistake_of
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.replay.registry import run_node

LENGTH, WIDTH = 12, 32
HEADS = {"q_num_heads": 4, "kv_num_heads": 4}
AHEAD = np.arange(LENGTH) - np.arange(LENGTH)[:, None]
RNG = np.random.default_rng(0)
Q, K, V = (RNG.standard_normal((1, LENGTH, WIDTH)).astype(np.float32) for _ in range(3))


def attention(mask, keys=K, values=V):
    node = Node(name="a", op="Attention", inputs=("q", "k", "v", "m"), outputs=("y",), attrs=HEADS)
    return run_node(node, {"q": Q, "k": keys, "v": values, "m": mask}, {"": 23})["y"]


def named(y, *, mask=None, **attrs):
    inputs = ("q", "k", "v") if mask is None else ("q", "k", "v", "m")
    node = Node(name="attn", op="Attention", inputs=inputs, outputs=("y",), attrs=HEADS | attrs)
    tensors = [] if mask is None else [TensorInfo(name="m", role=Role.CONSTANT)]
    graph = Graph([node], tensors=tensors, inputs=("q", "k", "v"), outputs=("y",), opset={"": 23})
    values = {"q": Q, "k": K, "v": V, "y": y} | ({} if mask is None else {"m": mask})
    return mistake_of(MemoryRecording.single(graph, values), node, "y", [(0, 0)])


def window(back, forth=0):
    return (-back <= AHEAD) & (forth >= AHEAD)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (window(4), "1 more of the keys before"),
        (window(2), "1 fewer of the keys before"),
        (window(3, 1), "1 more of the keys after"),
    ],
)
@pytest.mark.parametrize("dtype", [bool, np.float32])
def test_another_window_is_named(seen, words, dtype):
    mask = window(3) if dtype is bool else np.where(window(3), 0, -np.inf).astype(np.float32)
    assert words in named(attention(seen), mask=mask)


def test_later_keys_that_causal_attention_sees_are_counted():
    assert "3 more of the keys after" in named(attention(AHEAD <= 3), is_causal=1)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_empty_keys_are_counted(count):
    padding = np.zeros((1, count, WIDTH), np.float32)
    keys, values = (np.concatenate([array, padding], 1) for array in (K, V))
    y = attention(np.ones((LENGTH, LENGTH + count), bool), keys, values)
    assert f"{count} empty keys" in named(y)
