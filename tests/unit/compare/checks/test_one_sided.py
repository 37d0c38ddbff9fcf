"""A node that truncates is found however small its error is, and one that rounds as the reference does is not."""

import ml_dtypes
import numpy as np
import pytest

from qdebug.api import diff
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.numerics.float_rounding import round_float
from qdebug.numerics.short_formats import SHORT_FORMATS

RNG = np.random.default_rng(3)
SHORT = next(short for short in SHORT_FORMATS if short.name == "bfloat16")
SCALE = RNG.standard_normal(256)


def rounded(values, word="even"):
    return round_float(np.asarray(values, np.float64), SHORT, word).astype(np.float32)


A, B = rounded(RNG.standard_normal((64, 256))), rounded(RNG.standard_normal((64, 256)))
GRAPH = Graph(
    (
        Node(name="add", op="Add", inputs=("a", "b"), outputs=("h",)),
        Node(name="norm", op="RMSNormalization", inputs=("h", "s"), outputs=("y",), attrs={"epsilon": 1e-5}),
    ),
    tensors=[TensorInfo(name="s", role=Role.CONSTANT)],
    inputs=["a", "b"],
    outputs=["y"],
)


def run(add="even", inverse=None, *, dtype=ml_dtypes.bfloat16, unrounded=False):
    scale, total = rounded(SCALE), A.astype(np.float64) + B
    h = rounded(total, add) if dtype is not np.float32 else total.astype(np.float32)
    x = total.astype(np.float32) if unrounded else h
    factor = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-5))
    y = x * (factor if inverse is None else rounded(factor, inverse)) * scale
    y = y if dtype is np.float32 else rounded(y)
    values = {"a": A, "b": B, "s": scale, "h": h, "y": y}
    return MemoryRecording.single(GRAPH, {name: array.astype(dtype) for name, array in values.items()})


@pytest.mark.parametrize("reference", [{}, {"dtype": np.float32}], ids=["bfloat16", "float32"])
@pytest.mark.parametrize("word", ["zero", "out", "up", "down"])
def test_a_one_sided_rounding_fails(word, reference):
    result = diff(run(**reference), run(word))
    assert result["add"].status == "diverged"
    (finding,) = [each for each in result["add"].findings if each.kind == "one_sided"]
    assert finding.amount > 0.25
    assert "16,384 of 16,384 elements" in finding.sentence
    assert result["norm"].status == "within"
    assert result.diagnosis[0].fault == "kernel"


@pytest.mark.parametrize("word", ["even", "away"])
def test_rounding_to_nearest_passes(word):
    result = diff(run(dtype=np.float32), run(word))
    assert result["add"].status == "within"
    assert not [each for each in result["add"].findings if each.kind == "one_sided"]


def test_a_reference_that_truncates_too_passes():
    result = diff(run("zero"), run("zero", inverse="even"))
    assert not [each for node in result.nodes for each in node.findings if each.kind == "one_sided"]


def test_a_rounding_in_another_place_is_named_beside_the_reference():
    result = diff(run(), run(inverse="even"))
    (finding,) = [each for each in result["norm"].findings if each.kind == "rounding"]
    assert "the inverse root rounded to nearest as well" in finding.sentence
    assert finding.role == "note"
    assert result["norm"].status == "within"


def test_an_input_that_is_read_before_its_rounding_is_named():
    result = diff(run(), run(unrounded=True))
    (finding,) = [each for each in result["norm"].findings if each.kind == "rounding"]
    assert finding.sentence == "its input 'h' read before its rounding, unlike in the reference"
