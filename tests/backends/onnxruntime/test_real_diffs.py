"""Healthy real nets compared with themselves in other forms: everything has its partner, and nothing is blamed."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from sweeps import sweep

import qdebug
from qdebug.compare.align.pairs import UnmatchedKind
from qdebug.compare.result.finding import FindingRole
from qdebug.compare.result.result import Status
from qdebug.numerics.affine import dequantize
from qdebug.running.record import record_run

pytest.importorskip("onnxruntime")

DIGITS = Path(__file__).resolve().parents[3] / "samples" / "digits"
FORMS = ("qdq.per_tensor", "qdq.per_channel", "qoperator.per_tensor", "qoperator.per_channel")


def recorded(folder: Path, model: Path, feed: dict, level: str) -> Path:
    out = folder / f"{model.stem}.{level}.h5"
    if not out.exists():
        count = len(next(iter(feed.values())))
        record_run(model, backend="onnxruntime", options={"opt": level}, inputs=feed, samples=count, out=out)
    return out


def check_healthy(reference: Path, backend: Path, *, accumulates: bool = False) -> None:
    """Every activation of the backend is compared and within its limit; nothing of either side is lost.

    Args:
        reference: Recording of the reference.
        backend: Recording of the backend.
        accumulates: Whether so little is left of an output that the comparison fails all the same, with its reasons.
    """
    result = qdebug.diff(reference, backend)
    recording = qdebug.open_recording(backend)
    graph = recording.graph
    free = [name for node in graph.nodes for name in node.outputs if name and not graph.is_constant(name)]
    compared = {node.tensor for node in result.nodes if node.status is not Status.INCOMPARABLE}
    lost = [entry for entry in result.coverage.unmatched if entry.kind is UnmatchedKind.LOST]
    assert lost == []
    assert result.first_divergence is None, result.verdict.sentence
    assert len(compared & set(free)) >= 0.95 * len(free)
    assert result.status in ((Status.ACCUMULATED,) if accumulates else (Status.WITHIN, Status.IDENTICAL))
    assert result.exit_code == int(accumulates)
    if accumulates:
        most = result.verdict.contributors[0]
        assert (most.how, result.nodes[-1].metrics.sqnr_db < 20) == ("exact", True)
        assert most.sqnr_db < 30, "one node that matters is named, not the sum of hundreds"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("recordings")


@pytest.mark.parametrize(("form", "level"), sweep(itertools.product(FORMS, ("none", "extended", "all")), 5))
def test_the_digits_net_and_its_int8_forms(folder, digits, form, level):
    feed = {"x": digits[:2, None]}
    reference = recorded(folder, DIGITS / "digits.onnx", feed, "none")
    check_healthy(reference, recorded(folder, DIGITS / f"digits.{form}.onnx", feed, level))


@pytest.mark.parametrize("level", ["extended", "all"])
def test_the_digits_net_and_its_optimized_self(folder, digits, level):
    feed = {"x": digits[:2, None]}
    reference = recorded(folder, DIGITS / "digits.onnx", feed, "none")
    check_healthy(reference, recorded(folder, DIGITS / "digits.onnx", feed, level))


@pytest.mark.slow
@pytest.mark.parametrize("level", ["extended", "all"])
@pytest.mark.parametrize("form", ["float", "qdq", "qoperator"])
def test_the_text_direction_net(folder, nets, form, level):
    feed = {"x": nets.crops(2)}
    reference = recorded(folder, nets.net("cls"), feed, "none")
    path = nets.net("cls") if form == "float" else nets.quantized("cls", form)
    check_healthy(reference, recorded(folder, path, feed, level), accumulates=form != "float")


def left_by_rounding(weight: np.ndarray, bias: np.ndarray, data: np.ndarray) -> float:
    """Return the SQNR in dB of a pointwise convolution whose weight is rounded to 255 codes of one scale."""
    scale = np.abs(weight).max() / 127
    real, rounded = (
        np.einsum("oi,nihw->nohw", w[:, :, 0, 0].astype(np.float64), data) + bias[:, None, None]
        for w in (weight, np.rint(weight / scale) * scale)
    )
    return float(10 * np.log10(np.sum(real**2) / np.sum((real - rounded) ** 2)))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_the_text_recognition_net_is_ruined_by_rounding_two_weights_alone(folder, nets, form):
    """Of 480 filters under one scale, most have far smaller weights than the largest."""
    feed = {"x": nets.crops(1)}
    paths = [recorded(folder, nets.net("rec"), feed, "none")]
    paths.append(recorded(folder, nets.quantized("rec", form), feed, "extended"))
    result, (reference, backend) = qdebug.diff(*paths), map(qdebug.open_recording, paths)
    assert [entry for entry in result.coverage.unmatched if entry.kind is UnmatchedKind.LOST] == []
    assert all(entry.status in (Status.WITHIN, Status.IDENTICAL) for entry in result.nodes)
    ruined = [entry for entry in result.nodes if any(each.role is FindingRole.COST for each in entry.findings)]
    assert len(ruined) == 2
    for entry in ruined:
        conv, coded = reference.graph.producer(entry.reference_tensor), backend.graph.producer(entry.tensor)
        data = dequantize(backend.load(coded.inputs[0]), backend.graph.tensors[coded.inputs[0]].quant)
        left = left_by_rounding(reference.load(conv.inputs[1]), reference.load(conv.inputs[2]), data)
        assert entry.findings[0].amount == pytest.approx(left, abs=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["extended", "all"])
def test_the_pitch_net(folder, nets, level):
    path = nets.net("swift-f0")
    feed = {"audio": nets.sound(1), "fmin": np.full(1, 46.875, np.float32), "fmax": np.full(1, 2093.75, np.float32)}
    reference = recorded(folder, path, feed, "none")
    check_healthy(reference, recorded(folder, path, feed, level))
