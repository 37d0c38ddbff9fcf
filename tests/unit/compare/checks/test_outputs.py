"""Parts that a Concat joined to an output are outputs of their own, and a step that exceeds a channel is said."""

import numpy as np
import pytest

from qdebug.compare.result.finding import FindingKind, FindingRole, Status
from qdebug.compare.result.limits import Limits
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, TensorInfo
from qdebug.numerics.affine import dequantize, quantize
from qdebug.session import DiffSession

RNG = np.random.default_rng(5)
BOXES = RNG.normal(size=(1, 4, 50)) * 100
SCORES = RNG.uniform(0, 0.9, size=(1, 6, 50))
FINE = QuantParams(dtype="uint8", scale=1 / 255, zero_point=0)
WIDE = QuantParams(dtype="uint8", scale=3.5, zero_point=110)
MIDDLE = QuantParams(dtype="int16", scale=0.4, zero_point=0)


def detector(quant=None, *, after="", turned=False, order=("b", "s")):
    """Return a run that joins boxes and scores, both recorded, and reshapes or turns the result."""
    parts = {"b": BOXES, "s": SCORES}
    coded = {"b": WIDE, "s": FINE}
    axis = 1
    joined = np.concatenate([parts[name] for name in order], axis)
    values = {name: value.astype(np.float32) for name, value in parts.items()}
    if quant is not None:
        values = {name: quantize(value, coded[name]) for name, value in parts.items()}
        joined = quantize(
            np.concatenate([dequantize(values[name], coded[name]) for name in order], axis).astype(np.float64), quant
        )
    nodes = [Node(name="cat", op="Concat", inputs=order, outputs=("y",), attrs={"axis": axis})]
    values["y"], out = joined.astype(np.float32) if quant is None else joined, "y"
    if after:
        perm = (0, 2, 1) if turned else (0, 1, 2)
        nodes.append(Node(name="last", op="Transpose", inputs=("y",), outputs=("z",), attrs={"perm": perm}))
        values["z"], out = values["y"].transpose(perm), "z"
    infos = [TensorInfo(name=name, shape=value.shape) for name, value in values.items()]
    if quant is not None:
        quants = {"b": WIDE, "s": FINE, "y": quant, "z": quant}
        infos = [TensorInfo(name=each.name, shape=each.shape, quant=quants[each.name]) for each in infos]
    graph = Graph(nodes, tensors=infos, inputs=("b", "s"), outputs=(out,), opset={"": 17})
    return MemoryRecording.single(graph, values)


def result_of(quant, limits=None, **kind):
    return DiffSession(detector(**kind), detector(quant, **kind), limits=limits or Limits()).result()


@pytest.mark.parametrize("kind", [{}, {"after": "Transpose", "turned": True}])
def test_scores_that_the_step_of_the_boxes_rounds_to_zero_are_named(kind):
    result = result_of(WIDE, **kind)
    output = result.nodes[-1]
    assert output.metrics.sqnr_db > 30  # the boxes are all that the whole tensor shows
    assert (result.status, result.exit_code) == (Status.ACCUMULATED, 1)
    assert result.verdict.short == (output.tensor,), "by a part of it, though the whole is not"
    (found,) = (each for each in output.findings if each.role is FindingRole.OUTPUT)
    assert (found.kind, found.evidence, found.unit) == (FindingKind.DEAD_ZONE, "s", "dB")
    assert found.amount == pytest.approx(0, abs=1e-6)
    axis = 2 if kind else 1
    assert f"part 's' (indices 4..9 along axis {axis}) is all zero; one LSB of 'y' is 3.5" in result.verdict.sentence
    (first, *_) = result.verdict.contributors
    assert (first.node, first.how) == ("cat", "exact")
    assert first.sqnr_db == pytest.approx(0, abs=0.2)


def test_a_part_that_is_coarse_but_not_lost_is_named_with_its_sqnr():
    result = result_of(MIDDLE)
    (found,) = (each for each in result.nodes[-1].findings if each.role is FindingRole.OUTPUT)
    assert found.kind is FindingKind.ERROR
    assert 0 < found.amount < 20
    assert "has an SQNR of" in found.sentence
    assert result.status is Status.ACCUMULATED


def test_the_limit_of_outputs_holds_for_parts():
    level = next(f.amount for f in result_of(MIDDLE).nodes[-1].findings if f.role is FindingRole.OUTPUT)
    assert result_of(MIDDLE, Limits(min_output_sqnr=level - 1)).status is Status.WITHIN
    assert result_of(MIDDLE, Limits(min_sqnr=0.0)).status is Status.WITHIN  # the user's limits alone judge
    assert result_of(MIDDLE, Limits(min_sqnr=0.0, min_output_sqnr=level + 1)).status is Status.ACCUMULATED


def test_parts_of_fine_steps_are_within():
    fine = QuantParams(dtype="int32", scale=1e-4, zero_point=0)
    assert result_of(fine).status is Status.WITHIN


def test_channels_that_the_step_exceeds_are_noted_where_they_are_lost():
    result = result_of(WIDE, after="Transpose")
    cat, last = result.nodes[-2:]
    (found,) = (each for each in cat.findings if each.kind is FindingKind.DEAD_ZONE and each.unit != "dB")
    assert (found.role, found.amount, found.unit) == (FindingRole.NOTE, 6.0, "of 10 channels")
    assert found.sentence.startswith(
        "channels 4..9 are rounded to zero entirely; the largest magnitude there is 0.898, "
    )
    assert not [each for each in last.findings if each.role is FindingRole.NOTE]  # they came in as zeros
