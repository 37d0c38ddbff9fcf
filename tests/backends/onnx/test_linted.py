"""Planted rewrites are found with a witness that ONNX Runtime confirms; right ones and untouched nets are clean."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from sweeps import sweep

from qdebug.cli.main import main
from qdebug.lint.fix import fix_findings
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


@pytest.mark.parametrize("name", sweep([name for name, plant in rewrites.PLANTS.items() if plant[0] and plant[2]], 5))
def test_what_a_rewrite_lost_is_put_back_and_the_runtime_agrees(name, tmp_path):
    import onnxruntime

    report, before, after = rewrites.linted(rewrites.PLANTS[name], tmp_path)
    fixed = tmp_path / "fixed.onnx"
    answer = fix_findings(report, after, fixed, before=open_model(before), inputs=None)
    assert (len(answer.fixes), dict(answer.unfixed), answer.exit_code) == (len(report.findings), {}, 0)
    assert not lint(open_model(before), open_model(fixed)).findings
    shown = report.findings[0].witness
    x = (
        shown.values[0].astype(np.float32)
        if shown.leaves == ("x",)
        else rewrites.first_input(open_model(before), None)["x"]
    )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    made = [onnxruntime.InferenceSession(str(path), options).run(None, {"x": x})[0] for path in (before, fixed)]
    assert np.array_equal(made[0], made[1].reshape(made[0].shape))


def test_a_single_model_gets_the_rescale_that_it_lacks(tmp_path):
    report, model, _ = rewrites.linted(rewrites.PLANTS["one model: max pool"], tmp_path)
    fixed = tmp_path / "fixed.onnx"
    (fix,) = fix_findings(report, model, fixed, before=None, inputs=None).fixes
    assert fix.before != fix.after == pytest.approx(report.findings[0].witness.before)
    assert not lint(open_model(fixed)).findings


def test_what_only_another_quantization_repairs_is_not_written(tmp_path):
    report, model, _ = rewrites.linted(rewrites.PLANTS["one model: bias"], tmp_path)
    fixed = tmp_path / "fixed.onnx"
    answer = fix_findings(report, model, fixed, before=None, inputs=None)
    assert ("conv" in answer.unfixed, answer.exit_code, fixed.exists()) == (True, 1, False)


def test_the_model_is_never_overwritten(tmp_path, capsys):
    _, before, after = rewrites.linted(rewrites.PLANTS["merged rescales"], tmp_path)
    content = after.read_bytes()
    assert main(["lint", str(before), str(after), "--fix", str(after), "--force"]) == 2
    assert after.read_bytes() == content
    assert main(["lint", str(before), str(after), "--fix", str(tmp_path / "fixed.onnx")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("FIXED  1 rewrite changes what the network computes, but not in the written copy")
    assert "fixed: 1 of 1 finding" in out


def test_one_bias_scale_for_all_channels_is_found(tmp_path):
    """Filters have a scale each; an integer kernel adds codes of the bias to the sums of each channel."""

    def form(path):
        net = rewrites.Net(1, 2, 6, 6)
        scales = np.array([0.01, 0.02, 0.005, 0.04], np.float32)
        codes = np.random.default_rng(0).integers(-127, 128, (4, 2, 3, 3)).astype(np.int8)
        weight = net.op("DequantizeLinear", codes, scales, np.zeros(4, np.int8), axis=0, name="weight")
        bias = net.dq(np.array([400, -900, 70, 30], np.int32), 0.0005, name="bias")
        return net.save(net.qdq(net.op("Conv", net.qdq("x", 0.05), weight, bias, name="conv"), 0.1), path)

    report = lint(open_model(form(tmp_path / "bias.onnx")))
    (finding,) = report.findings
    assert (finding.kind, dict(report.undecided)) == ("bias", {})
    assert finding.detail.startswith("it has one scale for all channels")
    channel = finding.witness.index[1]
    off = np.array([400, -900, 70, 30])[channel] * (0.05 * np.array([0.01, 0.02, 0.005, 0.04])[channel] - 0.0005)
    assert finding.witness.after - finding.witness.before == pytest.approx(off, rel=1e-4)
