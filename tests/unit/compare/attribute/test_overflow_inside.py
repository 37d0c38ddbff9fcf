"""Overflows inside fused layers: the inner product or exponential that makes the layer's output NaN."""

import numpy as np
import pytest

from qdebug.compare.attribute.birth import BirthRule
from qdebug.compare.attribute.overflow_inside import find_overflow_inside
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.session import DiffSession

FACTOR = np.float16(0.125)
V = np.random.default_rng(3).normal(size=(9, 4)).astype(np.float16)


def attention(x, k, y, *, divided=False):
    """Return a recording of softmax(x * 0.125 @ k) @ v in which only x, the constants and y were recorded."""
    factor = np.float16(1 / FACTOR) if divided else FACTOR
    nodes = [
        Node(name="scale", op="Div" if divided else "Mul", inputs=("x", "factor"), outputs=("scaled",)),
        Node(name="turn", op="Transpose", inputs=("scaled",), outputs=("turned",), attrs={"perm": (0, 1)}),
        Node(name="scores", op="MatMul", inputs=("turned", "k"), outputs=("s",)),
        Node(name="softmax", op="Softmax", inputs=("s",), outputs=("p",), attrs={"axis": -1}),
        Node(name="values", op="MatMul", inputs=("p", "v"), outputs=("y",)),
    ]
    arrays = {"x": x, "factor": factor, "k": k, "v": V, "y": y}
    roles = {"x": Role.INPUT, "y": Role.ACTIVATION}
    tensors = [
        TensorInfo(name=name, role=roles.get(name, Role.CONSTANT), dtype="float16", shape=array.shape)
        for name, array in arrays.items()
    ]
    graph = Graph(nodes, tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 17})
    return MemoryRecording.single(graph, arrays)


def softmax(scores, *, shifted=True):
    powers = np.exp(scores - scores.max(-1, keepdims=True) * shifted).astype(np.float16).astype(np.float32)
    return (powers / powers.sum(-1, keepdims=True) @ V).astype(np.float16)


def operands(size):
    rng = np.random.default_rng(2)
    return (rng.normal(size=shape).astype(np.float16) * np.float16(size) for shape in ((40, 16), (16, 9)))


@pytest.mark.parametrize("divided", [False, True])
def test_a_product_that_overflows_before_it_is_scaled_is_named_with_its_factor(divided):
    x, k = operands(100)
    product = x.astype(np.float64) @ k.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        wrong = softmax(product.astype(np.float16).astype(np.float64) * FACTOR)
    assert 0 < np.isnan(wrong).any(-1).sum() < 40
    reference = attention(x, k, softmax(product * FACTOR), divided=divided)
    chip = attention(x, k, wrong, divided=divided)
    birth = next(node.born for node in DiffSession(reference, chip).result().nodes if node.tensor == "y")
    assert (birth.node, birth.rule, birth.format) == ("scores", BirthRule.UNSCALED_OVERFLOW, "float16")
    assert birth.exact == pytest.approx(product.max(), rel=1e-3)  # a negative infinity would do no harm
    assert "its result before scaling by 'factor'" in birth.sentence
    finite_row = int(np.isfinite(wrong).all(-1).argmax())
    wrong[finite_row] = np.nan  # nothing overflows there
    assert find_overflow_inside(attention(x, k, wrong), chip.graph.nodes, "y", (0, 0)) is None


def test_an_exponential_that_overflows_without_the_maximum_is_named():
    x, k = operands(3)
    scores = (x.astype(np.float64) @ k.astype(np.float64)) * FACTOR
    with np.errstate(over="ignore", invalid="ignore"):
        chip = attention(x, k, softmax(scores, shifted=False))
    birth = find_overflow_inside(chip, chip.graph.nodes, "y", (0, 0))
    assert (birth.node, birth.rule, birth.operands[0].tensor) == ("softmax", BirthRule.INSIDE_OVERFLOW, "s")
    assert birth.operands[0].value == pytest.approx(scores.max(), rel=1e-3)
    assert birth.elements == np.count_nonzero(scores > np.log(65504))
    assert find_overflow_inside(attention(x, k, softmax(scores)), chip.graph.nodes, "y", (0, 0)) is None
