"""Every quantized node of whole nets on ONNX Runtime is reproduced bit for bit; so is the run of the whole net."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path

import numpy as np
import pytest

from qdebug.compare.explaining.explanation import ExplainStatus
from qdebug.running.explain_file import arithmetic_text, explain
from qdebug.running.record import record_run
from qdebug.session import open_recording

pytest.importorskip("onnxruntime")

TESTS = Path(__file__).resolve().parents[2]
DIGITS = TESTS.parent / "samples" / "digits"
FORMS = ("qdq", "qoperator")
ENOUGH = 0.98


def models():
    spec = importlib.util.spec_from_file_location("qdebug_tests_models", TESTS / "backends" / "models.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def digits(tmp_path, form, opt, samples=3):
    with np.load(DIGITS / "digits_test.npz") as data:
        feeds = {"x": data["x"][:samples, None]}
    out = tmp_path / "ort.h5"
    record_run(
        DIGITS / f"digits.{form}.onnx",
        backend="onnxruntime",
        options={"opt": opt},
        inputs=feeds,
        samples=samples,
        out=out,
    )
    return out, feeds, samples


def real(tmp_path, name, form, opt):
    nets = models()
    feeds = {"x": nets.crops(1, width=192 if name == "cls" else 320)}
    out = tmp_path / "ort.h5"
    record_run(nets.quantized(name, form), backend="onnxruntime", options={"opt": opt}, inputs=feeds, out=out)
    return out, feeds, None


def check(path):
    """Explain a recording: at least 98 % of what computes on codes, and everything else accounted for."""
    found = explain(path)
    explained, left = found.of(ExplainStatus.EXPLAINED), found.of(ExplainStatus.UNEXPLAINED)
    print(*(f"{node.node} ({node.op}): {node.reason} {node.residual}" for node in left), sep="\n")
    assert len(explained) >= ENOUGH * (len(explained) + len([node for node in left if node.kind is not None]))
    assert not found.of(ExplainStatus.NO_KERNEL)
    assert not found.of(ExplainStatus.NO_INPUT)
    assert all(node.match == 1.0 and node.tried for node in explained)
    return found


def twin(tmp_path, path, feeds, samples, found):
    """Run the same net in the interpreter by the arithmetic that was found; list the tensors that differ."""
    file = tmp_path / "found.toml"
    file.write_text(arithmetic_text(found), encoding="utf-8")
    out = tmp_path / "twin.h5"
    record_run(path, backend="interpreter", options={"arithmetic": str(file)}, inputs=feeds, samples=samples, out=out)
    ours, theirs = open_recording(out), open_recording(path)
    # Where the arithmetic computes a group as one, what it dequantized in between does not exist.
    absent = {node.op for node in found.of(ExplainStatus.EXPLAINED) if not ours.has(node.tensor)}
    assert absent <= {"DequantizeLinear"}
    floats = {node.tensor for node in found.of(ExplainStatus.IN_BAND) if not node.band.exact}
    return {
        node.tensor: node.op
        for node in found.of(ExplainStatus.EXPLAINED)
        for sample in range(theirs.samples)
        if node.tensor not in floats
        and ours.has(node.tensor)
        and not np.array_equal(ours.load(node.tensor, sample), theirs.load(node.tensor, sample), equal_nan=False)
    }


FORMS = ("qdq.per_channel", "qdq.per_tensor", "qoperator.per_channel", "qoperator.per_tensor")
QUICK = {(FORMS[0], "all"), (FORMS[1], "none"), (FORMS[2], "none"), (FORMS[3], "all")}


@pytest.mark.parametrize(
    ("form", "opt"),
    [
        case if case in QUICK else pytest.param(*case, marks=pytest.mark.slow)
        for case in itertools.product(FORMS, ("none", "extended", "all"))
    ],
)
def test_the_digits_net_is_explained(tmp_path, form, opt, mlas):
    path, *_ = digits(tmp_path, form, opt)
    found = check(path)
    assert not found.of(ExplainStatus.UNEXPLAINED)
    assert len(found.of(ExplainStatus.EXPLAINED)) >= 8
    conv = [node for node in found.nodes if node.op == "QLinearConv"]
    if opt != "none":
        assert conv
    named = [{preset.name for preset in node.presets} for node in conv]
    assert all(names & {"ort-mlas", mlas} for names in named)  # depthwise ones never saturate


@pytest.mark.parametrize("form", ["qdq.per_channel", "qoperator.per_tensor"])
def test_the_digits_net_runs_the_same_in_the_interpreter(tmp_path, form):
    path, feeds, samples = digits(tmp_path, form, "all")
    assert twin(tmp_path, path, feeds, samples, explain(path)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("opt", ["extended", "all"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["cls", "rec"])
def test_real_nets_are_explained(tmp_path, name, form, opt):
    path, *_ = real(tmp_path, name, form, opt)
    found = check(path)
    assert len(found.of(ExplainStatus.EXPLAINED)) > 150
    convs = [node for node in found.nodes if node.op == "QLinearConv"]
    assert len(convs) == {"cls": 53, "rec": 38}[name]
    assert all(node.status is ExplainStatus.EXPLAINED for node in convs)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_real_net_runs_the_same_in_the_interpreter(tmp_path, form):
    path, feeds, samples = real(tmp_path, "cls", form, "all")
    found = explain(path)
    differing = twin(tmp_path, path, feeds, samples, found)
    # A float node within its band gives other roundings, which travel on: only what it feeds may differ.
    loose = {node.tensor for node in found.of(ExplainStatus.IN_BAND) if not node.band.exact}
    assert set(differing) <= downstream(open_recording(path).graph, loose)


def downstream(graph, tensors):
    """Return what is computed from some tensors, through any number of nodes."""
    reached = set(tensors)
    for node in graph.nodes:
        if reached & set(node.inputs):
            reached |= set(node.outputs)
    return reached
