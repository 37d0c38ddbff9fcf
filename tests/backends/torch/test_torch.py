"""Programs of torch.export: recorded node by node, described so that they are replayed, the same as a plain run."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import qdebug
from qdebug.backends.torch.adapter import backend
from qdebug.errors import BackendError, InputError, UsageError
from qdebug.model import Fidelity
from qdebug.running.record import record_run

torch = pytest.importorskip("torch", reason="needs the extra torch")
nn = torch.nn

SAMPLES = Path(__file__).resolve().parents[3] / "samples" / "digits"


def recorded(path, feed, out, **options):
    summary = record_run(path, backend="torch", inputs=feed, out=out, **options)
    return summary, qdebug.open_recording(out)


def test_the_digits_net_is_that_of_onnx_runtime(digits, export, tmp_path):
    pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    model, x = digits
    ort = {"backend": "onnxruntime", "options": {"opt": "none"}, "out": tmp_path / "ort.h5"}
    record_run(SAMPLES / "digits.onnx", inputs={"x": x}, **ort)
    summary, ours = recorded(export(model, torch.from_numpy(x)), {"x": x}, tmp_path / "torch.h5")
    assert summary.fidelity is Fidelity.BIT_EQUAL
    (place,) = ours.graph.producer("conv1").origin
    assert place.startswith("conv1 (nets.py:")
    result = qdebug.diff(tmp_path / "ort.h5", tmp_path / "torch.h5")
    assert result.exit_code == 0
    nodes = [node.node for node in result.nodes]
    assert nodes == ["x", *(name for name, _ in model.named_children())]
    assert all(node.arithmetic is not None for node in result.nodes[1:])


def test_a_recording_is_replayed_by_the_interpreter(digits, export, tmp_path):
    model, x = digits
    recorded(export(model, torch.from_numpy(x)), {"x": x}, tmp_path / "torch.h5")
    record_run(tmp_path / "torch.h5", backend="interpreter", inputs={"x": x}, out=tmp_path / "twin.h5")
    assert qdebug.diff(tmp_path / "torch.h5", tmp_path / "twin.h5").status == "within"


def test_a_program_that_overwrites_tensors_is_run_without_and_its_buffers_are_states(overwriting, export, tmp_path):
    model, plain, x = overwriting
    path = export(model, x)
    feed = {"x": np.stack([x.numpy()] * 3)}
    summary, ours = recorded(path, feed, tmp_path / "run.h5", steps=3)
    assert (summary.fidelity, ours.steps) == (Fidelity.BIT_EQUAL, 3)
    assert [ours.load("calls", 0, step).item() for step in range(3)] == [0, 1, 2]
    (output,) = ours.graph.outputs
    wanted = plain(x).detach().numpy()
    assert ours.load(output, 0, 2) == pytest.approx(wanted + 3, abs=1e-6)
    assert not any(node.op.partition(".")[2].endswith("_") for node in ours.graph.nodes)


class Decoding(nn.Module):
    """One step of a decoder: keys of earlier steps are an input, and an output with those of this step."""

    def __init__(self):
        super().__init__()
        self.key, self.word = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, keys):
        keys = torch.cat([keys[:, 1:], self.key(x)[:, None]], 1)
        weights = (keys @ self.word(x)[..., None]).softmax(1)
        return (weights * keys).sum(1), keys


def test_what_one_step_keeps_is_fed_into_the_next(seeded, export, tmp_path):
    model, x = seeded(Decoding), np.random.default_rng(0).normal(size=(5, 1, 4)).astype(np.float32)
    path = export(model, torch.from_numpy(x[0]), torch.zeros(1, 3, 4))
    summary, ours = recorded(path, {"x": x}, tmp_path / "run.h5", steps=5, states=["cat=keys"])
    assert (summary.fidelity, ours.steps, len(summary.states)) == (Fidelity.BIT_EQUAL, 5, 1)
    assert ours.load("keys", 0, 0).any() == np.False_
    for step in range(1, 5):
        np.testing.assert_array_equal(ours.load("keys", 0, step), ours.load("cat", 0, step - 1))
    narrow = export(model.bfloat16(), *(torch.zeros(size, dtype=torch.bfloat16) for size in ((1, 4), (1, 3, 4))))
    recorded(narrow, {"x": x.astype(ml_dtypes.bfloat16)}, tmp_path / "narrow.h5", steps=5, states=["cat=keys"])
    result = qdebug.diff(tmp_path / "run.h5", tmp_path / "narrow.h5")
    assert result.status == "within"
    assert all(node.arithmetic is not None for node in result.nodes if node.op != "Input")


def test_a_batch_may_be_of_any_extent(export, tmp_path):
    batch = torch.export.Dim("batch", min=1, max=8)
    path = export(nn.Linear(4, 3), torch.zeros(2, 4), dynamic_shapes={"input": {0: batch}})
    _, ours = recorded(path, {"input": np.ones((5, 4), np.float32)}, tmp_path / "run.h5")
    assert ours.load("linear").shape == (5, 3)
    assert qdebug.diff(tmp_path / "run.h5", tmp_path / "run.h5").nodes[1].arithmetic is not None


class Parts(nn.Module):
    """Several results of one operator, of which one is not read; numbers in place of tensors; no tensor."""

    def forward(self, x, *, scale=1.5):
        first, _, third = x.split(2, dim=1)
        return {"sum": first * scale + third, "none": None, "number": 3, "same": x}


def test_results_that_nothing_reads_are_left_out_and_numbers_are_constants(export, tmp_path):
    _, ours = recorded(export(Parts(), torch.ones(2, 6)), {"x": np.ones((2, 6), np.float32)}, tmp_path / "run.h5")
    split, product, _ = ours.graph.nodes
    assert split.outputs == ("split", "", "split:2")
    assert product.inputs == ("split", "mul.other")
    assert ours.load("mul.other") == np.float32(1.5)
    assert {node.placement for node in ours.graph.nodes} == {"cpu"}
    assert ours.graph.outputs == ("add", "x")


def test_narrow_floats_keep_their_type(export, tmp_path):
    path = export(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).bfloat16(), torch.zeros(2, 4, dtype=torch.bfloat16))
    feed = {"input": np.ones((2, 4), ml_dtypes.bfloat16)}
    summary, ours = recorded(path, feed, tmp_path / "run.h5")
    assert summary.fidelity is Fidelity.BIT_EQUAL
    assert {ours.load(name).dtype.name for name in ours.names} == {"bfloat16"}


class Choosing(nn.Module):
    """Control flow that torch.export keeps."""

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,)) + 1


def test_what_runs_inside_control_flow_is_said_to_be_left_out(export, tmp_path):
    _, ours = recorded(export(Choosing(), torch.ones(2)), {"x": np.ones(2, np.float32)}, tmp_path / "run.h5")
    assert ours.info.options["note"] == "what runs inside 'cond' is not recorded"
    assert "cond" in [node.name for node in ours.graph.nodes]


def test_taps_of_outputs_record_inputs_and_outputs(digits, export, tmp_path):
    model, x = digits
    _, ours = recorded(export(model, torch.from_numpy(x)), {"x": x}, tmp_path / "run.h5", taps="outputs", weights=False)
    assert set(ours.names) == {"x", "logits"}


def test_not_a_number_stays_one(export, tmp_path):
    path = export(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.zeros(2, 4))
    summary, ours = recorded(path, {"input": np.full((2, 4), np.nan, np.float32)}, tmp_path / "run.h5")
    assert summary.fidelity is Fidelity.BIT_EQUAL
    assert np.isnan(ours.load("1")).all()


def test_files_that_are_no_programs_are_refused(tmp_path):
    broken = tmp_path / "broken.pt2"
    broken.write_bytes(b"nothing")
    with pytest.raises(UsageError, match="cannot be read as an exported program") as error:
        backend.open(broken, options={})
    assert "torch.export.save" in error.value.hint
    with pytest.raises(UsageError, match="threads"):
        backend.open(broken, options={"threads": "many"})
    for option in ("disable", "enable"):
        with pytest.raises(UsageError, match=f"'{option}' is for inductor, which is not in use"):
            backend.open(broken, options={option: "freezing"})
    for name in ("no_such_setting", "max_fusion_size"):  # the second is a number
        with pytest.raises(UsageError, match=name):
            backend.open(broken, options={"disable": f"freezing+{name}", "compile": "inductor"})
    with pytest.raises(UsageError, match="Taps"):
        backend.open(broken, options={}, taps="some")


def test_inputs_that_the_program_does_not_take_are_refused(export, tmp_path):
    path = export(nn.Linear(4, 4), torch.zeros(2, 4))
    with pytest.raises(InputError, match=r"has shape \[3, 4\]; expected \[2, 4\]"):
        recorded(path, {"input": np.ones((3, 4), np.float32)}, tmp_path / "run.h5")
    assert not (tmp_path / "run.h5").exists()


def test_a_failure_inside_pytorch_is_one_sentence(export, tmp_path):
    path = export(nn.Embedding(4, 2), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(BackendError, match="PyTorch failed: index out of range"):
        recorded(path, {"input": np.full(2, 9)}, tmp_path / "run.h5")
