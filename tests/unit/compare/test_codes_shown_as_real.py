"""A run that shows real values in place of codes whose scales nobody stated is judged by their step."""

import numpy as np
import pytest

import qdebug
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo

RNG = np.random.default_rng(5)
X = RNG.normal(size=(4, 3, 12, 12)).astype(np.float32)
W = (RNG.normal(size=(16, 3, 1, 1)) / 2).astype(np.float32)
V = (RNG.normal(size=(16, 16, 1, 1)) / 4).astype(np.float32)
NODES = [("Conv", "x w", "c"), ("Relu", "c", "r"), ("Conv", "r v", "d"), ("Add", "d r", "s"), ("Tanh", "s", "t")]


def conv(x, w):
    return np.einsum("nchw,kc->nkhw", x.astype(np.float64), w[:, :, 0, 0].astype(np.float64)).astype(np.float32)


def on_codes(values):
    step = (values.max() - min(values.min(), 0)) / 255
    return (np.rint(values / step) * step).astype(np.float32)


def run(*, codes=False, factor=1.0, left_out=()):
    keep = on_codes if codes else np.asarray
    weight = (lambda w: np.rint(w / np.abs(w).max() * 127) * np.abs(w).max() / 127) if codes else np.asarray
    c = conv(X, weight(W))
    r = keep(np.maximum(c, 0) * np.float32(factor))
    d = keep(conv(r, weight(V)))
    s = keep(d + r)
    values = {"x": X, "w": W, "v": V, "c": keep(c), "r": r, "d": d, "s": s, "t": keep(np.tanh(s))}
    nodes = [Node(name=y, op=op, inputs=tuple(read.split()), outputs=(y,)) for op, read, y in NODES]
    held = [TensorInfo(name=name, role=Role.CONSTANT) for name in ("w", "v")]
    graph = Graph(nodes, tensors=held, inputs=["x"], outputs=["t"], opset={"": 17})
    return MemoryRecording.single(graph, {name: each for name, each in values.items() if name not in left_out})


@pytest.mark.parametrize("left_out", [(), ("c",), ("c", "d")])
def test_a_right_device_is_accused_of_nothing(left_out):
    device = run(codes=True, left_out=left_out)
    result = qdebug.diff(run(), device)
    assert {node.node for node in result.nodes if node.status == "diverged"} == set()
    found = qdebug.explain(device)
    assert found.summary["unexplained"] == 0
    assert all("unrecorded scale" in each.assumed for each in found.nodes if each.status == "in_band")


@pytest.mark.parametrize("left_out", [(), ("c",)])
def test_a_wrong_one_is_still_wrong(left_out):
    device = run(codes=True, factor=1.2, left_out=left_out)
    result = qdebug.diff(run(), device)
    assert {node.node for node in result.nodes if node.status == "diverged"} == {"r"}
    told = {each.node: each.status for each in qdebug.explain(device).nodes}
    assert told["r"] == ("no_input" if left_out else "unexplained")
    assert told["s"] == told["d"] == "in_band"


def fixed_point(values):
    """Round to eighths of 10 bits, as an FPGA does."""
    return np.clip(np.rint(values * 8) / 8, -64, 63.875).astype(np.float32)


def pooled(*, device=False, saturates=False):
    """Return a run of a device that may keep the sum of an average in the type of its data."""
    keep = fixed_point if device else np.float32
    nodes = [("Mul", "x k", "m"), ("Tanh", "m", "t"), ("Mul", "m k", "n"), ("GlobalAveragePool", "n", "p")]
    x, k = fixed_point(IMAGES), np.float32(1.3)
    m = keep(x * k)
    n = keep(m * k)
    sums = n.astype(np.float64).sum((2, 3), keepdims=True)
    p = keep((np.minimum(sums, 63.875) if saturates else sums) / 64)
    made = [Node(name=y, op=op, inputs=tuple(read.split()), outputs=(y,)) for op, read, y in nodes]
    tensors = [TensorInfo(name="k", role=Role.CONSTANT)]
    graph = Graph(made, tensors=tensors, inputs=["x"], outputs=["p"], opset={"": 17})
    return MemoryRecording.single(graph, {"x": x, "k": k, "m": m, "t": keep(np.tanh(m) * 4) / 4, "n": n, "p": p})


IMAGES = np.random.default_rng(7).random((4, 32, 8, 8)) * np.geomspace(0.1, 20, 32).reshape(1, 32, 1, 1)


def test_a_fixed_point_device_of_more_than_256_levels_is_right():
    result = qdebug.diff(pooled(), pooled(device=True))
    assert {node.node for node in result.nodes if node.status == "diverged"} == set()


def test_a_sum_that_saturates_is_a_range_that_is_too_narrow():
    """The largest value on the grid is no end of the codes, and clips the reference's values."""
    result = qdebug.diff(pooled(), pooled(device=True, saturates=True))
    assert result.exit_code == 1
    (found,) = [each for each in result["p"].findings if each.kind == "saturation"]
    assert "clipping the reference's values to its code range" in found.sentence
    assert result.verdict.origin == "p"
