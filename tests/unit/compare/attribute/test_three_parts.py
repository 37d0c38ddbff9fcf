"""The error of a tensor is propagated + constants + arithmetic, element by element, and each part is what it says."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.compare.result.finding import FindingKind, Status
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.numerics.affine import dequantize, quantize
from qdebug.session import DiffSession

STEP = 0.05


def recorded(values, *, quant=None, pads=(1, 1, 1, 1), weight_quant=None):
    """Return a run of a convolution with a bias whose tensors have these values."""
    graph = Graph(
        [Node(name="conv", op="Conv", inputs=("x", "w", "b"), outputs=("y",), attrs={"pads": pads})],
        tensors=[
            TensorInfo(name="w", role=Role.CONSTANT, quant=weight_quant),
            TensorInfo(name="b", role=Role.CONSTANT),
            TensorInfo(name="y", quant=quant),
        ],
        inputs=("x",),
        outputs=("y",),
        opset={"": 17},
    )
    return MemoryRecording.single(graph, values)


def conv(x, w, b, pads=(1, 1, 1, 1)):
    """Return a 3x3 convolution of one image in float64."""
    x = np.pad(x[0], ((0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    rows, columns = x.shape[1] - 2, x.shape[2] - 2
    taps = [x[:, i : i + rows, j : j + columns] for i in range(3) for j in range(3)]
    return np.einsum("tcij,oct->oij", np.array(taps), w.reshape(*w.shape[:2], 9))[None] + b[None, :, None, None]


def rms(values):
    return float(np.sqrt(np.mean(np.square(values))))


@drawn(30)
@given(
    seed=st.integers(0, 2**32),
    coming=st.sampled_from([0.0, 0.1]),
    weights=st.sampled_from([0.0, 0.2]),
    coded=st.booleans(),
    clipped=st.booleans(),
)
def test_each_part_is_the_difference_of_two_replays(seed, coming, weights, coded, clipped):
    rng = np.random.default_rng(seed)
    x, w, b = rng.normal(size=(1, 2, 6, 6)), rng.normal(size=(3, 2, 3, 3)), rng.normal(size=3)
    theirs_x = x + coming * rng.normal(size=x.shape)
    theirs_w = w + weights * rng.normal(size=w.shape)
    zero = 40 if clipped else 0
    quant = QuantParams(dtype="int8", scale=STEP if clipped else 0.2, zero_point=zero) if coded else None
    first, second, y = conv(theirs_x, w, b), conv(theirs_x, theirs_w, b), conv(x, w, b)
    stored = quantize(second, quant) if coded else second + 0.01 * rng.normal(size=second.shape)
    real = dequantize(stored, quant).astype(np.float64)
    parts = {
        "metrics": real - y,
        "introduced": real - first,
        "propagated": first - y,
        "constants": second - first,
        "arithmetic": real - second,
    }
    whole = parts["propagated"] + parts["constants"] + parts["arithmetic"]
    assert np.allclose(whole, parts["metrics"], atol=1e-12)
    reference = recorded({"x": x, "w": w, "b": b, "y": y})
    backend = recorded({"x": theirs_x, "w": theirs_w, "b": b, "y": stored}, quant=quant)
    node = DiffSession(reference, backend).result().nodes[-1]
    for name, part in parts.items():
        assert getattr(node, name).rmse == pytest.approx(rms(part), rel=1e-5, abs=1e-6), name
        assert getattr(node, name).max_abs == pytest.approx(np.abs(part).max(), rel=1e-5, abs=1e-6), name
    if coded:
        low, high = (STEP if clipped else 0.2) * (np.array([-128, 127]) - zero)
        cut = np.clip(second, low, high) - second
        assert node.clipping.rmse == pytest.approx(rms(cut), rel=1e-5, abs=1e-6)
        step = STEP if clipped else 0.2
        judged = np.abs(parts["arithmetic"] - cut).max() / step if node.metrics.mismatches else 0.0
        assert node.judged.amount == pytest.approx(judged, rel=1e-5, abs=1e-5)
        assert node.judged.amount <= 0.5 + 1e-3
        assert (node.judged.limit, node.judged.unit) == (1.5, "LSB")
    else:
        assert node.clipping is None
        assert node.judged.unit == "bound"
        assert (node.judged.amount > 1) == (node.status is Status.DIVERGED)


def chain(wrong=()):
    """Return an int8 run of four convolutions, each wrong in its own way: weight, bias, pads, arithmetic."""
    rng = np.random.default_rng(7)
    values = {"t0": rng.normal(size=(1, 2, 8, 8)).astype(np.float32)}
    nodes, tensors = [], []
    for at in range(4):
        w, b = rng.normal(0, 0.25, (2, 2, 3, 3)).astype(np.float32), rng.normal(0, 0.3, 2).astype(np.float32)
        pads = (1, 1, 1, 1)
        if "weight" in wrong and at == 0:
            w = w[:, ::-1]
        if "bias" in wrong and at == 1:
            b = -b
        if "pads" in wrong and at == 2:
            pads = (0, 0, 2, 2)
        y = conv(values[f"t{at}"], w, b, pads).astype(np.float32)
        if "arithmetic" in wrong and at == 3:
            y = np.where(rng.random(y.shape) < 0.2, y + 0.5, y).astype(np.float32)
        values |= {f"w{at}": w, f"b{at}": b, f"t{at + 1}": y}
        inputs = (f"t{at}", f"w{at}", f"b{at}")
        nodes.append(Node(name=f"c{at}", op="Conv", inputs=inputs, outputs=(f"t{at + 1}",), attrs={"pads": pads}))
        tensors += [TensorInfo(name=f"w{at}", role=Role.CONSTANT), TensorInfo(name=f"b{at}", role=Role.CONSTANT)]
    graph = Graph(nodes, tensors=tensors, inputs=("t0",), outputs=("t4",), opset={"": 17})
    return MemoryRecording.single(graph, values)


def test_faults_of_four_kinds_in_one_net_are_each_in_their_own_part_with_their_own_words():
    result = DiffSession(chain(), chain(("weight", "bias", "pads", "arithmetic"))).result()
    *said, last = result.nodes[1:]
    for node, kind in zip(said, (FindingKind.WEIGHT, FindingKind.BIAS, FindingKind.ATTRIBUTE), strict=True):
        assert (node.status, node.findings[0].kind) == (Status.DIVERGED, kind)
        assert node.constants.rel_l2 > 0.1
        assert node.arithmetic.rel_l2 < 1e-5
        assert node.introduced.rmse == pytest.approx(node.constants.rmse, rel=1e-4)
    assert (last.status, last.findings[0].kind) == (Status.DIVERGED, FindingKind.ARITHMETIC)
    assert last.arithmetic.rel_l2 > 0.1
    assert last.constants.max_abs == 0


def test_constants_are_not_known_where_only_the_reference_can_be_replayed():
    rng = np.random.default_rng(9)
    x, w, b = rng.normal(size=(1, 2, 6, 6)), rng.normal(size=(3, 2, 3, 3)), rng.normal(size=3)
    known = recorded({"x": x, "w": w, "b": b, "y": conv(x, w, b)})
    other = w + 0.2 * rng.normal(size=w.shape)
    graph = Graph(
        [replace(node, op="Mystery") for node in known.graph.nodes],
        tensors=known.graph.tensors.values(),
        inputs=("x",),
        outputs=("y",),
    )
    backend = MemoryRecording.single(graph, {"x": x, "w": other, "b": b, "y": conv(x, other, b)})
    node = DiffSession(known, backend).result().nodes[-1]
    assert node.introduced.rel_l2 > 0.1
    assert node.constants is None


def test_what_the_reference_s_codes_cut_off_is_no_error_of_a_float_backend():
    rng = np.random.default_rng(11)
    x, w, b = rng.normal(size=(1, 3, 6, 6)), rng.normal(size=(2, 3, 3, 3)), rng.normal(size=2)
    y = conv(x, w, b)
    quant = QuantParams(dtype="int8", scale=float(np.abs(y).max()) / 200, zero_point=0)  # it saturates
    x, w, b = (value.astype(np.float32) for value in (x, w, b))
    reference = recorded({"x": x, "w": w, "b": b, "y": quantize(y, quant)}, quant=quant)
    backend = recorded({"x": x, "w": w, "b": b, "y": y.astype(np.float32)})
    node = DiffSession(reference, backend).result().nodes[-1]
    assert node.arithmetic.max_abs > quant.scale[0] * 10  # the backend is beyond what the codes hold
    assert (node.status, node.judged.unit) == (Status.WITHIN, "bound")
    assert node.judged.amount < 1
