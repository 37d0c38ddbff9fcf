"""Planted bugs of kernels: nothing explains them, and the pattern of what is wrong leads to the cause."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest

from qdebug.arithmetic.evidence import residual_of
from qdebug.arithmetic.presets import preset
from qdebug.arithmetic.search import search
from qdebug.compare.explaining.explain import explain_recording
from qdebug.compare.explaining.explanation import ExplainStatus
from qdebug.model import MemoryRecording
from qdebug.replay.evaluate import compute
from qdebug.replay.variant import Variant, parse_variant
from qdebug.running.record import record_run
from qdebug.session import open_recording

ENOUGH = 0.8


@pytest.fixture(scope="session", params=["per_tensor", pytest.param("per_channel", marks=pytest.mark.slow)])
def digits_int8(request, tmp_path_factory, bench_module):
    """Record the int8 digits net on ONNX Runtime, on four digits."""
    out = tmp_path_factory.mktemp("planted") / "digits.h5"
    with np.load(bench_module.DIGITS / "digits_test.npz") as data:
        feeds = {"x": data["x"][:4, None]}
    model = bench_module.DIGITS / f"digits.qdq.{request.param}.onnx"
    record_run(model, backend="onnxruntime", inputs=feeds, samples=4, out=out)
    return open_recording(out)


def scores(planted, recording, every=1):
    """Plant every bug into every convolution that it can show in: how many are named rightly, by bug."""
    right, total, wrong = Counter(), Counter(), defaultdict(list)
    for bug in planted.BUGS:
        for source in planted.sources(recording, "conv")[::every]:
            altered = planted.plant(source, bug, Variant())
            if altered is None:
                continue
            total[bug.name] += 1
            finding = search(planted.find_unit(altered, source.node, source.tensor))
            if finding.matching:
                wrong[bug.name].append(f"{source.node.name}: explained by {finding.matching[0]}")
                continue
            found = residual_of(finding, Variant())
            if found.pattern in bug.patterns:
                right[bug.name] += 1
            else:
                wrong[bug.name].append(f"{source.node.name}: {found.pattern}: {found.detail}")
    return right, total, wrong


def check(right, total, wrong, classes):
    print(*(f"{name}: {right[name]} of {total[name]} {wrong[name]}" for name in total), sep="\n")
    assert len(total) >= classes
    assert right.total() >= ENOUGH * total.total()
    assert not [name for name in total if "explained" in str(wrong[name])]


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_bugs_in_the_digits_net_are_named(planted, digits_int8, every):
    check(*scores(planted, digits_int8, every), classes=10)


@pytest.mark.slow
def test_bugs_in_a_real_net_are_named(planted, real_recording):
    check(*scores(planted, real_recording("cls", "qdq", "all"), every=3), classes=13)


def test_a_mistake_that_reproduces_everything_is_said_to(planted, digits_int8):
    source = planted.sources(digits_int8, "conv")[0]
    bug = next(bug for bug in planted.BUGS if bug.name == "bias dropped")
    altered = planted.plant(source, bug, Variant())
    answer = next(node for node in explain_recording(altered).nodes if node.tensor == source.tensor)
    assert answer.status is ExplainStatus.UNEXPLAINED
    assert answer.residual.pattern == "constant_per_channel"
    assert "the bias is dropped (reproduces every element)" in answer.residual.to_dict()["likely"]


@pytest.mark.parametrize(
    "text", ["acc=pairsat16:hwc", "m=f64:d:xw/y", "m=f32:d:f(xw)/y", "m=q31:d:xw/y steps=mul,shr.up,zp,sat"]
)
def test_what_backends_do_on_purpose_is_no_bug(planted, digits_int8, text):
    """16-bit pairs of AVX2 (onnxruntime #6004), multipliers of other precision (tensorflow #23800): explained."""
    for source in planted.sources(digits_int8, "conv"):
        codes = {place: compute(source.unit(place), parse_variant(text)) for place in source.places}
        altered = planted.Altered(digits_int8, source.tensor, codes)
        finding = search(planted.find_unit(altered, source.node, source.tensor))
        assert finding.matching, source.node.name


def test_roundings_that_differ_by_node_are_no_bug(planted, digits_int8):
    """Backends round their operators differently on purpose (CMSIS-NN #214, LiteRT #7441): explained, not flagged."""
    graph = digits_int8.graph
    arrays = {
        (name, sample, 0): digits_int8.load(name, sample)
        for name in digits_int8.names
        for sample in range(digits_int8.samples)
        if digits_int8.has(name, sample) and (sample == 0 or not graph.is_constant(name))
    }
    names = ("tflite-reference", "ort-mlas", "tflite-opt-sse4", "glow-cpu")
    mixed = MemoryRecording(graph, arrays)
    for source, name in zip(planted.sources(digits_int8, "conv"), names, strict=True):
        for place in source.places:
            unit = planted.find_unit(mixed, source.node, source.tensor).unit(place)  # reads what the nodes before gave
            codes = compute(unit, preset(name).variant("conv"))
            arrays[(source.tensor, *place)] = codes.astype(arrays[(source.tensor, *place)].dtype)
        mixed = MemoryRecording(graph, arrays)
    told = {node.tensor: node for node in explain_recording(mixed).nodes}
    for source, name in zip(planted.sources(digits_int8, "conv"), names, strict=True):
        answer = told[source.tensor]
        assert answer.status is ExplainStatus.EXPLAINED
        finding = search(planted.find_unit(mixed, source.node, source.tensor))
        assert preset(name).variant("conv") in finding.matching
