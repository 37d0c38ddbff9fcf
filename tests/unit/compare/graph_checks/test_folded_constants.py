"""A weight or a bias that is wrong is named though a normalization was folded into it."""

import numpy as np
import pytest

from qdebug.compare.result.finding import FindingKind, Status
from qdebug.model import QuantParams
from qdebug.numerics.affine import quantize
from qdebug.recording.recorder import Recorder
from qdebug.session import DiffSession

RNG = np.random.default_rng(8)
X = RNG.normal(size=(1, 3, 7, 7)).astype(np.float32)
W = (RNG.normal(size=(5, 3, 1, 1)) * 0.5).astype(np.float32)
B = (RNG.normal(size=5) * 0.3).astype(np.float32)
GAMMA, BETA = RNG.uniform(0.5, 2, 5).astype(np.float32), RNG.uniform(0.5, 2, 5).astype(np.float32)
MEAN, VAR = RNG.normal(size=5).astype(np.float32), RNG.uniform(0.3, 3, 5).astype(np.float32)
EPSILON = 1e-3


def conv(w, b):
    return np.einsum("ncij,oc->noij", X.astype(np.float64), w[:, :, 0, 0].astype(np.float64)) + b[:, None, None]


def folded(w=W, b=B, *, gamma=GAMMA, mean=MEAN):
    gain = gamma / np.sqrt(VAR.astype(np.float64) + EPSILON)
    return (w * gain[:, None, None, None]).astype(np.float32), ((b - mean) * gain + BETA).astype(np.float32)


def reference(*, activation):
    raw = conv(W, B)
    gain = GAMMA / np.sqrt(VAR.astype(np.float64) + EPSILON)
    normed = (raw - MEAN[:, None, None]) * gain[:, None, None] + BETA[:, None, None]
    with Recorder(None, backend="float") as rec:
        for name, value in {"w": W, "b": B, "gamma": GAMMA, "beta": BETA, "mean": MEAN, "var": VAR}.items():
            rec.constant(name, value)
        rec.put("x", X)
        rec.put("c", raw.astype(np.float32), node="conv", op="Conv", inputs=("x", "w", "b"))
        inputs = ("c", "gamma", "beta", "mean", "var")
        rec.put(
            "n",
            normed.astype(np.float32),
            node="norm",
            op="BatchNormalization",
            inputs=inputs,
            attrs={"epsilon": EPSILON},
        )
        if activation:
            rec.put("y", np.maximum(normed, 0).astype(np.float32), node="relu", op="Relu", inputs=("n",))
        rec.outputs("y" if activation else "n")
    return rec.recording


def backend(w, b, *, activation, quant=None):
    name = "y" if activation else "n"
    attrs = {"activation": "Relu"} if activation else {}
    with Recorder(None, backend="npu") as rec:
        if quant is not None:
            wq = QuantParams(dtype="int8", scale=np.abs(w).max(axis=(1, 2, 3)) / 127, axis=0)
            real = (quantize(w, wq) * wq.scale[:, None, None, None]).astype(np.float32)
            rec.constant("wf", quantize(w, wq), scale=wq.scale, zero_point=0, axis=0)
            made = conv(real, b)
        else:
            rec.constant("wf", w)
            made = conv(w, b)
        rec.constant("bf", b)
        rec.put("x", X)
        made = np.maximum(made, 0) if activation else made
        rec.put(
            name,
            made.astype(np.float32),
            node="conv",
            op="FusedConv" if activation else "Conv",
            inputs=("x", "wf", "bf"),
            attrs=attrs,
            domain="com.microsoft" if activation else "",
        )
        rec.outputs(name)
    return rec.recording


def wrong_row(w, b):
    w = w.copy()
    w[2] = w[1]
    return w, b


def rolled_bias(w, b):
    return w, np.roll(b, 1)


