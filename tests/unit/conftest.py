"""Hand-made results for the tests of views and reports: no recording is needed to test how a result reads."""

from types import SimpleNamespace

import pytest

from qdebug.compare.align.pairs import Match, Side, Unmatched, UnmatchedKind
from qdebug.compare.result.result import (
    Coverage,
    NodeResult,
    OutputRanking,
    RunComparison,
    SampleResult,
    Status,
    Verdict,
)
from qdebug.model import Fidelity, QuantParams, RunInfo
from qdebug.numerics.stats import ErrorStats, Rails, WorstElement

BEYOND = {Status.DIVERGED, Status.NONFINITE}


def stats(**changed):
    known = {
        "count": 100,
        "max_abs": 0.5,
        "mean_abs": 0.1,
        "rmse": 0.2,
        "max_rel": 3.0,
        "zero_refs": 4,
        "rel_l2": 0.0316,
        "sqnr_db": 30.0,
        "cosine": 0.99951,
        "max_lsb": 5.0,
        "mismatches": 90,
        "nonfinite": 0,
        "matched_nonfinite": 0,
        "worst_index": (0, 3, 1),
        "worst_sample": 1,
        "reference_min": -1.0,
        "reference_max": 2.0,
        "backend_min": -1.1,
        "backend_max": 1.9,
    }
    return ErrorStats(**{**known, **changed})


def node(index=0, status=Status.WITHIN, **changed):
    known = {
        "node": f"conv{index}",
        "op": "QLinearConv",
        "tensor": f"conv{index}_q",
        "reference_tensor": f"conv{index}_out",
        "match": Match.QUANTIZATION,
        "match_reason": "codes of the same tensor",
        "reason": "SQNR 8 dB is below 20 dB" if status is Status.DIVERGED else None,
        "metrics": None if status is Status.INCOMPARABLE else stats(),
        "saturation": Rails(at_qmin=30, at_qmax=2, clipped_low=0, clipped_high=1, floor=28, total=100),
        "quant": QuantParams(dtype="int8", scale=0.05, zero_point=-3),
        "samples": (
            SampleResult(sample=0, max_abs=0.2, sqnr_db=35.0, status=Status.WITHIN),
            SampleResult(sample=1, max_abs=0.5, sqnr_db=25.0, status=status),
        ),
    }
    return NodeResult(index=index, status=status, **{**known, **changed})


def unmatched(tensor="bias", *, kind=UnmatchedKind.BENIGN, side=Side.BACKEND, reason="folded into its node"):
    return Unmatched(side=side, tensor=tensor, kind=kind, reason=reason)


def ranking(tensor="logits", **changed):
    known = {
        "entries": 10,
        "samples": 16,
        "unranked": 0,
        "top1_agreement": 0.875,
        "top5_agreement": 1.0,
        "tied": 0,
        "worst_rank": 3,
        "worst_sample": 4,
    }
    return OutputRanking(tensor=tensor, **{**known, **changed})


def result(nodes, *, left_out=(), status=None, sentence="One sentence.", **changed):
    first = next((entry for entry in nodes if entry.status in BEYOND), None)
    known = {
        "reference": RunInfo(backend="onnxruntime", model="net.onnx", taps="faithful", fidelity=Fidelity.BIT_EQUAL),
        "backend": RunInfo(backend="npu", model="net.int8.onnx", options={"opt": "all"}),
        "limits": {"source": "default", "min_sqnr": 20.0},
        "coverage": Coverage(
            compared=sum(entry.status is not Status.INCOMPARABLE for entry in nodes), unmatched=tuple(left_out)
        ),
    }
    verdict = Verdict(
        status=status or (first.status if first else Status.WITHIN),
        first_divergence=first.node if first else None,
        origin=None,
        sentence=sentence,
    )
    return RunComparison(verdict=verdict, nodes=tuple(nodes), **{**known, **changed})


def worst(**changed):
    known = {
        "index": (0, 3, 1),
        "sample": 1,
        "reference": 1.25,
        "backend": 0.75,
        "difference": -0.5,
        "lsb": -10.0,
        "reference_code": None,
        "backend_code": 12,
    }
    return WorstElement(**{**known, **changed})


@pytest.fixture(scope="session")
def made():
    """Give the makers above: made.node(3, Status.DIVERGED), made.result([...])."""
    return SimpleNamespace(stats=stats, node=node, unmatched=unmatched, ranking=ranking, result=result, worst=worst)
