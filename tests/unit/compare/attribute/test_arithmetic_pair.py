"""A quantized node is held against the arithmetic of the reference's node, where both are in the same codes."""

from dataclasses import replace

import numpy as np
import pytest

from qdebug.compare.align.align import align
from qdebug.compare.align.pairs import Transform
from qdebug.compare.attribute.arithmetic_pair import compare_with_reference_arithmetic
from qdebug.compare.attribute.plan import plan
from qdebug.errors import KernelError
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, TensorInfo
from qdebug.replay.variant import Variant, describe

QUANT = QuantParams(dtype="int8", scale=0.5, zero_point=0)
THEIRS, OURS = Variant(), Variant(accumulate="exact")
CODES = np.array([[1, 2, 3, 4]], np.int8)


def run(codes=CODES, *, quant=QUANT, op="Relu", attrs=None):
    node = Node(name="n", op=op, inputs=("x",), outputs=("y",), attrs=attrs or {})
    tensors = [TensorInfo(name="x", quant=QUANT), TensorInfo(name="y", quant=quant)]
    graph = Graph([node], tensors=tensors, inputs=("x",), outputs=("y",))
    return MemoryRecording.single(graph, {"x": CODES, "y": codes})


class Check:
    """Knows the arithmetic of one run, and what any other makes of it."""

    def __init__(self, found=THEIRS, made=CODES):
        self.found, self.made = found, made

    def variant(self, node, tensor, first):
        return self.found

    def compute_each(self, node, tensor, places, variant):
        if self.made is None:
            raise KernelError("it cannot be computed")
        return [(place, self.made.reshape(-1)) for place in places]


def held(ref, be, *, own=OURS, checks=None, change=None):
    entry = next(each for each in plan(ref, be, align(ref, be)) if each.tensor == "y")
    entry = entry if change is None else replace(entry, pair=replace(entry.pair, **change))
    return compare_with_reference_arithmetic((ref, be), entry, checks or (Check(), Check()), own)


def test_what_the_backend_adds_to_the_reference_s_arithmetic_is_introduced_and_the_rest_propagated():
    made = CODES + np.int8([[0, 2, 0, 0]])
    pair = held(run(), run(made + np.int8([[0, 0, 0, 3]])), checks=(Check(), Check(made=made)))
    assert (pair.introduced.max_lsb, pair.introduced.worst_index) == (3, (0, 3))
    assert (pair.propagated.max_abs, pair.propagated.worst_index) == (1.0, (0, 1))
    assert (pair.same, pair.reference, pair.backend) == (False, describe(THEIRS), describe(OURS))


def test_of_the_same_arithmetic_nothing_is_computed_and_nothing_introduced():
    pair = held(run(), run(CODES + np.int8(1)), own=THEIRS, checks=(Check(), Check(made=None)))
    assert (pair.same, pair.propagated.max_abs, pair.propagated.mismatches) == (True, 0.5, 4)
    assert held(run(), run(), own=None).backend is None
    assert held(run(), run(attrs={"axis": 1})) is not None, (
        "a default may be stated, and differences are another finding"
    )


@pytest.mark.parametrize(
    ("ref", "be", "rest"),
    [
        (run(CODES.astype(np.float32), quant=None), run(CODES.astype(np.float32), quant=None), {}),
        (run(), run(quant=QuantParams(dtype="int8", scale=0.25, zero_point=0)), {}),
        (run(), run(op="Neg"), {}),
        (run(), run(), {"change": {"reference_view": Transform(transpose=(1, 0))}}),
        (run(), run(), {"change": {"backend_view": Transform(transpose=(1, 0))}}),
        (run(), run(), {"change": {"reference": "x"}}),
        (run(), run(), {"change": {"backend": "x"}}),
        (run(), run(), {"checks": (Check(found=None), Check())}),
        (run(), run(), {"checks": (Check(), Check(made=None))}),
    ],
    ids=["no codes", "other codes", "operator", "turned", "backend turned", "no reference node", "no node",
         "unknown", "not computed"],
)  # fmt: skip
def test_nothing_is_said_where_the_two_cannot_be_held_against_each_other(ref, be, rest):
    assert held(ref, be, **rest) is None