@pytest.mark.parametrize("activation", [False, True])
@pytest.mark.parametrize("quant", [None, "int8"])
@pytest.mark.parametrize(
    ("fault", "kind", "name"), [(wrong_row, FindingKind.WEIGHT, "wf"), (rolled_bias, FindingKind.BIAS, "bf")]
)
def test_the_constant_that_is_wrong_is_named(activation, quant, fault, kind, name):
    faulty = backend(*fault(*folded()), activation=activation, quant=quant)
    result = DiffSession(reference(activation=activation), faulty).result()
    node = result.nodes[-1]
    assert (node.status, result.origin) == (Status.DIVERGED, "conv")
    assert (node.findings[0].kind, node.findings[0].evidence) == (kind, name)
    assert "(its BatchNormalization folded in)" in node.reason


def test_statistics_that_were_left_out_are_a_wrong_weight_or_bias():
    w, b = folded(gamma=np.ones(5, np.float32))
    result = DiffSession(reference(activation=False), backend(w, b, activation=False)).result()
    assert result.nodes[-1].findings[0].kind is FindingKind.WEIGHT
    w, b = folded(mean=np.zeros(5, np.float32))
    result = DiffSession(reference(activation=False), backend(w, b, activation=False)).result()
    assert result.nodes[-1].findings[0].kind is FindingKind.BIAS


@pytest.mark.parametrize("activation", [False, True])
@pytest.mark.parametrize("quant", [None, "int8"])
def test_a_fold_that_is_right_is_within(activation, quant):
    runs = reference(activation=activation), backend(*folded(), activation=activation, quant=quant)
    result = DiffSession(*runs).result()
    assert result.status in (Status.WITHIN, Status.IDENTICAL)
    assert result.nodes[-1].findings == ()


def test_a_mask_that_is_another_one_is_named():
    def run(mask):
        with Recorder(None, backend="x") as rec:
            rec.constant("m", mask)
            rec.put("x", X)
            made = np.where(mask, X, 0).astype(np.float32)
            rec.constant("zero", np.zeros((), np.float32))
            rec.put("y", made, node="pick", op="Where", inputs=("m", "x", "zero"))
            rec.outputs("y")
        return rec.recording

    mask = RNG.uniform(size=(7, 7)) < 0.5
    node = DiffSession(run(mask), run(mask ^ (np.arange(7) == 3))).result().nodes[-1]
    assert (node.status, node.findings[0].kind, node.findings[0].evidence) == (Status.DIVERGED, "constant", "m")


def test_an_activation_is_missed_before_a_product_that_a_normalization_was_folded_into():
    """The backend's product reads what the reference's activation reads; all that its constants say is right."""
    turned = np.maximum(X, 0)
    with Recorder(None, backend="float") as rec:
        for name, value in {"w": W, "b": B, "gamma": GAMMA, "beta": BETA, "mean": MEAN, "var": VAR}.items():
            rec.constant(name, value)
        rec.put("x", X)
        rec.put("r", turned, node="relu", op="Relu", inputs=("x",))
        raw = np.einsum("ncij,oc->noij", turned.astype(np.float64), W[:, :, 0, 0]) + B[:, None, None]
        rec.put("c", raw.astype(np.float32), node="conv", op="Conv", inputs=("r", "w", "b"))
        gain = GAMMA / np.sqrt(VAR.astype(np.float64) + EPSILON)
        normed = (raw - MEAN[:, None, None]) * gain[:, None, None] + BETA[:, None, None]
        inputs = ("c", "gamma", "beta", "mean", "var")
        attrs = {"epsilon": EPSILON}
        rec.put("n", normed.astype(np.float32), node="norm", op="BatchNormalization", inputs=inputs, attrs=attrs)
        rec.outputs("n")
    without, other = (
        DiffSession(rec.recording, backend(*constants, activation=False)).result().nodes[-1]
        for constants in (folded(), wrong_row(*folded()))
    )
    assert without.reason == (
        "the reference's Relu before it is missing here; without Relu, the reference's nodes "
        "reproduce the recorded values"
    )
    assert without.findings[0].kind is FindingKind.MISSING_NODE
    assert other.findings[0].kind is FindingKind.WEIGHT
