"""Constants of one node on both sides: which stand for the same, and how they differ."""

from pathlib import Path

import numpy as np
import pytest

import qdebug
from qdebug.compare.result.result import Status
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.session import DiffSession, open_recording

X = np.float32([[1.0, -2.0, 0.5]])
W = np.float32([[1, 2], [3, 4], [5, 6]])


def run(weight, **attrs):
    tensors = [TensorInfo(name="x", dtype="float32"), TensorInfo(name="w", dtype="float32", role=Role.CONSTANT)]
    node = Node(name="fc", op="Gemm", inputs=("x", "w"), outputs=("y",), attrs=attrs)
    graph = Graph([node], tensors=tensors, inputs=("x",), outputs=("y",), opset={"": 17})
    y = X @ (weight.T if attrs else weight)
    return MemoryRecording.single(graph, {"x": X, "w": weight, "y": y})


@pytest.fixture(scope="module")
def digits():
    """Return a session on the built-in net, float against int8."""
    folder = Path(qdebug.__file__).parent / "data"
    session = DiffSession(*(open_recording(folder / f"digits.{kind}.h5") for kind in ("float", "int8")))
    list(session.results())
    return session


def test_weight_and_bias_have_partners_and_scales_have_none(digits):
    found, alone = digits.constants("conv2_quantized")
    assert [(each.reference_tensor, each.tensor) for each in found] == [
        ("w2.weight", "w2.weight_quantized"),
        ("w2.bias", "w2.bias_quantized"),
    ]
    assert "conv2_scale" in alone
    assert all(each.status is Status.WITHIN for each in found)
    assert all(each.metrics.max_lsb <= 0.5 for each in found)
    assert "judged with the node" in found[0].note
    assert digits.pair("w2.weight_quantized").shape == (16, 8, 3, 3)
    assert digits.profile("w2.weight_quantized", sample=0, k=1).worst[0].lsb == pytest.approx(-0.4887, abs=0.01)


def test_a_wrong_element_of_a_turned_weight_is_where_it_differs():
    wrong = W.T.copy()
    wrong[1, 2] = 9
    session = DiffSession(run(W), run(wrong, transB=1))
    list(session.results())
    (weight,), alone = session.constants("y")
    assert alone == []
    assert weight.status is Status.DIVERGED
    assert "1 of 6 elements of weight 'w' differ" in weight.reason
    assert weight.metrics.mismatches == 1
    assert weight.metrics.worst_index == (2, 1), "in the reference's order of dimensions"


def test_an_equal_constant_is_identical_and_an_input_has_none():
    session = DiffSession(run(W), run(W))
    (weight,), _ = session.constants("y")
    assert weight.status is Status.IDENTICAL
    assert weight.note is None
    assert session.constants("x") == ([], [])


