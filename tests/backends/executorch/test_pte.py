"""ExecuTorch's program files: their instructions as a graph, and what ETDump has of a run."""

from __future__ import annotations

import numpy as np
import pytest

import qdebug
from qdebug.backends import load_backend
from qdebug.errors import BackendError, InputError, UsageError
from qdebug.running.record import record_run

pytest.importorskip("executorch", reason="needs the extra executorch")

ROWS = np.random.default_rng(0).standard_normal((3, 1, 4, 6)).astype(np.float32)


def module(forward, **buffers):
    """Make a module of a function."""
    import torch

    class Made(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name, value in buffers.items():
                self.register_buffer(name, value)

        def forward(self, x):
            return forward(self, x)

    return Made().eval()


def program(tmp_path, net, example=ROWS[0]):
    """Lower a module for portable kernels."""
    import torch
    from executorch.exir import to_edge_transform_and_lower

    exported = torch.export.export(net, (torch.tensor(example),), strict=True)
    with torch.no_grad():
        to_edge_transform_and_lower(exported).to_executorch().save(str(tmp_path / "net.pte"))
    return tmp_path / "net.pte"


def record(tmp_path, path, inputs, **more):
    summary = record_run(
        path, backend="executorch", inputs={"input_0": inputs}, out=tmp_path / "x.h5", force=True, **more
    )
    return summary, qdebug.open_recording(tmp_path / "x.h5")


def several(self, x):
    import torch

    first, second = torch.split(x, 2, 1)
    largest, where = torch.max(second, 2)
    return first.sin(), largest, where


def test_every_output_of_every_instruction_is_recorded(tmp_path):
    summary, recording = record(tmp_path, program(tmp_path, module(several)), ROWS[0])
    assert summary.fidelity == "bit_equal"
    assert summary.skipped == {}
    first, second = ROWS[0][:, :2], ROWS[0][:, 2:]
    split = next(node for node in recording.graph.nodes if "split" in node.op)
    assert split.op == "aten::split_with_sizes_copy"
    assert split.attrs["split_sizes"] == (2, 2)
    assert np.array_equal(recording.load(split.outputs[0]), first)
    assert np.array_equal(recording.load(split.outputs[1]), second)
    largest = next(node for node in recording.graph.nodes if node.op == "aten::max")
    assert largest.inputs == (split.outputs[1],)
    assert np.array_equal(recording.load(largest.outputs[0]), second.max(axis=2))
    assert np.array_equal(recording.load(largest.outputs[1]), second.argmax(axis=2))


def test_constants_attributes_and_scales_come_from_the_program(tmp_path, digits):
    import executorch.kernels.quantized  # noqa: F401
    import torch
    from executorch.exir import to_edge_transform_and_lower

    path = tmp_path / "int8.pte"
    to_edge_transform_and_lower(torch.export.load(digits["int8"])).to_executorch().save(str(path))
    with np.load(load_digits()) as archive:
        summary, recording = record(tmp_path, path, archive["x"][:4], samples=4)
    assert summary.fidelity == "bit_equal"
    nodes = {node.name: node for node in recording.graph.nodes}
    first = nodes["convolution"]
    assert (first.attrs["stride"], first.attrs["padding"], first.attrs["groups"]) == ((1, 1), (1, 1), 1)
    codes = recording.graph.tensors[nodes["quantize_per_tensor"].outputs[0]]
    assert codes.quant is not None
    assert codes.quant.scale.size == 1
    weight = recording.graph.tensors[nodes["dequantize_per_channel"].inputs[0]]
    assert weight.quant is not None
    assert (weight.dtype, weight.quant.axis, weight.quant.scale.shape) == ("int8", 0, (8,))
    held = recording.load(weight.name).astype(np.float32) * recording.graph.tensors[weight.name].quant.scale[
        :, None, None, None
    ].astype(np.float32)
    assert np.allclose(held, recording.load(nodes["dequantize_per_channel"].outputs[0]), rtol=1e-6)
    assert not [node for node in qdebug.explain(recording).nodes if node.status == "unexplained"]


def test_a_number_that_stands_in_place_of_a_tensor_is_a_constant(tmp_path):
    _, recording = record(tmp_path, program(tmp_path, module(lambda _, x: x**3)), ROWS[0])
    (node,) = recording.graph.nodes
    assert (node.op, node.inputs, node.placement) == ("aten::pow", ("input_0", "pow.exponent"), "portable")
    assert recording.load("pow.exponent") == 3
    assert [each.status for each in qdebug.explain(recording).nodes] == ["in_band"]


def test_an_operator_that_pytorch_does_not_know_must_be_registered(tmp_path):
    path = program(tmp_path, module(several))
    path.write_bytes(path.read_bytes().replace(b"aten::sin", b"aten::sim"))
    with pytest.raises(BackendError, match="'aten::sim' of the program is not registered") as caught:
        record(tmp_path, path, ROWS[0], taps="outputs")
    assert caught.value.hint.startswith("Register it and its kernel")


def load_digits():
    from pathlib import Path

    return Path(__file__).resolve().parents[3] / "samples" / "digits" / "digits_test.npz"


def test_state_is_kept_over_steps_and_forgotten_between_samples(tmp_path):
    import torch

    def add(self, x):
        self.total.add_(x)
        return self.total * 2

    path = program(tmp_path, module(add, total=torch.zeros(1, 4, 6)))
    summary, recording = record(tmp_path, path, np.stack([ROWS, ROWS]), samples=2, steps=3)
    assert summary.fidelity == "bit_equal"
    assert list(summary.skipped.values()) == ["ExecuTorch does not show the values of a state before a run"]
    (out,) = recording.graph.outputs
    for sample in range(2):
        for step in range(3):
            total = np.add.accumulate(ROWS)[step]
            assert np.array_equal(recording.load(out, sample, step), total * 2)


def test_an_empty_trace_is_an_error_that_says_why(tmp_path, monkeypatch):
    from executorch.runtime import Program

    monkeypatch.setattr(Program, "write_etdump_result_to_file", lambda *_: None)
    path = program(tmp_path, module(several))
    with pytest.raises(BackendError, match=r"trace of the run is empty: .* without the event tracer"):
        record(tmp_path, path, ROWS[0])
    assert not (tmp_path / "x.h5").exists()
    summary, recording = record(tmp_path, path, ROWS[0], taps="outputs", weights=False)
    assert summary.fidelity == "bit_equal"
    assert set(recording.names) == {*recording.graph.inputs, *recording.graph.outputs}


def test_recording_that_changes_the_outputs_is_told(tmp_path, monkeypatch):
    from qdebug.backends.executorch.ops import LoadedProgram

    own = LoadedProgram.__init__

    def shifted(self, content, method, *, trace_bytes=0):
        own(self, content, method, trace_bytes=trace_bytes)
        run = self.run
        self.run = lambda feed: [each + 1 if trace_bytes and each.dtype == np.float32 else each for each in run(feed)]

    monkeypatch.setattr(LoadedProgram, "__init__", shifted)
    summary, _ = record(tmp_path, program(tmp_path, module(several)), ROWS[0])
    assert summary.fidelity == "differs"
    assert "by up to 1" in summary.fidelity_detail


def test_values_that_are_no_numbers_pass_through(tmp_path):
    inputs = ROWS[0].copy()
    inputs[0, 0, 0] = np.nan
    summary, recording = record(tmp_path, program(tmp_path, module(lambda _, x: x.abs())), inputs)
    assert summary.fidelity == "bit_equal"
    assert np.isnan(recording.load(recording.graph.outputs[0])[0, 0, 0]).all()


@pytest.mark.parametrize(
    ("options", "named"),
    [({"method": "backward"}, "no method 'backward'; it has: forward"), ({"delegate": "gpu"}, "xnnpack, portable")],
)
def test_wrong_options_are_named(tmp_path, options, named):
    with pytest.raises(UsageError, match=named):
        load_backend("executorch").open(program(tmp_path, module(several)), options=options)


def test_wrong_inputs_are_named(tmp_path):
    with pytest.raises(InputError, match=r"expected \[1, 4, 6\]"):
        record(tmp_path, program(tmp_path, module(several)), ROWS)


@pytest.mark.parametrize("keep", [0, 10, 400, 900])
def test_a_file_that_is_no_program_is_refused(tmp_path, keep):
    whole = program(tmp_path, module(several)).read_bytes()
    path = tmp_path / "cut.pte"
    path.write_bytes(whole[:keep])
    with pytest.raises((UsageError, BackendError), match=r"is not an ExecuTorch program|cannot be read"):
        load_backend("executorch").open(path, options={})


def test_a_recording_is_no_program(tmp_path):
    _, recording = record(tmp_path, program(tmp_path, module(several)), ROWS[0])
    with pytest.raises(UsageError, match="not recordings"):
        load_backend("executorch").open(recording, options={})
