"""Exported programs on ExecuTorch: what delegates compute inside, integer operators as they run (slow)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import qdebug
from qdebug.backends import load_backend
from qdebug.errors import UsageError
from qdebug.running.record import record_run

pytest.importorskip("executorch", reason="needs the extra executorch")

pytestmark = pytest.mark.slow

DIGITS = Path(__file__).resolve().parents[3] / "samples" / "digits"


def images(count):
    with np.load(DIGITS / "digits_test.npz") as archive:
        return archive["x"][:count, None]


@pytest.fixture(scope="module")
def recorded(digits, tmp_path_factory):
    """Record the digits net, float and int8, on both kinds of kernels: summary and recording of each."""
    folder, made = tmp_path_factory.mktemp("recorded"), {}
    for form, path in digits.items():
        for delegate in ("xnnpack", "portable"):
            out = folder / f"{form}.{delegate}.h5"
            options = {"delegate": delegate}
            inputs = {"input": images(8)}
            summary = record_run(path, backend="executorch", options=options, inputs=inputs, out=out, samples=8)
            made[form, delegate] = summary, qdebug.open_recording(out)
    return made


@pytest.mark.parametrize("delegate", ["xnnpack", "portable"])
@pytest.mark.parametrize("form", ["float", "int8"])
def test_every_tensor_is_recorded_or_listed(recorded, form, delegate):
    summary, recording = recorded[form, delegate]
    assert summary.fidelity == "bit_equal"
    assert set(recording.names) | set(summary.skipped) == set(recording.graph.tensors)
    assert len(summary.skipped) == (1 if (form, delegate) == ("int8", "xnnpack") else 0)
    ran = {node.op: node.placement for node in recording.graph.nodes}
    assert ran["aten.conv2d.default"] == ("XnnpackBackend" if delegate == "xnnpack" else "portable")
    assert set(ran.values()) <= {"XnnpackBackend", "portable", ""}


def test_integer_operators_are_described_as_they_run_and_explained(recorded):
    _, recording = recorded["int8", "xnnpack"]
    nodes = {node.name: node for node in recording.graph.nodes}
    first = nodes["conv2d"]
    assert first.origin == ("conv2d", "relu", "quantize_per_tensor_1")
    assert first.attrs["fused_activation_function"] == "RELU"
    assert [recording.graph.tensors[name].dtype for name in (*first.inputs, *first.outputs)] == [
        *("int8", "int8", "float32", "int8")
    ]
    explanation = qdebug.explain(recording)
    assert explanation.summary["unexplained"] == 0
    named = [node for node in explanation.nodes if node.op in {"aten.conv2d.default", "aten.linear.default"}]
    assert len(named) == 6
    assert all("xnnpack-fp32" in {match.name for match in node.presets} for node in named)


def test_what_is_not_recorded_has_the_right_reason(recorded):
    summary, _ = recorded["int8", "xnnpack"]
    assert "with their dimensions in the wrong order" in summary.skipped["dequantize_per_tensor_5"]


@pytest.mark.parametrize("pair", [("float", "xnnpack"), ("int8", "xnnpack"), ("int8", "portable")])
def test_each_is_compared_with_the_float_net_node_by_node(recorded, pair):
    result = qdebug.diff(recorded["float", "portable"][1], recorded[pair][1])
    assert result.status == "within"
    assert not [each for each in result.coverage.unmatched if each.kind == "lost"]
    assert result.coverage.compared >= 12


def test_a_wrong_weight_in_a_delegate_is_found(recorded, tmp_path):
    _, recording = recorded["int8", "xnnpack"]
    weight = next(node for node in recording.graph.nodes if node.name == "conv2d_1").inputs[1]
    with qdebug.Recorder(tmp_path / "bad.h5", backend="bad", graph=recording.graph) as recorder:
        for name in recording.names:
            array = recording.load(name)
            if recording.graph.is_constant(name):
                recorder.constant(name, -array if name == weight else array)
            else:
                recorder.put(name, array)
    explanation = qdebug.explain(tmp_path / "bad.h5")
    assert [node.node for node in explanation.nodes if node.status == "unexplained"] == ["conv2d_1"]


def test_a_model_is_quantized_lowered_and_recorded_from_python(tmp_path):
    import torch
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    from qdebug.backends.executorch import adapter

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)).eval()
    calls = [(torch.randn(2, 16),) for _ in range(3)]
    for dynamic in (False, True):
        config = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=dynamic)
        out = tmp_path / f"{dynamic}.h5"
        assert adapter.record(net, calls, out, quantizer=XNNPACKQuantizer().set_global(config)) == "bit_equal"
        recording = qdebug.open_recording(out)
        assert recording.samples == 3
        if dynamic:
            assert "chooses the scale inside" in recording.info.skipped["quantize_per_tensor"]
        else:
            assert qdebug.explain(recording).summary["unexplained"] == 0


def test_what_the_delegate_does_not_take_is_named_and_a_state_is_fed_on(tmp_path):
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(1, 4))

        def forward(self, x):
            self.total.add_(torch.relu(x))
            return torch.cumsum(self.total, 1)

    path = tmp_path / "net.pt2"
    x = np.array([[[1, -2, 3, 4]], [[5, 6, -7, 8]]], np.float32)
    torch.export.save(torch.export.export(Net(), (torch.tensor(x[0]),), strict=True), path)
    summary = record_run(path, backend="executorch", inputs={"x": x}, out=tmp_path / "x.h5", steps=2)
    recording = qdebug.open_recording(tmp_path / "x.h5")
    assert summary.fidelity == "bit_equal"
    ran = {node.name: node.placement for node in recording.graph.nodes}
    assert ran == {"relu": "XnnpackBackend", "add": "XnnpackBackend", "cumsum": "portable"}
    assert np.array_equal(recording.load("total", 0, 0), np.zeros((1, 4)))
    assert np.array_equal(recording.load("total", 0, 1), np.maximum(x[0], 0))
    (out,) = recording.graph.outputs
    assert np.array_equal(recording.load(out, 0, 1), np.cumsum(np.maximum(x, 0).sum(axis=0), axis=1))
    twice = {"inputs": {"x": np.stack([x, x])}, "samples": 2, "steps": 2, "taps": "outputs"}
    assert record_run(path, backend="executorch", out=tmp_path / "twice.h5", **twice).fidelity == "bit_equal"


def test_extents_that_vary_are_those_of_the_run(tmp_path):
    import torch

    class Net(torch.nn.Module):
        def forward(self, x):
            return torch.relu(x) + 1

    rows = torch.export.Dim("rows", max=8)
    made = torch.export.export(Net(), (torch.zeros(4, 3),), dynamic_shapes=({0: rows},), strict=True)
    torch.export.save(made, tmp_path / "net.pt2")
    options = {"delegate": "portable"}
    x = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
    record_run(tmp_path / "net.pt2", backend="executorch", options=options, inputs={"x": x}, out=tmp_path / "x.h5")
    recording = qdebug.open_recording(tmp_path / "x.h5")
    assert recording.graph.tensors["relu"].shape == (2, 3)
    assert recording.graph.producer("add").inputs == ("relu", "add.other")
    assert np.array_equal(recording.load("relu"), np.maximum(x, 0))


def test_a_damaged_program_is_refused(digits, tmp_path):
    path = tmp_path / "net.pt2"
    path.write_bytes(digits["float"].read_bytes()[:2000])
    with pytest.raises(UsageError, match="cannot be read as an exported program"):
        load_backend("executorch").open(path, options={})
