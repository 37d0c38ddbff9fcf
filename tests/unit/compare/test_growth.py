"""Rounding errors that add up at an output, or cancel as independent ones do."""

import numpy as np
import pytest

from qdebug.compare.growth import fails_by_growth
from qdebug.compare.result.finding import Status
from qdebug.compare.result.limits import Limits
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.model.thresholds.explanation import ONE_SIDED_MIN_MEAN
from qdebug.numerics.float_rounding import round_float, unit_in_last_place
from qdebug.numerics.short_formats import SHORT_FORMATS
from qdebug.session import DiffSession

BFLOAT16 = next(short for short in SHORT_FORMATS if short.name == "bfloat16")
LAYERS, WIDTH = 400, 700
BIAS = 0.65 * ONE_SIDED_MIN_MEAN


def chain(*, bias=0.0, rounded=True):
    """Return a run of a long chain of additions.

    Args:
        bias: Share of the sums that are one unit in the last place too small.
        rounded: Whether results are rounded to bfloat16.
    """
    weights, noise = np.random.default_rng(0), np.random.default_rng(1)
    start = weights.uniform(1.2, 1.8, (1, WIDTH)) * 2.0 ** weights.integers(-8, 8, WIDTH)
    values, steps, nodes = {"h0": start.astype(np.float32)}, {}, []
    for at in range(LAYERS):
        step = steps[f"s{at}"] = (start[0] * weights.uniform(-0.01, 0.01, WIDTH)).astype(np.float32)
        total = values[f"h{at}"] + step
        if rounded:
            total = round_float(total.astype(np.float64), BFLOAT16, "even")
            total = total - unit_in_last_place(total, BFLOAT16) * (noise.random(total.shape) < bias)
        values[f"h{at + 1}"] = total.astype(np.float32)
        nodes.append(Node(name=f"add{at}", op="Add", inputs=(f"h{at}", f"s{at}"), outputs=(f"h{at + 1}",)))
    tensors = [TensorInfo(name=name, role=Role.CONSTANT) for name in steps]
    graph = Graph(nodes, tensors=tensors, inputs=("h0",), outputs=(f"h{LAYERS}",))
    return MemoryRecording.single(graph, values | steps)


@pytest.fixture(scope="module")
def reference():
    return chain(rounded=False)


@pytest.fixture(scope="module")
def biased():
    return chain(bias=BIAS)


def test_an_output_fails_by_errors_of_one_sign_that_are_too_small_in_each_node(reference, biased):
    result = DiffSession(reference, biased).result()
    growth = result.verdict.growth
    assert not any(node.status is Status.DIVERGED for node in result.nodes)
    assert (growth.op, len(growth.nodes)) == ("Add", LAYERS)
    assert 3 < growth.ratio < LAYERS**0.5
    assert (result.status, fails_by_growth(growth)) == (Status.ACCUMULATED, True)
    fault = result.diagnosis[0]
    assert (fault.op, len(fault.nodes)) == ("Add", LAYERS)
    assert fault.share[f"h{LAYERS}"] == pytest.approx(1, abs=0.2)


def test_independent_errors_do_not_add_up(reference):
    result = DiffSession(reference, chain()).result()
    growth = result.verdict.growth
    assert growth.op is None
    assert growth.ratio == pytest.approx(1, abs=0.5)
    assert growth.sqnr_db == pytest.approx(growth.ideal_db, abs=3)
    assert result.status is Status.WITHIN


def test_limits_of_the_user_judge_alone(reference, biased):
    limits = Limits(min_sqnr=10.0)
    assert DiffSession(reference, biased, limits=limits).result().status is Status.WITHIN


def test_a_pair_without_short_formats_has_no_growth(reference):
    assert DiffSession(reference, reference).result().verdict.growth is None
