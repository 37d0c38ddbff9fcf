"""Codes of scores that a mask is added to: what counts is what the mask leaves."""

import numpy as np
import pytest

from qdebug.api import diff
from qdebug.compare.align.align import align
from qdebug.compare.attribute.attribute import attribute
from qdebug.compare.attribute.masked import is_relevant_to_softmax, softmax_axes
from qdebug.compare.attribute.plan import plan
from qdebug.compare.result.result import Status
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.replay.run import run_graph

RNG = np.random.default_rng(9)
X = (RNG.normal(size=(2, 6, 6)) * 2).astype(np.float32)
LATER = np.triu(np.ones((6, 6), dtype=bool), 1)


def node(op, inputs, output, **attrs):
    return Node(name=f"n_{output}", op=op, inputs=tuple(inputs.split()), outputs=(output,), attrs=attrs)


def scores(hidden, *, span=None, last="Softmax", mask=LATER):
    """Record Softmax(x + mask), in real numbers or with the sum in codes of 8 bits over a span."""
    constants = {"k": np.where(mask, np.float32(hidden), np.float32(0))}
    quants, total = {}, "s"
    nodes = [node("Add", "x k", "s")]
    if span is not None:
        scale = np.float32((span[1] - span[0]) / 255)
        zero = int(np.clip(np.rint(-128 - span[0] / scale), -128, 127))
        constants |= {"c": scale, "z": np.int8(zero)}
        quants = {"q": QuantParams(dtype="int8", scale=scale, zero_point=zero)}
        nodes += [node("QuantizeLinear", "s c z", "q"), node("DequantizeLinear", "q c z", "d")]
        total = "d"
    nodes.append(node(last, total, "y", **({"axis": -1} if last == "Softmax" else {})))
    infos = [TensorInfo(name=name, role=Role.CONSTANT) for name in constants]
    infos += [TensorInfo(name=name, quant=quant) for name, quant in quants.items()]
    graph = Graph(nodes, tensors=infos, inputs=["x"], outputs=["y"], opset={"": 17})
    arrays = {"x": X, **{name: np.asarray(array) for name, array in constants.items()}}
    run_graph(graph, {"x": X}, constants, on_tensor=lambda name, array: arrays.setdefault(name, np.array(array)))
    return MemoryRecording.single(graph, arrays)


@pytest.mark.parametrize("hidden", [-3.4e38, -1e4])
def test_a_mask_that_takes_up_the_codes_is_named(hidden):
    verdict = diff(scores(hidden), scores(hidden, span=(hidden, float(X.max())))).verdict
    assert (verdict.status, verdict.first_divergence, verdict.origin) == (Status.ACCUMULATED, None, "n_q")
    assert "the reference's unmasked values to its " in verdict.sentence
    assert "the mask value uses up the code range" in verdict.sentence


@pytest.mark.parametrize("hidden", [-3.4e38, -1e4])
def test_codes_for_what_the_mask_leaves_are_within_if_the_mask_still_hides(hidden):
    span = (float(X.min()) - 20, float(X.max()))
    result = diff(scores(hidden), scores(hidden, span=span))
    assert result.status is Status.WITHIN, result.verdict.sentence


def test_a_mask_that_hides_no_more_in_codes_is_told():
    span = (float(X.min()), float(X.max()))
    verdict = diff(scores(-1e4), scores(-1e4, span=span)).verdict
    assert (verdict.status, verdict.first_divergence, verdict.origin) == (Status.ACCUMULATED, None, "n_q")


def test_where_something_else_reads_the_sum_all_of_it_counts():
    span = (-1e4, float(X.max()))
    assert diff(scores(-1e4, last="Tanh"), scores(-1e4, span=span, last="Tanh")).nodes[2].status is Status.WITHIN


def test_what_a_mask_hides_is_counted_over_all_samples():
    """A mask that hides something else in each sample, as that of words of another length."""
    span = (float(X.min()) - 20, float(X.max()))
    masks = (LATER, np.triu(np.ones((6, 6), dtype=bool), 4))
    ref, be = (
        MemoryRecording(
            samples[0].graph, {(name, at, 0): run.load(name) for at, run in enumerate(samples) for name in run.names}
        )
        for samples in ([scores(-1e4, mask=m) for m in masks], [scores(-1e4, span=span, mask=m) for m in masks])
    )
    entry = next(e for e in plan(ref, be, align(ref, be)) if e.tensor == "q")
    found = attribute(ref, be, entry)
    assert [part.hidden for part in found.samples.values()] == [2 * int(mask.sum()) for mask in masks]
    assert found.hidden == 2 * sum(int(mask.sum()) for mask in masks)
    assert found.relevant_propagated.count == 2 * X.size - found.hidden


