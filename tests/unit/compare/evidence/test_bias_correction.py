"""A bias that a quantizer corrected by the mean error of its weights is a remark; any other bias is a fault."""

from __future__ import annotations

import numpy as np
import pytest

import qdebug

RNG = np.random.default_rng(6)
X = np.abs(RNG.normal(size=(40, 24))).astype(np.float32)
W, B = RNG.normal(size=(24, 8)).astype(np.float32), RNG.normal(size=8).astype(np.float32)
COARSE = (np.rint(W * 4) / 4).astype(np.float32)
MEAN_ERROR = (X @ COARSE - X @ W).mean(axis=0)


def run(weight, bias):
    with qdebug.Recorder(None, backend="chip") as rec:
        rec.constant("w", weight)
        rec.constant("b", bias.astype(np.float32))
        rec.put("x", X)
        y = (X @ weight + bias).astype(np.float32)
        rec.put("y", y, node="fc", op="Gemm", inputs=("x", "w", "b"))
        rec.outputs("y")
    return rec.recording


def findings(bias):
    result = qdebug.diff(run(W, B), run(COARSE, bias), limits=qdebug.Limits())
    return [finding for finding in result["fc"].findings if finding.kind == "bias"]


def test_a_corrected_bias_decides_nothing():
    (finding,) = findings(B - MEAN_ERROR)
    assert finding.role == "note"
    assert "it compensates for the mean error" in finding.sentence


@pytest.mark.parametrize("wrong", [B + MEAN_ERROR, 2 * B, -B, np.roll(B, 1)])
def test_another_bias_is_a_fault(wrong):
    assert all(finding.role != "note" for finding in findings(wrong))
    plain = qdebug.diff(run(W, B), run(W, wrong))["fc"]
    assert [finding.kind for finding in plain.findings if finding.role == "difference"] == ["bias"]
