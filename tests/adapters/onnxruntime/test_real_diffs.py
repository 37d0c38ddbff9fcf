"""Healthy real nets compared with themselves in other forms: everything has its partner, and nothing is blamed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import qdebug
from qdebug.analysis.alignment import Kind
from qdebug.analysis.result import Status
from qdebug.workflow.record import record_run

pytest.importorskip("onnxruntime")

DIGITS = Path(__file__).resolve().parents[3] / "samples" / "digits"
FORMS = ("qdq.per_tensor", "qdq.per_channel", "qoperator.per_tensor", "qoperator.per_channel")


def recorded(folder: Path, model: Path, feed: dict, level: str) -> Path:
    out = folder / f"{model.stem}.{level}.h5"
    if not out.exists():
        count = len(next(iter(feed.values())))
        record_run(model, backend="onnxruntime", options={"opt": level}, inputs=feed, samples=count, out=out)
    return out


def check_healthy(reference: Path, backend: Path) -> None:
    """Every activation of the backend is compared and within its limit; nothing of either side is lost."""
    result = qdebug.diff(reference, backend)
    recording = qdebug.open_recording(backend)
    graph = recording.graph
    free = [name for node in graph.nodes for name in node.outputs if name and not graph.is_constant(name)]
    compared = {node.tensor for node in result.nodes if node.status is not Status.INCOMPARABLE}
    lost = [entry for entry in result.coverage.unmatched if entry.kind is Kind.LOST]
    assert lost == []
    assert result.status in (Status.WITHIN, Status.IDENTICAL), result.verdict.sentence
    assert len(compared & set(free)) >= 0.95 * len(free)
    assert result.exit_code == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("recordings")


@pytest.mark.parametrize("level", ["none", "extended", "all"])
@pytest.mark.parametrize("form", FORMS)
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
    check_healthy(reference, recorded(folder, path, feed, level))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_the_text_recognition_net(folder, nets, form):
    feed = {"x": nets.crops(1)}
    reference = recorded(folder, nets.net("rec"), feed, "none")
    check_healthy(reference, recorded(folder, nets.quantized("rec", form), feed, "extended"))


@pytest.mark.slow
@pytest.mark.parametrize("level", ["extended", "all"])
def test_the_pitch_net(folder, nets, level):
    path = nets.net("swift-f0")
    feed = {"audio": nets.sound(1), "fmin": np.full(1, 46.875, np.float32), "fmax": np.full(1, 2093.75, np.float32)}
    reference = recorded(folder, path, feed, "none")
    check_healthy(reference, recorded(folder, path, feed, level))