@pytest.mark.parametrize("last", ["Softmax", "Tanh"])
def test_the_fit_of_codes_is_that_of_the_elements_that_count(last):
    """The codes hold less than the scores reach; the backend adds something else to each."""
    span = (float(X.min()) - 20, float(X.max()) - 1)
    ref, be = scores(-1e4, last=last), scores(-1e4, span=span, last=last)
    arrays = {name: be.load(name) for name in be.names}
    be = MemoryRecording.single(be.graph, arrays | {"s": arrays["s"] + np.float32(0.25)})
    entry = next(e for e in plan(ref, be, align(ref, be)) if e.tensor == "q")
    found = attribute(ref, be, entry)
    counts = np.broadcast_to(~LATER, X.shape) if last == "Softmax" else np.ones(X.shape, bool)
    theirs = ref.load("s")[counts]
    low, high = (entry.quant.scale[0] * (end - entry.quant.zero_point[0]) for end in (-128, 127))
    cut = np.clip(theirs, low, high) - theirs
    assert found.saturation_error.mismatches == np.count_nonzero(cut)
    assert found.saturation_error.rmse == pytest.approx(np.sqrt(np.mean(np.square(cut))), rel=1e-5)
    assert np.abs(found.quantization_error.rmse - found.saturation_error.rmse) <= entry.quant.scale[0] / 2
    assert found.quantization_error.count == theirs.size
    assert found.hidden == X.size - theirs.size
    if last == "Softmax":
        assert (found.relevant_propagated.count, found.relevant_propagated.max_abs) == (
            theirs.size,
            pytest.approx(0.25, rel=1e-4),
        )
    else:
        assert found.relevant_propagated is None


def test_which_elements_count():
    reference = np.array([[1.0, -200, 0, -200]])
    codes = np.array([[1.0, -20, 0, -2]])
    assert is_relevant_to_softmax(reference, codes, (1,)).tolist() == [[True, False, True, True]]
    assert is_relevant_to_softmax(np.array([[-np.inf, 2]]), np.array([[-30.0, 2]]), (1,)).tolist() == [[False, True]]


@pytest.mark.parametrize(
    ("opset", "attrs", "axes"),
    [(13, {}, (2,)), (13, {"axis": 1}, (1,)), (11, {}, (1, 2)), (11, {"axis": 2}, (2,)), (13, {"axis": 7}, None)],
)
def test_axes_of_a_row(opset, attrs, axes):
    graph = Graph([node("Softmax", "x", "y", **attrs)], inputs=["x"], outputs=["y"], opset={"": opset})
    assert softmax_axes(graph, "x", 3) == axes
    assert softmax_axes(graph, "y", 3) is None


def where(hidden, *, last="Softmax", dtype=np.float32, mask=LATER):
    """Record Softmax(Where(mask, none, x)), with the fill as large as a format of floats allows."""
    x, constants = X.astype(dtype), {"m": mask, "none": np.array(hidden, dtype)}
    nodes = [node("Where", "m none x", "s"), node(last, "s", "y", **({"axis": -1} if last == "Softmax" else {}))]
    infos = [TensorInfo(name=name, role=Role.CONSTANT) for name in constants]
    graph = Graph(nodes, tensors=infos, inputs=["x"], outputs=["y"], opset={"": 17})
    arrays = {"x": x, **{name: np.asarray(array) for name, array in constants.items()}}
    run_graph(graph, {"x": x}, constants, on_tensor=lambda name, array: arrays.setdefault(name, np.array(array)))
    return MemoryRecording.single(graph, arrays)


@pytest.mark.parametrize("nearer", [-65504.0, -1e4])
def test_another_mask_that_hides_as_much_is_no_other_constant(nearer):
    result = diff(where(-1e9), where(nearer, dtype=np.float16))
    assert result.status is Status.WITHIN, result.verdict.sentence
    whole = LATER | (np.arange(6) < 2)[:, None]  # of two rows nothing is left
    result = diff(where(-1e9, mask=whole), where(nearer, dtype=np.float16, mask=whole))
    assert result.status is Status.WITHIN, result.verdict.sentence


def test_another_mask_is_told_where_it_hides_less_or_something_else_reads_it():
    assert diff(where(-1e9), where(-3.0)).origin == "n_s"
    assert diff(where(-1e9, last="Tanh"), where(-1e4, last="Tanh")).nodes[1].status is Status.DIVERGED
