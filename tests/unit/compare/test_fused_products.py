"""Products into which a runtime takes the turns and factors around them: nobody is accused of the other form."""

import numpy as np
import pytest

from qdebug.api import diff
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.replay.run import run_graph

RNG = np.random.default_rng(5)
X = RNG.normal(size=(2, 6, 8)).astype(np.float32)
CONSTANTS = {
    **{name: RNG.normal(size=(8, 8)).astype(np.float32) for name in ("wq", "wk")},
    "b": RNG.normal(size=8).astype(np.float32),
    "k": np.float32([0.25]),
    "flat": np.array([12, 8]),
    "back": np.array([2, 6, 8]),
}


def node(op, inputs, output, **attrs):
    domain = "com.microsoft" if op == "FusedMatMul" else ""
    return Node(name=f"n_{output}", op=op, domain=domain, inputs=tuple(inputs.split()), outputs=(output,), attrs=attrs)


def run(nodes, x, **other):
    constants = {**CONSTANTS, **other}
    infos = [TensorInfo(name=name, role=Role.CONSTANT) for name in constants]
    infos += [TensorInfo(name=name, stands_for=model) for name, model in (("rows", "x"), ("g", "keys"))]
    graph = Graph(nodes, tensors=infos, inputs=["x"], outputs=nodes[-1].outputs, opset={"": 17, "com.microsoft": 1})
    arrays = {"x": x, **constants}
    run_graph(graph, {"x": x}, constants, on_tensor=lambda name, array: arrays.setdefault(name, np.array(array)))
    return MemoryRecording.single(graph, arrays)


def apart(perm):
    """Scores of attention as a model says them: a product with bias, a turn, and a factor before the product."""
    turned = (perm[0], perm[2], perm[1])
    nodes = [node("MatMul", "x wq", "q0"), node("Transpose", "q0", "q", perm=perm), node("Mul", "q k", "scaled")]
    nodes += [node("MatMul", "x wk", "p"), node("Add", "p b", "keys"), node("Transpose", "keys", "t", perm=turned)]
    return [*nodes, node("MatMul", "scaled t", "s"), node("Softmax", "s", "y", axis=-1)]


def merged(**attrs):
    """The same with a Gemm on rows of both batches, and one product that turns and scales what it reads."""
    nodes = [node("MatMul", "x wq", "q0"), node("Reshape", "x flat", "rows"), node("Gemm", "rows wk b", "g")]
    fused = node("FusedMatMul", "q0 keys", "s", transB=1, alpha=0.25, **attrs)
    return [*nodes, node("Reshape", "g back", "keys"), fused, node("Softmax", "s", "y", axis=-1)]


FORMS = pytest.mark.parametrize(
    ("perm", "attrs"), [((0, 1, 2), {}), ((1, 0, 2), {"transBatchA": 1, "transBatchB": 1})], ids=["rows", "batches"]
)


@FORMS
def test_a_product_may_turn_and_scale_what_it_reads_on_either_side(perm, attrs):
    other = (X * (1 + 1e-6 * RNG.normal(size=X.shape))).astype(np.float32)
    for one, two in (
        (run(apart(perm), X), run(merged(**attrs), other)),
        (run(merged(**attrs), X), run(apart(perm), other)),
    ):
        result = diff(one, two)
        assert result.exit_code == 0, result.verdict.sentence
        partners = {entry.tensor: entry.reference_tensor for entry in result.nodes}
        assert "scaled" not in partners, "the factor is taken into what follows, not into what comes before"


@FORMS
def test_a_factor_that_is_wrong_before_such_a_product_is_told(perm, attrs):
    result = diff(run(merged(**attrs), X), run(apart(perm), X, k=np.float32([0.3])))
    assert result.origin == "n_s", result.verdict.sentence
