"""Planted rewrites are found with a witness that ONNX Runtime confirms; right ones and untouched nets are clean."""

import importlib.util
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from sweeps import sweep

from qdebug.lint.rewrites import lint, open_model

HERE = Path(__file__).resolve().parent


def _module():
    spec = importlib.util.spec_from_file_location("linted", HERE.parent / "linted.py")
    module = sys.modules["linted"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


rewrites = _module()


@pytest.mark.parametrize("name", sweep(rewrites.PLANTS, 7))
def test_a_plant_is_found_and_its_right_twin_is_not(name, tmp_path):
    kind = rewrites.PLANTS[name][0]
    report, before, after = rewrites.linted(rewrites.PLANTS[name], tmp_path)
    assert [finding.kind for finding in report.findings] == ([kind] if kind else [])
    assert not report.undecided
    if kind:
        shown = report.findings[0].witness
        assert abs(shown.before - shown.after) > shown.largest / 2
        assert rewrites.ort_differs(report, before, after) in ("yes", "-")


@pytest.mark.parametrize(
    "name", [pytest.param("digits.qdq.per_channel", marks=pytest.mark.slow), "digits.qoperator.per_tensor"]
)
def test_what_onnxruntime_makes_of_the_digits_net_is_clean(name, tmp_path):
    path = HERE.parents[2] / "samples" / "digits" / f"{name}.onnx"
    models = open_model(path), open_model(rewrites.optimized(path, tmp_path / "extended.onnx"))
    for pair in (models, models[::-1]):
        report = lint(*pair)
        assert (report.findings, dict(report.undecided)) == ((), {})
        assert report.parts > 9
