"""A harness that says a scale once, or never: what follows is known, and what does not is said to be missing."""

import numpy as np
import pytest

from qdebug.compare.measure.recordings import as_compared
from qdebug.compare.result.finding import Status
from qdebug.compare.result.limits import Limits
from qdebug.model import QuantParams
from qdebug.recording.recorder import Recorder
from qdebug.session import DiffSession

RNG = np.random.default_rng(2)
X = RNG.normal(size=(1, 3, 6, 6)).astype(np.float32)
W = (RNG.normal(size=(4, 3, 1, 1)) * 0.4).astype(np.float32)
B = (RNG.normal(size=4) * 0.2).astype(np.float32)
Y = np.einsum("ncij,oc->noij", X, W[:, :, 0, 0]) + B[:, None, None]
SX, SW, SY, ZX, ZY = np.float32(0.03), np.float32(0.01), np.float32(0.04), np.int8(3), np.int8(-5)
XQ = np.clip(np.rint(X / SX) + ZX, -128, 127).astype(np.int8)
WQ = np.clip(np.rint(W / SW), -128, 127).astype(np.int8)
BQ = np.rint(B / (SX * SW)).astype(np.int32)
SUMS = np.einsum("ncij,oc->noij", XQ.astype(np.int64) - ZX, WQ[:, :, 0, 0].astype(np.int64)) + BQ[:, None, None]
YQ = np.clip(np.rint(SUMS * (SX * SW / SY)) + ZY, -128, 127).astype(np.int8)


def pooled(values):
    return values.reshape(1, 4, 3, 2, 3, 2).max(axis=(3, 5))


POOL = {"kernel_shape": [2, 2], "strides": [2, 2]}


def reference():
    with Recorder(None, backend="float") as rec:
        rec.constant("w", W)
        rec.constant("b", B)
        rec.put("x", X)
        rec.put("y", Y.astype(np.float32), node="conv", op="Conv", inputs=("x", "w", "b"))
        rec.put("p", pooled(Y).astype(np.float32), node="pool", op="MaxPool", inputs=("y",), attrs=POOL)
        rec.outputs("p")
    return rec.recording


def by_inputs():
    """Every scale is an input of a node, as ONNX says it; no tensor repeats one."""
    with Recorder(None, backend="npu") as rec:
        constants = {"w": WQ, "b": BQ, "sx": SX, "zx": ZX, "sw": SW, "zw": np.int8(0), "sy": SY, "zy": ZY}
        for name, value in constants.items():
            rec.constant(name, np.asarray(value))
        rec.put("x", XQ)
        inputs = ("x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b")
        rec.put("y", YQ, node="conv", op="QLinearConv", inputs=inputs)
        rec.put("p", pooled(YQ), node="pool", op="MaxPool", inputs=("y",), attrs=POOL)
        rec.outputs("p")
    return rec.recording


def by_tensors(*, y=YQ, scaled=("x", "w", "y"), op="Conv"):
    """Some tensors say their scale, and the node says nothing of it."""
    said = {"x": (SX, ZX), "y": (SY, ZY), "p": (SY, ZY), "w": (SW, 0)}

    def scale(name):
        return dict(zip(("scale", "zero_point"), said[name], strict=True)) if name in scaled else {}

    with Recorder(None, backend="npu") as rec:
        rec.constant("w", WQ, **scale("w"))
        rec.constant("b", BQ)
        rec.put("x", XQ, **scale("x"))
        rec.put("y", y, node="conv", op=op, inputs=("x", "w", "b"), **scale("y"))
        rec.put("p", pooled(y), node="pool", op="MaxPool", inputs=("y",), attrs=POOL, **scale("p"))
        rec.outputs("p")
    return rec.recording


def test_scales_follow_from_the_inputs_of_nodes_and_from_what_hands_codes_on():
    known = {name: info.quant for name, info in as_compared(by_inputs()).graph.tensors.items()}
    assert known["x"] == QuantParams(dtype="int8", scale=SX, zero_point=3)
    assert known["y"] == known["p"] == QuantParams(dtype="int8", scale=SY, zero_point=-5)
    assert known["b"].scale == pytest.approx([SX * SW])
    assert known["sx"] is None


def test_the_scale_of_a_bias_follows_from_those_of_data_and_weight():
    known = as_compared(by_tensors()).graph.tensors
    assert known["b"].quant == QuantParams(dtype="int32", scale=SX * SW)
    assert known["p"].quant == known["y"].quant


