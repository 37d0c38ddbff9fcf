"""A 16-bit tensor that is judged with its inputs may lose what rounding every result to its format loses."""

import ml_dtypes
import numpy as np
import pytest

from qdebug.api import diff
from qdebug.compare.result.finding import FindingRole
from qdebug.model import Graph, MemoryRecording, Node, Role, RunInfo, TensorInfo
from qdebug.model.thresholds.verdict import DEFAULT_MIN_SQNR, GROWTH_MIN_EXCESS

X = np.random.default_rng(5).standard_normal((64, 256)).astype(np.float32)
OFFSET, FACTOR = np.float32(64), np.random.default_rng(6).uniform(0.5, 2, 256).astype(np.float32)
GRAPH = Graph(
    (
        Node(name="add", op="Add", inputs=("x", "c"), outputs=("h",)),
        Node(name="sub", op="Sub", inputs=("h", "c"), outputs=("d",)),
        Node(name="mul", op="Mul", inputs=("d", "f"), outputs=("y",)),
    ),
    tensors=[TensorInfo(name=name, role=Role.CONSTANT) for name in "cf"],
    inputs=["x"],
    outputs=["y"],
)


def run(dtype, *, kept="xcfhdy", factor=1.0, noise=0.0):
    """Return a run that subtracts what it added, which in a short format costs most digits.

    Args:
        dtype: Format of all values, which are stored in float32.
        kept: The tensors that are recorded.
        factor: By how much the result is too large.
        noise: Share of the result by which its elements deviate after rounding.
    """
    x, c, f = (np.asarray(each, np.float32).astype(dtype) for each in (X, OFFSET, FACTOR))
    h = x + c
    d = h - c
    y = ((d * f).astype(np.float32) * np.float32(factor)).astype(dtype).astype(np.float32)
    y *= 1 + noise * np.random.default_rng(7).standard_normal(y.shape).astype(np.float32)
    values = {"x": x, "c": c, "f": f, "h": h, "d": d, "y": y}
    info = RunInfo(backend="npu", skipped={name: "not dumped" for name in "hd" if name not in kept})
    return MemoryRecording(GRAPH, {(name, 0, 0): values[name].astype(np.float32) for name in kept}, info)


def judge(**backend):
    """Return the result of the last node, whose input the backend did not record."""
    return diff(run(np.float32), run(ml_dtypes.bfloat16, kept="xcfy", **backend))["mul"]


def test_digits_that_the_format_loses_are_no_fault():
    node = judge()
    (finding,) = [each for each in node.findings if each.role is FindingRole.EXCUSE]
    assert (node.status, finding.kind, finding.evidence) == ("within", "precision", "bfloat16")
    assert finding.amount < DEFAULT_MIN_SQNR
    assert finding.amount == pytest.approx(finding.limit + GROWTH_MIN_EXCESS, abs=0.1)
    assert "the reference with all inputs, constants and results rounded to bfloat16 has 18.8 dB" in node.reason


@pytest.mark.parametrize(
    "fault", [{"factor": 1.4}, {"noise": 0.003}], ids=["a larger error", "values with more digits than the format"]
)
def test_an_error_that_the_format_does_not_cause_fails(fault):
    assert judge(**fault).status == "diverged"
