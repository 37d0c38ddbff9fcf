"""Kernels whose vector part and rest round differently, and tables of their own: said, and never called explained."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.arithmetic.candidates import candidates
from qdebug.arithmetic.presets import is_known
from qdebug.arithmetic.units import Units
from qdebug.arithmetic.vector_tail import vector_tail
from qdebug.compare.explaining.explain import explain_recording
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, TensorInfo
from qdebug.replay.variant import parse_variant

UP, FLOAT = "m=q31:d:xw/y steps=mul,shr.up,zp,sat", "steps=mul,even,zp,sat"
PARTS = {"filters": 18, "size": 36, "scales": (2.0**-4, 2.0**-6, 2.0**-3)}
"""Scales by which many sums are ties: the two arithmetics part there."""


def two_ways(quantized, where, samples=3):
    """Record a convolution by one arithmetic, and some of its elements by another."""
    other = quantized.conv(FLOAT, samples=samples, **PARTS)

    def fault(sample, codes):
        codes[where] = other.load("y", sample)[where]
        return codes

    return quantized.conv(UP, samples=samples, fault=fault, **PARTS)


def found_in(recording):
    source = Units(recording).find(recording.graph.nodes[0], "y")
    unit = source.unit(source.places[0])
    return vector_tail(source, source.places, [each for each in candidates(unit) if is_known(each)])


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (np.s_[:, 16:], "the last 2 channels"),
        (np.s_[..., 32:], "the last 4 elements of each row"),
    ],
)
def test_what_vectors_leave_over_is_told(quantized, where, said):
    recording = two_ways(quantized, where)
    found = found_in(recording)
    assert (found.body, found.tail, found.place_text) == (parse_variant(UP), parse_variant(FLOAT), said)


def test_explain_names_both_and_leaves_the_node_unexplained(quantized):
    node = explain_recording(two_ways(quantized, np.s_[:, 16:])).nodes[0]
    assert node.status == "unexplained"
    assert node.residual.likely.startswith(
        "the last 2 channels use a different arithmetic (float32 multiplier, ties to even"
    )
    assert node.residual.likely.endswith("reproduces every element)")


@pytest.mark.parametrize(
    "where", [np.s_[:, 3:5], np.s_[:, :, 2:4], np.s_[:, 16:, :1, :2]], ids=["middle channels", "middle rows", "too few"]
)
def test_other_places_and_few_elements_are_no_tail(quantized, where):
    assert found_in(two_ways(quantized, where)) is None


def lookup(table, samples=3, noise=0):
    """Record a Sigmoid that looks codes up in a table."""
    given = QuantParams(dtype="int8", scale=np.float32(0.05), zero_point=0)
    out = QuantParams(dtype="int8", scale=np.float32(1 / 256), zero_point=-128)
    infos = [TensorInfo(name="x", dtype="int8", quant=given), TensorInfo(name="y", dtype="int8", quant=out)]
    node = Node(name="n", op="Sigmoid", inputs=("x",), outputs=("y",))
    graph = Graph([node], tensors=infos, inputs=["x"], outputs=["y"], opset={"": 13})
    rng = np.random.default_rng(0)
    arrays = {}
    for sample in range(samples):
        codes = rng.integers(-128, 128, (2, 500)).astype(np.int8)
        made = table[codes.astype(int) + 128].copy()
        made[0, :noise] ^= 1
        arrays |= {("x", sample, 0): codes, ("y", sample, 0): made}
    return MemoryRecording(graph, arrays)


def test_a_table_of_its_own_is_told_and_not_explained():
    right = 1 / (1 + np.exp(-np.arange(-128, 128) * np.float32(0.05)))
    codes = np.clip(np.rint(right * 256) - 128, -128, 127)
    table = (codes + np.random.default_rng(1).integers(-1, 2, 256)).clip(-128, 127).astype(np.int8)
    node = explain_recording(lookup(table)).nodes[0]
    assert node.status == "unexplained"
    assert "an inexact table of Sigmoid" in node.residual.likely
    noisy = explain_recording(lookup(table, noise=40)).nodes[0]
    assert "of 256 input codes map to different output codes, so it is not a table" in noisy.residual.detail
    assert "table" not in noisy.residual.likely
