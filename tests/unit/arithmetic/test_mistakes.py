"""Known mistakes on real numbers and whole sums: each is named where it was made, and nothing where several fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import qdebug
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.replay import run_node

RNG = np.random.default_rng(3)
OPSET = {"": 17}


def real(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def recorded(node, values, made):
    names = [name for name in values if not name.startswith("x")]
    tensors = [TensorInfo(name=name, role=Role.CONSTANT) for name in names]
    inputs = [name for name in values if name.startswith("x")]
    graph = Graph([node], tensors=tensors, inputs=inputs, outputs=("y",), opset=OPSET)
    return MemoryRecording.single(graph, {**values, "y": made})


def node(op, inputs, **attrs):
    return Node(name="n", op=op, inputs=tuple(inputs.split()), outputs=("y",), attrs=attrs)


CODES = {"x": RNG.integers(0, 256, (5, 32)).astype(np.uint8), "w": RNG.integers(0, 256, (32, 4)).astype(np.uint8)}
ZEROS = {"z": np.uint8(120), "v": np.uint8(131)}
INTEGERS = node("MatMulInteger", "x w z v")
GEMM = node("Gemm", "x w b", alpha=0.5, beta=2.0)
DENSE = {"x": real(6, 8), "w": real(8, 8), "b": real(8)}
CONV = node("Conv", "x w", pads=(1, 1, 0, 0), strides=(2, 2))
IMAGE = {"x": real(1, 3, 9, 9), "w": real(4, 3, 3, 3)}


@pytest.mark.parametrize(
    ("right", "values", "wrong", "said"),
    [
        (
            INTEGERS,
            CODES | ZEROS,
            replace(INTEGERS, inputs=("x", "w")),
            "zero points of both operands are not subtracted",
        ),
        (
            INTEGERS,
            CODES | ZEROS,
            replace(INTEGERS, inputs=("x", "w", "", "v")),
            "zero point of the first operand is not",
        ),
        (GEMM, DENSE, replace(GEMM, attrs={"beta": 2.0}), "alpha is ignored"),
        (GEMM, DENSE, replace(GEMM, inputs=("x", "w")), "the bias is dropped"),
        (node("Sub", "x x2"), {"x": real(4, 8), "x2": real(4, 8)}, node("Sub", "x2 x"), "its operands are swapped"),
        (node("Mul", "x s"), {"x": real(4, 8), "s": real(1)}, node("Identity", "x"), "the factor 's' is left out"),
        (node("Relu", "x"), {"x": real(4, 8)}, node("Identity", "x"), "the Relu is missing"),
        (node("Softmax", "x", axis=-1), {"x": real(4, 8)}, node("Softmax", "x", axis=0), "along axis 0, not -1"),
        (
            CONV,
            IMAGE,
            replace(CONV, attrs={**CONV.attrs, "pads": (0, 0, 1, 1)}),
            "padding is (0, 0, 1, 1), not (1, 1, 0, 0)",
        ),
    ],
)
def test_a_mistake_is_named_by_diff_and_by_explain(right, values, wrong, said):
    made = [run_node(each, values, OPSET)["y"] for each in (right, wrong)]
    result = qdebug.diff(*(recorded(right, values, each) for each in made))
    (cause,) = [found for found in result["n"].findings if found.role == "cause"]
    assert said in cause.sentence
    assert result["n"].status == "diverged"
    (told,) = qdebug.explain(recorded(right, values, made[1])).nodes
    assert told.status == "unexplained"
    assert said in told.reason


def test_what_is_right_or_unknown_has_no_mistake():
    values = DENSE
    made = run_node(GEMM, values, OPSET)["y"]
    assert qdebug.explain(recorded(GEMM, values, made)).nodes[0].status == "in_band"
    odd = recorded(GEMM, values, made * np.float32(1.37))
    assert "likely" not in qdebug.explain(odd).nodes[0].reason
