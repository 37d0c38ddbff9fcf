"""Scatters of codes, as into a cache: updates that are not written, or written elsewhere, are named."""

from __future__ import annotations

import numpy as np
import pytest

import qdebug
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, RunInfo, TensorInfo

RNG = np.random.default_rng(5)
CACHE = RNG.integers(-128, 128, (2, 16, 12)).astype(np.int8)
NEW = RNG.integers(-128, 128, (2, 3, 12)).astype(np.int8)
ROWS = np.array([[5, 6, 7], [9, 10, 11]])
INDICES = {
    "ScatterND": np.stack([np.repeat([[0], [1]], 3, 1), ROWS], -1),
    "ScatterElements": np.repeat(ROWS[..., None], 12, -1),
}


def written(rows=ROWS, new=NEW):
    cache = CACHE.copy()
    for batch in range(2):
        cache[batch, rows[batch]] = new[batch]
    return cache


def recorded(op, result, *, quant=None):
    attrs = {"axis": 1} if op == "ScatterElements" else {}
    arrays = {"cache": CACHE, "at": INDICES[op], "new": NEW, "y": result}
    tensors = [
        TensorInfo(name=name, dtype=array.dtype.name, shape=array.shape, quant=None if name == "at" else quant)
        for name, array in arrays.items()
    ]
    graph = Graph(
        [Node(name="scatter", op=op, inputs=("cache", "at", "new"), outputs=("y",), attrs=attrs)],
        inputs=["cache", "at", "new"],
        outputs=["y"],
        tensors=tensors,
        opset={"": 21},
    )
    return MemoryRecording.single(graph, arrays, RunInfo(backend="chip"))


QUANT = QuantParams(dtype="int8", scale=np.asarray(0.02, np.float32), zero_point=3, qmin=-128, qmax=127)


@pytest.mark.parametrize("quant", [None, QUANT])
@pytest.mark.parametrize("op", INDICES)
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (written(ROWS + 1), "indices along axis 1 of 'cache' are one too large (reproduces every element)"),
        (np.where(np.arange(12) < 8, written(), CACHE), "'new' is written only before index 8 along axis 2"),
    ],
)
def test_updates_that_are_written_elsewhere_or_in_part(op, quant, wrong, text):
    result = qdebug.diff(recorded(op, written(), quant=quant), recorded(op, wrong, quant=quant))
    assert result.verdict.origin == "scatter"
    assert text in result.diagnosis[0].why


def test_right_updates_are_not_accused():
    assert qdebug.diff(*[recorded("ScatterND", written(), quant=QUANT)] * 2).verdict.status == "identical"


def test_the_cause_of_hidden_updates():
    scale, zero = np.asarray(0.02, np.float32), np.asarray(3, np.int8)
    reals = ((NEW.astype(np.float32) - 3) * np.float32(0.02)).astype(np.float32)
    nodes = [
        Node(name="quantize", op="QuantizeLinear", inputs=("x", "s", "z"), outputs=("new",)),
        Node(name="scatter", op="ScatterND", inputs=("cache", "at", "new"), outputs=("y",)),
    ]
    arrays = {"x": reals, "s": scale, "z": zero, "cache": CACHE, "at": INDICES["ScatterND"]}
    tensors = [
        TensorInfo(name=name, role=Role.CONSTANT if name in "sz" else Role.INPUT, dtype=array.dtype.name)
        for name, array in arrays.items()
    ]
    tensors = [each for each in tensors if each.name != "cache"]
    tensors += [TensorInfo(name=name, dtype="int8", quant=QUANT) for name in ("cache", "new", "y")]
    graph = Graph(nodes, inputs=["x", "cache", "at"], outputs=["y"], tensors=tensors, opset={"": 21})
    right = MemoryRecording.single(graph, {**arrays, "new": NEW, "y": written()}, RunInfo(backend="reference"))
    wrong = MemoryRecording.single(graph, {**arrays, "y": written(ROWS + 1)}, RunInfo(backend="chip"))
    why = qdebug.diff(right, wrong).diagnosis[0].why
    assert "indices along axis 1 of 'cache' are one too large in 'scatter' (ScatterND), inside the layer" in why
