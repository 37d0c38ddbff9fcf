"""Wrong rows that a later node drops are a remark; the same rows that reach an output are a fault."""

import ml_dtypes
import numpy as np
import pytest

from qdebug.api import diff
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo

RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((2, 10, 16)).astype(np.float32), RNG.standard_normal((16, 16)).astype(np.float32)
REAL = (np.arange(10) < 7).astype(np.float32).reshape(10, 1)
NODES = (
    Node(name="project", op="MatMul", inputs=("x", "w"), outputs=("p",)),
    Node(name="square", op="Mul", inputs=("p", "p"), outputs=("s",)),
    Node(name="drop", op="Mul", inputs=("s", "keep"), outputs=("d",)),
    Node(name="pool", op="ReduceSum", inputs=("d",), outputs=("y",), attrs={"axes": (0,), "keepdims": 0}),
)


def run(keep, wrong=None, *, output="y", dtype=np.float32):
    graph = Graph(
        NODES, tensors=[TensorInfo(name=n, role=Role.CONSTANT) for n in ("w", "keep")], inputs=["x"], outputs=[output]
    )
    arrays = {("w", 0, 0): W, ("keep", 0, 0): keep}
    for sample, x in enumerate(X):
        p = x @ W
        if wrong is not None:
            p[wrong] = 0
        s = p * p
        d = s * keep
        values = {"x": x, "p": p, "s": s, "d": d, "y": d.sum(0)}
        arrays |= {(name, sample, 0): array.astype(dtype).astype(np.float32) for name, array in values.items()}
    return MemoryRecording(graph, arrays)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_rows_that_are_dropped_are_a_remark(dtype):
    result = diff(run(REAL), run(REAL, slice(7, None), dtype=dtype))
    assert result.status == "within"
    assert result["project"].status == "within"
    (note,) = [found for found in result["project"].findings if found.kind == "arithmetic"]
    assert note.role == "note"
    assert "no tensor computed from it changes" in note.sentence


@pytest.mark.parametrize(
    ("keep", "wrong"), [(REAL, slice(6, None)), (REAL * 1e-3 + 1e-6, slice(7, None))], ids=["a row", "a small factor"]
)
def test_rows_that_reach_the_output_are_a_fault(keep, wrong):
    keep = keep.astype(np.float32)
    result = diff(run(keep), run(keep, wrong))
    assert result["project"].status == "diverged"


def test_a_tensor_that_nothing_reads_may_be_an_output():
    graph = Graph(NODES[:1], tensors=[TensorInfo(name="w", role=Role.CONSTANT)], inputs=["x"], outputs=[])
    right = X[0] @ W
    wrong = right.copy()
    wrong[7:] = 0
    runs = [MemoryRecording.single(graph, {"x": X[0], "w": W, "p": p}) for p in (right, wrong)]
    assert diff(*runs)["project"].status == "diverged"


def test_a_selection_that_happens_to_be_the_same_excuses_nothing():
    graph = Graph(
        (NODES[0], Node(name="best", op="ArgMax", inputs=("p",), outputs=("y",), attrs={"axis": 1, "keepdims": 0})),
        tensors=[TensorInfo(name="w", role=Role.CONSTANT)],
        inputs=["x"],
        outputs=["y"],
    )
    right = X[0] @ W
    wrong = right.copy()
    wrong[:, 3] = -100
    runs = [
        MemoryRecording.single(graph, {"x": X[0], "w": W, "p": p, "y": right.argmax(1).astype(np.int64)})
        for p in (right, np.where(right == right.max(1, keepdims=True), right, wrong))
    ]
    assert diff(*runs)["project"].status == "diverged"


def test_values_that_are_not_finite_further_on_are_an_effect():
    nodes = (
        Node(name="make", op="MatMul", inputs=("x", "w"), outputs=("p",)),
        Node(name="divide", op="Div", inputs=("one", "p"), outputs=("d",)),
        Node(name="add", op="Add", inputs=("d", "x"), outputs=("y",)),
    )
    graph = Graph(
        nodes, tensors=[TensorInfo(name=n, role=Role.CONSTANT) for n in ("w", "one")], inputs=["x"], outputs=["y"]
    )
    runs = []
    for wrong in (False, True):
        p = X[0] @ W
        if wrong:
            p[7:] = 0
        with np.errstate(divide="ignore"):
            d = (np.float32(1) / p).astype(np.float32)
        values = {"x": X[0], "w": W, "one": np.float32([1]), "p": p, "d": d, "y": d + X[0]}
        runs.append(MemoryRecording.single(graph, values))
    assert diff(*runs)["make"].status == "diverged"
