"""The cause of a wrong node is the same one whether its results are stored in float32 or in a 16-bit format."""

import ml_dtypes
import numpy as np
import pytest

from qdebug.api import diff
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo

RNG = np.random.default_rng(0)


def rounded(values, dtype=ml_dtypes.bfloat16):
    return values.astype(dtype).astype(np.float32)


X, WEIGHT = rounded(RNG.standard_normal((8, 96))), rounded(RNG.standard_normal((96, 64)) * 0.1)
BIAS = rounded(RNG.standard_normal(64))


def run(wrong, dtype):
    product = X[:, :48] @ WEIGHT[:48] if wrong == "half of each sum" else X @ WEIGHT
    if wrong == "column-major":
        product = X @ np.ascontiguousarray(WEIGHT.reshape(64, 96).T)
    h = rounded(product, dtype)
    a = rounded(h + {"no bias": 0, "bias twice": 2}.get(wrong, 1) * BIAS, dtype)
    s = a if wrong == "no activation" else np.maximum(a, 0)
    axis = 0 if wrong == "axis" else -1
    powers = np.exp(s - s.max(axis, keepdims=True))
    p = rounded(powers / powers.sum(axis, keepdims=True), dtype)
    graph = Graph(
        [
            Node(name="product", op="MatMul", inputs=("x", "w"), outputs=("h",)),
            Node(name="add", op="Add", inputs=("h", "b"), outputs=("a",)),
            Node(name="relu", op="Relu", inputs=("a",), outputs=("s",)),
            Node(name="softmax", op="Softmax", inputs=("s",), outputs=("p",), attrs={"axis": -1}),
        ],
        tensors=[TensorInfo(name=name, role=Role.CONSTANT) for name in ("w", "b")],
        inputs=["x"],
        outputs=["p"],
    )
    values = {"x": X, "w": WEIGHT, "b": BIAS, "h": h, "a": a, "s": s, "p": p}
    if wrong == "a wrong weight":
        values["w"] = WEIGHT * np.where(np.arange(64) < 2, 1.5, 1)
        values["h"] = X @ values["w"]
    if wrong == "a wrong bias":
        values["b"] = 1.3 * BIAS
        values["a"] = h + values["b"]
    return MemoryRecording.single(graph, {name: array.astype(dtype) for name, array in values.items()})


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    ("wrong", "node", "words"),
    [
        ("half of each sum", "product", "the last 48 of the 96 products"),
        ("column-major", "product", "column-major"),
        ("no bias", "add", "the term 'b' is left out"),
        ("bias twice", "add", "the term 'b' is applied twice"),
        ("no activation", "relu", "the Relu is missing"),
        ("axis", "softmax", "works along axis 0"),
    ],
)
def test_a_mistake_is_named_in_any_float_format(wrong, node, words, dtype):
    result = diff(run("", dtype), run(wrong, dtype))
    assert result.first_divergence == node
    assert words in result.diagnosis[0].why


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    ("wrong", "node", "kind"), [("a wrong weight", "product", "weight"), ("a wrong bias", "add", "constant")]
)
def test_a_wrong_constant_is_found_in_any_float_format(wrong, node, kind, dtype):
    result = diff(run("", np.float32), run(wrong, dtype))
    assert result.first_divergence == node
    assert kind in {finding.kind for finding in result[node].findings if finding.role == "difference"}


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_elements_that_are_not_written_are_located_in_any_float_format(dtype):
    """Some right values are so small that 0 in their place is a small error beside the largest values."""

    def unwritten(dtype):
        written = run("", dtype)
        values = {
            name: written.load(name, 0, 0) if name not in ("w", "b") else written.load(name) for name in "xwbhasp"
        }
        values["h"] = values["h"].copy()
        values["h"][-1] = 0
        values["a"] = (values["h"].astype(np.float32) + values["b"].astype(np.float32)).astype(dtype)
        return MemoryRecording.single(written.graph, values)

    result = diff(run("", dtype), unwritten(dtype))
    assert result.first_divergence == "product"
    assert "only in row 7 of 8, all 0" in result.diagnosis[0].why
