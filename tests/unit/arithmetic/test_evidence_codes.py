"""Nodes that make codes of the right sums by a table of their own, and nodes whose sums are wrong."""

import numpy as np
import pytest

from qdebug.compare.explaining.explain import explain_recording
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo

RNG = np.random.default_rng(8)
X = RNG.integers(-4, 5, (300, 6)).astype(np.int8)
W = RNG.integers(-1, 2, (6, 8)).astype(np.int8)
PLANES = RNG.integers(-128, 128, (2, 4, 12, 12)).astype(np.int8)
TABLE = RNG.integers(-1, 2, 512)
"""What is added to the right code of each sum."""


def quant(scale, zero=3):
    return QuantParams(dtype="int8", scale=np.float32(scale), zero_point=zero)


def product(wrong):
    """Record a product of codes, with other codes of some sums."""
    sums = X.astype(int) @ W
    y = np.clip(np.rint(sums * np.float32(0.7)) + 3 + wrong(sums), -128, 127).astype(np.int8)
    infos = [TensorInfo(name="x", quant=quant(0.5, 0)), TensorInfo(name="y", quant=quant(1 / 2.8))]
    infos.append(TensorInfo(name="w", role=Role.CONSTANT, quant=quant(0.5, 0)))
    node = Node(name="n", op="MatMul", inputs=("x", "w"), outputs=("y",))
    graph = Graph([node], tensors=infos, inputs=["x"], outputs=["y"])
    return MemoryRecording.single(graph, {"x": X, "w": W, "y": y})


def pool(wrong):
    """Record the largest codes of windows in another scale, with other codes of some."""
    largest = np.lib.stride_tricks.sliding_window_view(PLANES, (2, 2), (2, 3)).max((-2, -1)).astype(int)
    y = np.clip(np.rint(largest * np.float32(0.8)) + 3 + wrong(largest), -128, 127).astype(np.int8)
    infos = [TensorInfo(name="x", quant=quant(0.04, 0)), TensorInfo(name="y", quant=quant(0.05))]
    node = Node(name="n", op="MaxPool", inputs=("x",), outputs=("y",), attrs={"kernel_shape": (2, 2)})
    graph = Graph([node], tensors=infos, inputs=["x"], outputs=["y"])
    return MemoryRecording.single(graph, {"x": PLANES, "y": y})


def anywhere(values):
    return np.random.default_rng(9).integers(-1, 2, values.shape)


@pytest.mark.parametrize(
    ("made", "of_a_table", "of_none"),
    [
        (
            product,
            "the sums are right, but their conversion to codes is wrong; each of ",
            " sums map to more than one code",
        ),
        (
            pool,
            "a different function of the code, such as a different table; each of ",
            " input codes map to more than one code",
        ),
    ],
)
def test_a_table_of_its_own_is_told_from_wrong_sums_and_never_explained(made, of_a_table, of_none):
    own = explain_recording(made(lambda values: TABLE[values + 200])).nodes[0]
    assert own.status == "unexplained"
    assert own.residual.likely.startswith(of_a_table)
    assert of_none not in own.residual.detail
    none = explain_recording(made(anywhere)).nodes[0]
    assert none.status == "unexplained"
    assert of_none in none.residual.detail
    assert of_a_table not in none.residual.likely
