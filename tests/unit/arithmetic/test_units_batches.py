"""Samples of a node that are computed as one: only where that gives what each gives alone."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.arithmetic import units as module
from qdebug.arithmetic.search import search
from qdebug.arithmetic.units import Units
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.replay.evaluate import compute
from qdebug.replay.variant import Arithmetic, parse_variant

QUANT = QuantParams(dtype="int8", scale=np.float32(0.5), zero_point=3)
STEPS = 6


def source(node, shape, out, *, constants=None, inputs=("x",), shapes=None):
    """Return a unit of a node on random codes, recorded at several steps of one sample."""
    rng = np.random.default_rng(0)
    constants = constants or {}
    infos = [TensorInfo(name=name, quant=QUANT, dtype="int8") for name in (*inputs, "y")]
    infos += [TensorInfo(name=name, role=Role.CONSTANT, quant=QUANT, dtype="int8") for name in constants]
    graph = Graph([node], tensors=infos, inputs=inputs, outputs=["y"], opset={"": 17})
    arrays = {(name, 0, 0): array for name, array in constants.items()}
    for step in range(STEPS):
        given = shape if shapes is None else shapes[step]
        for name in inputs:
            arrays[name, 0, step] = rng.integers(-128, 128, given).astype(np.int8)
        arrays["y", 0, step] = np.zeros(given if shapes is not None else out, np.int8)
    recording = MemoryRecording(graph, arrays)
    return Units(recording).find(node, "y")


def sizes(found):
    return [len(batch) for batch in found.batches]


def node(op, *inputs, **attrs):
    return Node(name="n", op=op, inputs=inputs or ("x",), outputs=("y",), attrs=attrs)


WEIGHT = {"w": np.random.default_rng(1).integers(-9, 9, (4, 3, 1, 1)).astype(np.int8)}


@pytest.mark.parametrize(
    ("found", "joined"),
    [
        (source(node("Relu"), (1, 4), (1, 4)), True),
        (source(node("Relu"), (4,), (4,)), True),
        (source(node("Relu"), (), ()), False),  # there is no axis to join along
        (source(node("Add", "x", "z"), (1, 4), (1, 4), inputs=("x", "z")), True),
        (source(node("Conv", "x", "w"), (1, 3, 2, 2), (1, 4, 2, 2), constants=WEIGHT), True),
        (source(node("Softmax", axis=1), (2, 4), (2, 4)), True),
        (source(node("Softmax", axis=0), (2, 4), (2, 4)), False),
        (source(node("MatMul", "x", "z"), (3, 3), (3, 3), inputs=("x", "z")), False),
        (source(node("MatMul", "x", "z"), (2, 3, 3), (2, 3, 3), inputs=("x", "z")), True),
        (source(node("Concat", "x", "z", axis=0), (2, 4), (4, 4), inputs=("x", "z")), False),
        (source(node("Concat", "x", "z", axis=1), (2, 4), (2, 8), inputs=("x", "z")), True),
    ],
)
def test_samples_are_joined_where_they_do_not_mix(found, joined):
    assert sizes(found) == ([STEPS] if joined else [1] * STEPS)
    batch = found.batches[0]
    each = [compute(found.unit(place), _usual(found)) for place in batch]
    np.testing.assert_array_equal(
        compute(found.unit(*batch), _usual(found)), np.concatenate(each) if joined else each[0]
    )


def _usual(found):
    return Arithmetic().variant(found.unit(found.places[0]))


def test_two_samples_are_looked_at_one_by_one(monkeypatch):
    monkeypatch.setitem(globals(), "STEPS", 2)
    assert sizes(source(node("Relu"), (1, 4), (1, 4))) == [1, 1]


def test_samples_of_other_shapes_are_computed_apart():
    shapes = [(1, 4), (1, 4), (1, 5), (1, 4), (2, 4), (2, 4)]
    assert sizes(source(node("Relu"), None, None, shapes=shapes)) == [2, 1, 1, 2]


def test_a_batch_is_no_larger_than_its_room(monkeypatch):
    monkeypatch.setattr(module, "_BATCH_ELEMENTS", 16)
    assert sizes(source(node("Relu"), (1, 4), (1, 4))) == [2, 2, 2]


@pytest.mark.parametrize("wrong", [0, 2, 3])
def test_a_wrong_code_of_any_sample_is_found(quantized, wrong):
    def fault(sample, codes):
        codes.reshape(-1)[77] += 5 if sample == wrong else 0
        return codes

    recording = quantized.conv("m=q31 steps=mul,shr.up,zp,sat", samples=4, fault=fault, scales=quantized.generic)
    found = Units(recording).find(recording.graph.nodes[0], "y")
    assert sizes(found) == [4]
    result = search(found)
    assert result.matching == ()
    right = quantized.conv("m=q31 steps=mul,shr.up,zp,sat", samples=4, scales=quantized.generic)
    known = search(Units(right).find(right.graph.nodes[0], "y"))
    assert parse_variant("m=q31 steps=mul,shr.up,zp,sat") in known.matching
    assert known.elements == sum(right.load("y", sample).size for sample in range(4))
