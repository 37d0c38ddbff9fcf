"""Values that were rounded to a float format of few digits in one of two runs are told, once and truly."""

import ml_dtypes
import numpy as np
import pytest

from qdebug.api import diff
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.recording.recorder import Recorder

RNG = np.random.default_rng(11)
X = RNG.standard_normal((2, 8, 32)).astype(np.float32)
W = (RNG.standard_normal((32, 32)) / 6).astype(np.float32)


def exact(values):
    return values


def rounded_to(dtype):
    return lambda values: values.astype(dtype).astype(np.float32)


def run(*, factors=exact, results=exact, op="MatMul", x=X, samples=2, read=True):
    """Record two products and a Relu, of factors and with results that are rounded first."""
    nodes = [
        Node(name="one", op=op, inputs=("x", "w"), outputs=("a",)),
        Node(name="relu", op="Relu", inputs=("a",), outputs=("r",)),
        Node(name="two", op=op, inputs=("r", "w"), outputs=("y",)),
    ]
    tensors = [TensorInfo(name="w", role=Role.CONSTANT)]
    graph = Graph(nodes, tensors=tensors, inputs=["x"], outputs=["y"])
    arrays = {("w", 0, 0): W}
    for sample in range(samples):
        a = results(factors(x[sample]) @ factors(W))
        r = np.maximum(a, 0)
        y = results(factors(r) @ factors(W))
        arrays |= {(name, sample, 0): array for name, array in zip("xary", (x[sample], a, r, y), strict=True)}
    return MemoryRecording(graph, arrays)


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
@pytest.mark.parametrize("op", ["MatMul", "Strange"])
def test_values_of_a_short_format_are_told_at_the_first_tensor_that_has_them(name, op):
    """Whether their node can be replayed or not."""
    dtype = getattr(ml_dtypes, name, np.float16)
    found = diff(run(op=op), run(op=op, results=rounded_to(dtype)))
    assert f"The values of 'a' and of 2 more tensors are exactly representable in {name}; the reference's are not." in (
        found.verdict.sentence
    )
    assert {node.tensor: node.precision for node in found.nodes} == {"x": None, "a": name, "r": name, "y": name}
    assert found.nodes[1].to_dict()["precision"] == name


def test_nothing_is_told_where_the_reference_has_such_values_too_or_neither():
    short = run(results=rounded_to(np.float16))
    nudged = run(results=lambda values: rounded_to(np.float16)(values * np.float32(1.01)))
    assert "holds" not in diff(short, nudged).verdict.sentence
    assert "holds" not in diff(run(), run(results=lambda values: values * np.float32(1 + 1e-6))).verdict.sentence


def test_nothing_is_told_where_one_sample_was_not_rounded():
    plain, short = run(), run(results=rounded_to(ml_dtypes.bfloat16))
    graph = plain.graph
    arrays = {
        (name, sample, 0): (short if sample else plain).load(name, sample) for name in "xary" for sample in (0, 1)
    }
    mixed = MemoryRecording(graph, {**arrays, ("w", 0, 0): W})
    assert "holds" not in diff(plain, mixed).verdict.sentence


def test_nothing_is_told_of_whole_numbers():
    def whole(values):
        return np.rint(values * 3)

    found = diff(run(), run(results=whole))
    assert "holds" not in found.verdict.sentence


@pytest.mark.parametrize(("dtype", "said"), [(ml_dtypes.bfloat16, "bfloat16"), (np.float16, "TF32 or float16")])
def test_a_product_of_rounded_factors_is_told_as_such(dtype, said):
    found = diff(run(), run(factors=rounded_to(dtype)))
    assert found.verdict.first_divergence == "one"
    assert f"rounding its operands to {said} first explains the error" in found.verdict.sentence


def test_a_product_that_is_wrong_in_another_way_is_not_told_as_rounded():
    found = diff(run(), run(factors=lambda values: values * np.float32(1.002)))
    assert found.verdict.first_divergence == "one"
    assert "rounding what it multiplies" not in found.verdict.sentence


def harness(factors, *, bias):
    """Record a product and its bias in words of another framework, perhaps with the bias in a node of its own."""
    sums = factors(X[0]) @ factors(W)
    nodes = [Node(name="fc", op="FullyConnected", inputs=("x",), outputs=("s",))]
    values = {"x": X[0], "s": sums}
    if bias is not None:
        nodes.append(Node(name="plus", op="Add", inputs=("s", "b"), outputs=("y",)))
        values |= {"b": bias, "y": sums + bias}
    graph = Graph(
        nodes,
        tensors=[TensorInfo(name="b", role=Role.CONSTANT)] if bias is not None else (),
        inputs=["x"],
        outputs=["s" if bias is None else "y"],
    )
    return MemoryRecording.single(graph, values)


def dense(*, bias):
    inputs = ("x", "w") if bias is None else ("x", "w", "b")
    held = {"x": X[0], "w": W} | ({} if bias is None else {"b": bias})
    graph = Graph(
        [Node(name="dense", op="Gemm", inputs=inputs, outputs=("out",))],
        tensors=[TensorInfo(name=name, role=Role.CONSTANT) for name in inputs[1:]],
        inputs=["x"],
        outputs=["out"],
        opset={"": 17},
    )
    product = X[0] @ W
    return MemoryRecording.single(graph, {**held, "out": product if bias is None else product + bias})


@pytest.mark.parametrize("bias", [None, RNG.standard_normal(32).astype(np.float32)], ids=["bare", "bias"])
def test_rounded_factors_are_told_of_what_other_frameworks_compute_too(bias):
    assert diff(dense(bias=bias), harness(exact, bias=bias)).verdict.origin is None
    found = diff(dense(bias=bias), harness(rounded_to(ml_dtypes.bfloat16), bias=bias))
    assert "rounding its operands to bfloat16 first explains the error" in found.verdict.sentence
    other = diff(dense(bias=bias), harness(lambda values: values * np.float32(1.01), bias=bias))
    assert other.verdict.origin is not None
    assert "rounding what it multiplies" not in other.verdict.sentence


def test_a_product_whose_node_does_not_say_its_weight_is_not_told_to_turn_it(tmp_path):
    """Of a weight that no node reads nothing tells how it is kept."""
    with Recorder(tmp_path / "a.h5", backend="a") as rec:
        rec.constant("w", W)
        rec.put("x", X[0])
        rec.put("out", X[0] @ W, node="dense", op="Gemm", inputs=("x", "w"))
        rec.outputs("out")
    with Recorder(tmp_path / "b.h5", backend="b") as rec:
        rec.put("x", X[0])
        rec.put("s", (X[0] @ W) * np.float32(1.01), node="fc", op="FullyConnected", inputs=("x",))
        rec.outputs("s")
    found = diff(tmp_path / "a.h5", tmp_path / "b.h5")
    assert found.first_divergence == "fc"
    assert "transB" not in found.verdict.sentence
