"""What makes codes and reads them is compared and explained by the scale of the codes, whatever it is called."""

import ml_dtypes
import numpy as np
import pytest

import qdebug
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo

X = np.random.default_rng(0).normal(size=(1, 4, 8, 8)).astype(np.float32)
WORDS = [
    ("QuantizeLinear", "DequantizeLinear"),
    ("Quantize", "Dequantize"),
    ("QUANTIZE", "DEQUANTIZE"),
    ("tfl.quantize", "tfl.dequantize"),
    ("aten::quantize_per_tensor", "aten::dequantize"),
    ("quantized_decomposed.quantize_per_tensor.default", "quantized_decomposed.dequantize_per_tensor.default"),
]


def reference():
    nodes = [
        Node(name="i", op="Identity", inputs=("x",), outputs=("h",)),
        Node(name="r", op="Relu", inputs=("h",), outputs=("y",)),
    ]
    graph = Graph(nodes, tensors=[TensorInfo(name="x", role=Role.INPUT)], inputs=("x",), outputs=("y",), opset={"": 18})
    return MemoryRecording.single(graph, {"x": X, "h": X, "y": np.maximum(X, 0)})


def harness(words, *, kind=np.float32, channels=False, wrong=""):
    """Quantize and dequantize with `scale=` of the codes alone; one code, or one real number, is wrong if asked."""
    scale = np.linspace(0.02, 0.03, 4).astype(kind) if channels else np.asarray(0.021, kind)
    step = scale.astype(np.float32).reshape((-1, 1, 1) if channels else ())
    codes = np.clip(np.rint(X / step) + 3, -128, 127).astype(np.int8)
    if wrong == "code":
        codes[0, 0, 0, 7] -= 5
    real = (codes.astype(np.float32) - 3) * step
    if wrong == "real":
        real[0, 0, 1, 1] += 0.5
    facts = {"zero_point": np.full(4, 3), "axis": 1} if channels else {"zero_point": 3}
    with qdebug.Recorder(None, backend="harness") as rec:
        rec.put("x", X)
        rec.put("q", codes, node="to codes", op=words[0], inputs=("x",), scale=scale, **facts)
        rec.put("d", real, node="to reals", op=words[1], inputs=("q",))
        rec.put("y", np.maximum(real, 0), node="relu", op="Relu", inputs=("d",))
        rec.outputs("y")
    return rec.recording


@pytest.mark.parametrize("words", WORDS, ids=lambda words: words[0])
@pytest.mark.parametrize("kind", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("channels", [False, True])
def test_a_clean_pair_is_within_and_explained(words, kind, channels):
    backend = harness(words, kind=kind, channels=channels)
    result = qdebug.diff(reference(), backend)
    assert result.exit_code == 0
    assert {row.tensor: row.op for row in result.nodes if row.tensor in "qd"} == dict(zip("qd", words, strict=True))
    found = qdebug.explain(backend).nodes
    assert [(node.op, str(node.status)) for node in found[:2]] == [(word, "explained") for word in words]


@pytest.mark.parametrize("words", WORDS, ids=lambda words: words[0])
@pytest.mark.parametrize(("wrong", "node"), [("code", "to codes"), ("real", "to reals")])
def test_one_wrong_element_is_found(words, wrong, node):
    backend = harness(words, wrong=wrong)
    assert qdebug.diff(reference(), backend).first_divergence == node
    statuses = {each.node: str(each.status) for each in qdebug.explain(backend).nodes}
    assert statuses[node] == "unexplained"
