"""Factors of channels that one layer moves into the next are no fault; factors that reach an output are."""

import numpy as np
import pytest

from qdebug.api import diff
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 12, 8)).astype(np.float32)
SCALE, WEIGHT, OTHER = (RNG.standard_normal(shape).astype(np.float32) for shape in ((8,), (8, 6), (8, 6)))
FACTORS = RNG.uniform(0.3, 3, 8).astype(np.float32)
GRAPH = Graph(
    (
        Node(name="norm", op="RMSNormalization", inputs=("x", "s"), outputs=("n",), attrs={"epsilon": 1e-5}),
        Node(name="one", op="MatMul", inputs=("n", "w"), outputs=("a",)),
        Node(name="two", op="MatMul", inputs=("n", "v"), outputs=("b",)),
        Node(name="add", op="Add", inputs=("a", "b"), outputs=("y",)),
    ),
    tensors=[TensorInfo(name=name, role=Role.CONSTANT) for name in "swv"],
    inputs=["x"],
    outputs=["y"],
)


def run(factors=None, first=None, second=None):
    """Record the net with a factor for each channel behind the normalization, and those of its two readers."""
    scale = SCALE if factors is None else SCALE / factors
    w, v = (
        weight if factor is None else weight * factor[:, None] for weight, factor in ((WEIGHT, first), (OTHER, second))
    )
    arrays = {("s", 0, 0): scale, ("w", 0, 0): w, ("v", 0, 0): v}
    for sample, x in enumerate(X):
        n = x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-5)) * scale
        arrays |= {(name, sample, 0): a for name, a in {"x": x, "n": n, "a": n @ w, "b": n @ v}.items()}
        arrays["y", sample, 0] = n @ w + n @ v
    return MemoryRecording(GRAPH, arrays)


def test_factors_that_all_readers_undo_are_a_remark():
    result = diff(run(), run(FACTORS, FACTORS, FACTORS))
    assert result.status == "within"
    (note,) = [found for found in result["norm"].findings if found.kind in ("weight", "constant")]
    assert "its channels have different factors (" in note.sentence
    assert [found.role for found in result["one"].findings if found.kind == "weight"] == ["note"]


@pytest.mark.parametrize(
    ("first", "second"),
    [(FACTORS, None), (FACTORS, FACTORS * np.float32(1.01)), (None, None)],
    ids=["one reader forgets them", "one is a hundredth off", "both forget them"],
)
def test_factors_that_a_reader_does_not_undo_are_a_fault(first, second):
    result = diff(run(), run(FACTORS, first, second))
    assert result["norm"].status == "diverged"


def test_negative_factors_are_a_fault():
    result = diff(run(), run(-FACTORS, -FACTORS, -FACTORS))
    assert result["norm"].status == "diverged"