@pytest.mark.parametrize("backend", [by_inputs, by_tensors])
def test_a_healthy_run_with_scales_said_once_is_within(backend):
    result = DiffSession(reference(), backend()).result()
    assert (result.status, result.exit_code) == (Status.WITHIN, 0)
    assert [node.quant is not None for node in result.nodes] == [True, True, True]
    assert result.nodes[1].judged.amount <= 0.5 + 1e-3


def test_codes_without_a_scale_are_never_held_against_real_values():
    result = DiffSession(reference(), by_tensors(scaled=("x", "w"))).result()
    first, *rest = result.nodes
    assert first.status is Status.WITHIN
    for node in rest:
        assert (node.status, node.metrics) == (Status.INCOMPARABLE, None)
        assert f"no scale was recorded for {node.tensor!r}" in node.reason
        (found,) = node.findings
        assert (found.kind, found.evidence) == ("scale", node.tensor)
    assert (result.status, result.exit_code, result.first_divergence) == (Status.INCOMPLETE, 3, None)


def test_a_run_without_any_scale_is_incomplete_and_no_error():
    result = DiffSession(reference(), by_tensors(scaled=())).result()
    assert (result.status, result.exit_code) == (Status.INCOMPLETE, 3)


def test_identical_codes_are_identical_whichever_side_says_their_scale():
    for runs in (
        (by_tensors(scaled=("x", "w", "y", "p")), by_tensors(scaled=())),
        (by_tensors(scaled=()), by_tensors()),
    ):
        result = DiffSession(*runs).result()
        assert {node.status for node in result.nodes} == {Status.IDENTICAL}


def test_codes_that_differ_without_a_scale_are_counted_and_not_judged():
    wrong = YQ.copy()
    wrong[0, 1] += 9
    result = DiffSession(by_tensors(), by_tensors(y=wrong, scaled=())).result()
    node = result.nodes[1]
    assert node.status is Status.INCOMPARABLE
    assert node.reason.startswith("36 of 144 codes differ, and no scale was recorded for 'y'")


def test_what_was_not_judged_is_said_and_is_no_success_beyond_a_tenth():
    def run(off, unknown):
        values = [RNG.normal(size=(1, 50)).astype(np.float32) for _ in range(6)] if off is None else off
        with Recorder(None, backend="x") as rec:
            rec.put("t0", values[0])
            for at in range(1, 6):
                op = "Mystery" if at in unknown else "Identity"
                rec.put(f"t{at}", values[at], node=f"n{at}", op=op, inputs=(f"t{at - 1}",))
            rec.outputs("t5")
        return rec.recording, values

    first, values = run(None, {3})
    second, _ = run([value.copy() for value in values], {3})
    assert DiffSession(first, second).result().exit_code == 0  # equal values need no judge
    base = RNG.normal(size=(1, 50)).astype(np.float32)
    noise = (RNG.normal(size=(1, 50)) * 0.3).astype(np.float32)
    clean, _ = run([base] * 6, {1, 2, 3, 4, 5})
    noisy, _ = run([base + noise] * 6, {1, 2, 3, 4, 5})
    result = DiffSession(clean, noisy, limits=Limits(allow_different_inputs=True)).result()
    assert "5 tensors were not judged (the first: 't1'" in result.verdict.sentence
    assert result.exit_code == 3


@pytest.mark.parametrize(("unknown", "code"), [(3, 3), (0, 0)])
def test_a_comparison_in_which_much_was_not_judged_is_incomplete(unknown, code):
    x = np.random.default_rng(4).normal(size=(1, 400)).astype(np.float32)
    step = np.float32(0.6)
    codes = np.clip(np.rint(x / step), -128, 127).astype(np.int8)

    def run(quantized):
        with Recorder(None, backend="x") as rec:
            rec.put("x", x)
            rec.put("z", -x, node="neg", op="Neg", inputs=("x",))
            scale = {"scale": step, "zero_point": 0} if quantized else {}
            last = codes if quantized else x
            rec.put("q", last, node="q", op="QuantizeLinear" if quantized else "Identity", inputs=("x",), **scale)
            for at in range(unknown):
                before = f"m{at - 1}" if at else "q"
                rec.put(f"m{at}", last, node=f"m{at}", op="Mystery", inputs=(before,), **scale)
            rec.outputs("z")
        return rec.recording

    result = DiffSession(run(False), run(True)).result()
    assert {node.status for node in result.nodes} <= {Status.IDENTICAL, Status.WITHIN}
    assert result.exit_code == code
    assert ("3 of 6 tensors were not judged" in result.verdict.sentence) == bool(unknown)