def test_a_weight_is_compared_with_what_is_folded_into_it():
    """The reference has a product and a BatchNormalization, the backend one product whose bias is the offset."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 3, 6, 6)).astype(np.float32), rng.standard_normal((4, 3, 1, 1)).astype(np.float32)
    gamma, beta, mean = (rng.uniform(0.5, 2, 4).astype(np.float32) for _ in range(3))
    var = np.float32([4, 0.25, 1, 9])
    gain = gamma / np.sqrt(var + np.float32(1e-5))
    product = np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0])
    y = product * gain[:, None, None] + (beta - mean * gain)[:, None, None]
    norm = {"gamma": gamma, "beta": beta, "mean": mean, "var": var}
    theirs = Graph(
        [
            Node(name="conv", op="Conv", inputs=("x", "w"), outputs=("c",)),
            Node(name="norm", op="BatchNormalization", inputs=("c", *norm), outputs=("y",), attrs={"epsilon": 1e-5}),
        ],
        tensors=[TensorInfo(name=name, role=Role.CONSTANT) for name in ("w", *norm)],
        inputs=("x",),
        outputs=("y",),
        opset={"": 17},
    )
    ours = Graph(
        [Node(name="conv", op="Conv", inputs=("x", "fw", "fb"), outputs=("y",))],
        tensors=[TensorInfo(name=name, role=Role.CONSTANT) for name in ("fw", "fb")],
        inputs=("x",),
        outputs=("y",),
        opset={"": 17},
    )
    folded = {"fw": (w * gain[:, None, None, None]).astype(np.float32), "fb": beta - mean * gain}
    session = DiffSession(
        MemoryRecording.single(theirs, {"x": x, "w": w, "c": product, "y": y, **norm}),
        MemoryRecording.single(ours, {"x": x, "y": y, **folded}),
    )
    list(session.results())
    (weight, bias), alone = session.constants("y")
    assert (weight.tensor, weight.reference_tensor) == ("fw", "w")
    assert (bias.tensor, bias.reference_tensor, alone) == ("fb", "beta", [])
    assert bias.metrics.sqnr_db > 100
    assert bias.match_reason == (
        "the bias of Conv 'conv'; Conv 'conv' has no bias; BatchNormalization is folded into the reference's first"
    )
    assert weight.metrics.sqnr_db > 100
    assert weight.match_reason.endswith("BatchNormalization is folded into the reference's first")
    assert (session.folded_in("fw"), session.folded_in("y")) == ("BatchNormalization", "")
    shown = session.pair("fw").read(0, 12)
    assert np.abs(shown.reference - shown.backend).max() == pytest.approx(weight.metrics.max_abs, rel=1e-6)
    worst = session.profile("fw", sample=0, k=1).worst[0]
    assert abs(worst.difference) == pytest.approx(weight.metrics.max_abs, rel=1e-6)


def test_a_weight_that_two_nodes_share_is_folded_for_one_alone():
    """One product has a BatchNormalization behind it, the other has none; the backend computes both as they are."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 3, 6, 6)).astype(np.float32), rng.standard_normal((4, 3, 1, 1)).astype(np.float32)
    gain = np.float32([0.5, 2, 1, 0.25])
    product = np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0])
    scaled = product * gain[:, None, None]
    norm = {"gamma": gain, "beta": np.zeros(4, np.float32), "mean": np.zeros(4, np.float32)}
    norm["var"] = np.ones(4, np.float32)
    other = Node(name="second", op="Conv", inputs=("x", "w"), outputs=("z",))
    theirs = Graph(
        [
            Node(name="conv", op="Conv", inputs=("x", "w"), outputs=("c",)),
            Node(name="norm", op="BatchNormalization", inputs=("c", *norm), outputs=("y",), attrs={"epsilon": 0.0}),
            other,
        ],
        tensors=[TensorInfo(name=name, role=Role.CONSTANT) for name in ("w", *norm)],
        inputs=("x",),
        outputs=("y", "z"),
        opset={"": 17},
    )
    ours = Graph(
        [
            Node(name="conv", op="Conv", inputs=("x", "w"), outputs=("c1",)),
            Node(name="scale", op="Mul", inputs=("c1", "g"), outputs=("y",)),
            other,
        ],
        tensors=[TensorInfo(name=name, role=Role.CONSTANT) for name in ("w", "g")],
        inputs=("x",),
        outputs=("y", "z"),
        opset={"": 17},
    )
    session = DiffSession(
        MemoryRecording.single(theirs, {"x": x, "w": w, "y": scaled, "z": product, **norm}),
        MemoryRecording.single(ours, {"x": x, "w": w, "y": scaled, "z": product, "g": gain.reshape(4, 1, 1)}),
    )
    list(session.results())
    for tensor in ("y", "z", "y"):
        found, _ = session.constants(tensor)
        weight = next(each for each in found if each.tensor == "w")
        assert weight.status is Status.IDENTICAL, "it is scaled by a node of the backend's own, or not at all"
        assert session.folded_in("w") == ""
