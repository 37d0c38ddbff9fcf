"""Float roundings: a planted placement is named, one that a second run refutes is not."""

import numpy as np
import pytest

from qdebug.arithmetic.floats.rounded import RoundedNodes
from qdebug.arithmetic.floats.search import parse_placement
from qdebug.errors import BackendError, UsageError
from qdebug.model.dtypes import logical_dtype
from qdebug.probe.roundings import probe_rounding
from qdebug.replay import run_node


def runner(*placements, scale=1.0):
    """Return a backend that rounds in one placement after another, and the runs that it was asked for."""
    runs = []

    def run(model):
        placement = parse_placement(placements[min(len(runs), len(placements) - 1)])
        runs.append(model)
        arrays = {**model.feed, **model.constants}
        results = {}
        for node in model.graph.nodes:
            rounded = RoundedNodes(model.graph, {f"{node.op}:{model.kind}": placement})
            outputs = rounded(node, {**arrays, **results}, dict)
            results |= {name: (array * np.array(scale, array.dtype)) for name, array in outputs.items()}
        return results

    return run, runs


@pytest.mark.parametrize(
    ("op", "short", "placement"),
    [
        ("Add", "float16", "result=zero"),
        ("Sub", "bfloat16", "result=away"),
        ("Mul", "bfloat16", "result=even;flush"),
        ("MatMul", "float16", "result=even"),
        ("Gemm", "bfloat16", "the sum before the bias=even;result=even"),
        ("Softmax", "float16", "the exponentials=even;result=even"),
        ("LayerNormalization", "bfloat16", "the inverse root=even;result=even"),
    ],
)
def test_a_planted_placement_is_named(op, short, placement):
    run, runs = runner(placement)
    entry = probe_rounding(op, short, run)
    assert (entry.status, entry.placement, entry.confirmed) == ("explained", placement, True)
    assert entry.words.startswith("results ")
    assert len(runs) == 2
    assert not np.array_equal(runs[0].feed["x0"], runs[1].feed["x0"])
    assert entry.elements >= 2 * 64
    assert entry.reason is None


def test_a_placement_that_a_second_run_refutes_is_not_named():
    run, _ = runner("result=zero", "result=even")
    entry = probe_rounding("Add", "float16", run)
    assert (entry.status, entry.placement, entry.words, entry.confirmed) == ("unexplained", None, None, False)
    assert entry.reason == "result=zero reproduces the first run, but not a second one on other numbers"


def test_a_wrong_result_is_unexplained():
    run, _ = runner("result=even", scale=1.25)
    entry = probe_rounding("Add", "float16", run)
    assert entry.status == "unexplained"
    assert entry.placement is None
    assert entry.reason


def test_a_function_within_its_bound_is_in_band():
    def run(model):
        (x,) = model.feed.values()
        sigmoid = 1 / (1 + np.exp(-x.astype(np.float64)))
        return {"y0": (sigmoid * (1 + 1e-5)).astype(x.dtype)}

    entry = probe_rounding("Sigmoid", "float16", run)
    assert (entry.status, entry.placement, entry.confirmed) == ("in_band", None, False)


def test_a_result_with_fewer_bits_is_remarked():
    def run(model):
        arrays = {name: array.astype(np.float32) for name, array in {**model.feed, **model.constants}.items()}
        product = run_node(model.graph.nodes[0], arrays, {})["y0"]
        return {"y0": product.astype(logical_dtype("bfloat16")).astype(np.float16)}

    entry = probe_rounding("MatMul", "float16", run)
    assert entry.placement is None
    assert entry.reason == "all results are exactly representable in bfloat16"


def test_a_backend_that_refuses_is_quoted_in_one_line():
    def run(_):
        raise BackendError("no kernel for Add\nat line 7 of a long trace")

    entry = probe_rounding("Add", "bfloat16", run)
    assert (entry.status, entry.reason) == ("not_run", "no kernel for Add")

    def verbose(_):
        raise BackendError("x" * 1000)

    assert len(probe_rounding("Add", "bfloat16", verbose).reason) <= 160


def test_a_wrong_option_is_an_error():
    def run(_):
        raise UsageError("no option 'speed'")

    with pytest.raises(UsageError, match="speed"):
        probe_rounding("Add", "float16", run)
