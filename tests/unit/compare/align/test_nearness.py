"""How near two tensors are, in whatever order of dimensions each is kept."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest

from qdebug.compare.align.context import Context
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.nearness import distance, find_matching_stage, tensors_after_folded_nodes
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.model.thresholds.alignment import FUSED_AFTER_PRODUCT_MAX_NODES

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5), (2, 3, 5, 4), (1, 3, 1, 5), (1, 3, 5, 2, 4)])
def test_the_distance_is_that_in_the_nearest_order(shape):
    values = RNG.normal(size=shape)
    off = values * 1.125
    for order in permutations(range(len(shape))):
        assert distance(values, off.transpose(order)) == pytest.approx(0.125)
    assert distance(values, -values) == pytest.approx(2)
    assert distance(values, off.reshape(*shape, 1)) == pytest.approx(0.125)
    assert distance(values.reshape(1, *shape), off) == pytest.approx(0.125)


@pytest.mark.parametrize(
    ("one", "other"),
    [((4, 6), (3, 8)), ((4, 6), (24,)), ((2, 3, 2, 2, 2), (2, 3, 2, 2, 2)), ((4, 6), (4, 6, 2))],
)
def test_tensors_of_other_extents_or_of_many_dimensions_are_apart(one, other):
    assert distance(np.ones(one), np.ones(other)) == math.inf


def test_nothing_is_near_to_zeros():
    assert distance(np.zeros((2, 3)), np.ones((2, 3))) == math.inf
    assert distance(np.zeros((2, 3)), np.zeros((2, 3))) == math.inf


def chain(*ops, prefix="t", values=None, skip=(), readers=()):
    """Index a run of nodes that follow one another, each with a constant; some tensors have other readers as well."""
    nodes, held = [], {}
    for at, op in enumerate(ops):
        read = (f"{prefix}{at}", "k") if op in ("Add", "Mul", "Conv") else (f"{prefix}{at}",)
        nodes.append(Node(name=f"n{at}", op=op, inputs=read, outputs=(f"{prefix}{at + 1}",)))
    nodes += [Node(name=f"r{at}", op="Sigmoid", inputs=(f"{prefix}{at}",), outputs=(f"s{at}",)) for at in readers]
    names = dict.fromkeys(name for node in nodes for name in (*node.inputs, *node.outputs))
    infos = [TensorInfo(name=name, role=Role.CONSTANT if name == "k" else Role.ACTIVATION) for name in names]
    for at, name in enumerate(name for name in names if name != "k"):
        if name not in skip:
            held[name] = (values or {}).get(name, RNG.normal(size=(2, 3)) + at)
    graph = Graph(nodes, tensors=infos, inputs=(f"{prefix}0",), outputs=(f"{prefix}{len(ops)}",))
    return IndexedRecording.of(MemoryRecording.single(graph, held | {"k": np.ones(3)}))


def test_what_is_made_in_turn_ends_at_a_second_reader_a_product_or_after_a_few_nodes():
    assert list(tensors_after_folded_nodes(chain("Add", "Relu"), "t0")) == ["t1", "t2"]
    assert list(tensors_after_folded_nodes(chain("Add", "Relu", readers=(1,)), "t0")) == ["t1"]
    assert list(tensors_after_folded_nodes(chain("Add", "Conv", "Relu"), "t0")) == ["t1"]
    assert list(tensors_after_folded_nodes(chain("Conv"), "t0")) == []
    assert list(tensors_after_folded_nodes(chain("Add", "Relu", skip=("t1",)), "t0")) == ["t2"]
    assert list(tensors_after_folded_nodes(chain("Add", "Relu", values={"t1": np.ones(5)}), "t0")) == ["t2"]
    many = ["Add"] * (FUSED_AFTER_PRODUCT_MAX_NODES + 2)
    assert list(tensors_after_folded_nodes(chain(*many), "t0")) == [
        f"t{at + 1}" for at in range(FUSED_AFTER_PRODUCT_MAX_NODES)
    ]


def staged(theirs, ours, **facts):
    """Return the stage of a reference's sum and Relu that a backend tensor is at, by the values of each."""
    ref = chain("Add", "Relu", values=theirs, **facts)
    be = chain("Add", "Relu", prefix="b", values=ours)
    return find_matching_stage(Context(ref=ref, be=be), "b0", "t0")


def test_values_tell_the_stage_that_a_tensor_is_at():
    first, second, third = (RNG.normal(size=(2, 3)) + 9 * at for at in (1, 2, 3))
    theirs = {"t0": first, "t1": second, "t2": third}
    other = {"b1": second, "b2": third}
    assert staged(theirs, {"b0": first, **other}) == "t0"
    assert staged(theirs, {"b0": second * 1.0001, "b1": third, "b2": third + 9}) == "t1"
    assert staged(theirs, {"b0": third, "b1": third + 9, "b2": third + 18}) == "t2"
    assert staged(theirs, {"b0": first - 50, "b1": first, "b2": second}) is None  # a later one is at it
    assert staged(theirs, {"b0": first - 50, "b1": first - 60, "b2": first - 70}) == "t0"
    assert staged(theirs, {"b0": second, **other}, skip=("t0",)) == "t0"
    assert staged(theirs, {"b0": np.ones(7), **other}) == "t0"
