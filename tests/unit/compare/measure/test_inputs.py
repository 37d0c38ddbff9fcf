"""Runs that were given different inputs: it is said first, and no node is accused."""

import ml_dtypes
import numpy as np
import pytest

import qdebug
from qdebug.compare.measure.inputs import ElementOrder, different_inputs
from qdebug.compare.result.finding import Status
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, TensorInfo
from qdebug.numerics.affine import dequantize, quantize
from qdebug.session import DiffSession

X = np.random.default_rng(0).normal(size=(1, 3, 16, 16)).astype(np.float32)
FEW = np.array([[1.0038, 2.0077, -0.5019, 1.0037]], np.float32)
SCALE = QuantParams(dtype="uint8", scale=np.float32(6 / 255), zero_point=128)


def run(x, *, op="Relu", quant=None, stated=None):
    """Record one node on an input; a scale may be stated for it, or for the codes that a quantizer makes of it."""
    nodes = [Node(name="node", op=op, inputs=("x",), outputs=("y",))]
    infos = [TensorInfo(name="x", quant=quant)]
    real = dequantize(x, quant)
    values = {"x": x, "y": np.maximum(real, 0)}
    if stated is not None:
        nodes.append(Node(name="quantize", op="QuantizeLinear", inputs=("x",), outputs=("q",)))
        infos.append(TensorInfo(name="q", quant=stated))
        values["q"] = quantize(real, stated)
    return MemoryRecording.single(Graph(nodes, tensors=infos, inputs=("x",), outputs=("y",), opset={"": 17}), values)


def differ(one, other):
    session = DiffSession(one, other)
    return list(different_inputs(one, other, session.alignment.pairs))


@pytest.mark.parametrize("x", [X * np.float32(1.08), X + np.float32(0.09), -X, X * 0, np.where(X > 2, np.nan, X)])
@pytest.mark.parametrize("op", ["Relu", "Unheard"])
def test_other_inputs_are_said_first_and_accuse_no_node(x, op):
    pair = run(X, op=op), run(x.astype(np.float32), op=op)
    for result in (qdebug.diff(*pair), qdebug.diff(*reversed(pair))):
        assert (result.status, result.exit_code) == (Status.INCOMPLETE, 3)
        assert (result.first_divergence, result.origin) == (None, None)
        assert result.verdict.sentence.startswith("The two runs were given different inputs ('x' ")
        allowed = qdebug.diff(*pair, limits=qdebug.Limits(allow_different_inputs=True))
        assert "Accepted by the limits: the two runs were given different inputs" in allowed.verdict.sentence


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (run(X), run(X)),
        (run(X), run(X * np.float32(1 + 1e-6))),
        (run(X), run(X.astype(np.float16))),
        (run(FEW), run(FEW.astype(ml_dtypes.bfloat16))),
        (run(X), run(quantize(X, SCALE), quant=SCALE)),
        (run(X), run(dequantize(quantize(X, SCALE), SCALE))),  # a scale that nobody states
        (run(X, stated=SCALE), run(dequantize(quantize(X, SCALE), SCALE), stated=SCALE)),
    ],
    ids=["equal", "rounding", "float16", "few of bfloat16", "codes", "grid", "stated"],
)
def test_what_a_format_rounds_or_cuts_off_is_the_same_input(one, other):
    assert not differ(one, other)
    assert not differ(other, one)


@pytest.mark.parametrize("off", [0.4, 0.6])
def test_half_a_step_of_the_stated_scale_is_allowed(off):
    moved = (X + np.float32(off * 6 / 255)).astype(np.float32)
    found = differ(run(X, stated=SCALE), run(moved, stated=SCALE))
    assert [each.unit for each in found] == (["steps"] if off > 0.5 else [])


def test_limits_of_the_user_judge_an_input_as_any_tensor():
    pair = run(X), run(X * np.float32(1.08))
    assert qdebug.diff(*pair, min_sqnr=20).exit_code == 0
    assert qdebug.diff(*pair, min_sqnr=30).first_divergence == "x"


def test_an_input_that_is_not_finite_in_both_runs_is_named():
    bad = np.where(X > 2, np.nan, X).astype(np.float32)
    reference, backend = run(bad), run(bad)
    values = {name: backend.load(name) for name in ("x", "y")}
    backend = MemoryRecording.single(backend.graph, {**values, "y": np.nan_to_num(values["y"])})
    result = qdebug.diff(reference, backend)
    assert result.first_divergence == "x"
    assert "of this input are NaN in both runs" in result.verdict.sentence


def test_other_inputs_are_said_where_one_recording_has_names_alone():
    nodes = [Node(name=name, op="Unknown", outputs=(name,)) for name in ("x", "y")]
    named = MemoryRecording.single(Graph(nodes, outputs=("y",)), {"x": X + 1, "y": np.maximum(X + 1, 0)})
    for pair in ((run(X), named), (named, run(X))):
        result = qdebug.diff(*pair)
        assert (result.exit_code, result.first_divergence) == (3, None)
        assert result.verdict.sentence.startswith("The two runs were given different inputs ('x' ")


@pytest.mark.parametrize(
    ("order", "given"),
    [
        (ElementOrder.CHANNELS_LAST, np.moveaxis(X, 1, -1).reshape(X.shape)),
        (ElementOrder.REVERSED_CHANNELS, X[:, ::-1].copy()),
        (ElementOrder.SWAPPED_PLANE, X.swapaxes(2, 3).copy()),
        (None, np.roll(X, 1)),
    ],
)
def test_the_same_input_in_another_order_is_said_to_be_so(order, given):
    for values in (given, dequantize(quantize(given, SCALE), SCALE)):
        (found,) = differ(run(X), run(values))
        assert found.order is order


def test_elements_of_channels_second_under_a_shape_of_channels_last():
    last = np.moveaxis(X, 1, -1)
    (found,) = differ(run(last), run(X.reshape(last.shape)))
    assert found.order is ElementOrder.CHANNELS_SECOND
