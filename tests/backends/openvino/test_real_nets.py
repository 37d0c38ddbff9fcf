"""Real nets on OpenVINO: recorded without changing the outputs, and no healthy layer blamed (slow)."""

from __future__ import annotations

import numpy as np
import pytest

import qdebug
from qdebug.backends import load_reader
from qdebug.running.record import record_run

pytest.importorskip("openvino", reason="needs the extra openvino")
pytest.importorskip("onnxruntime", reason="needs the extra onnx")

pytestmark = pytest.mark.slow


def record(path, backend, inputs, out, *, samples=None, **options):
    summary = record_run(path, backend=backend, options=options, inputs=inputs, out=out, samples=samples)
    assert summary.fidelity == "bit_equal"
    assert not [why for why in summary.skipped.values() if not why.startswith("it is never made")]
    return out


@pytest.mark.parametrize("name", ["cls", "rec"])
def test_a_float_net_is_within_the_rounding_of_its_sums(tmp_path, nets, name):
    inputs = {"x": nets.crops(2)[:, None]}
    ref = record(nets.net(name), "onnxruntime", inputs, tmp_path / "ref.h5", samples=2, opt="none")
    ours = record(nets.net(name), "openvino", inputs, tmp_path / "ov.h5", samples=2, precision="f32")
    result = qdebug.diff(ref, ours)
    assert result.status in {"identical", "within"}
    assert not [each for each in result.coverage.unmatched if each.kind == "lost"]
    assert len(result.nodes) >= 60


@pytest.mark.parametrize("name", ["pitch", "faces"])
def test_a_litert_net_is_recorded(tmp_path, nets, name):
    path = nets.net(name)
    info = next(load_reader(path).graph.tensors[each] for each in load_reader(path).graph.inputs)
    rng = np.random.default_rng(0)
    feed = rng.standard_normal([extent or 1 for extent in info.shape]).astype(np.float32)
    out = record(path, "openvino", {info.name: feed}, tmp_path / "ov.h5", precision="f32")
    recording = qdebug.open_recording(out)
    assert len([name for name in recording.names if not recording.graph.is_constant(name)]) >= 20
