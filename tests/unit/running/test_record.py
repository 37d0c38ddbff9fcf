"""Recording a run: what comes of it, what is refused, and what is left behind when it goes wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import qdebug
from qdebug import data
from qdebug.backends.interpreter import InterpreterRun
from qdebug.errors import (
    BackendError,
    FormatVersionError,
    InputError,
    NoKernelError,
    NotARecordingError,
    OutputExistsError,
    QdebugError,
    RecordingError,
    UsageError,
)
from qdebug.model import Fidelity, Graph, Node, Role, TensorInfo
from qdebug.recording.recorder import Recorder
from qdebug.running.record import RecordSummary, record_run

DIGITS = Path(__file__).resolve().parents[3] / "samples" / "digits"


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    with np.load(data.INPUTS) as archive:
        return archive["x"]


def run(out: Path, x, *, model: Path = data.INT8_NET, backend: str = "interpreter", **rest) -> RecordSummary:
    inputs = rest.pop("inputs", {"x": x})
    return record_run(model, backend=backend, inputs=inputs, out=out, **rest)


def only(folder: Path, *names: str) -> None:
    assert sorted(entry.name for entry in folder.iterdir()) == sorted(names)


def test_a_recording_is_replayed_and_checked(tmp_path, x):
    out = tmp_path / "run.h5"
    summary = run(out, x, samples=3)
    assert isinstance(summary, RecordSummary)
    assert (summary.path, summary.samples, summary.steps) == (out, 3, 1)
    assert summary.fidelity is Fidelity.BIT_EQUAL
    assert summary.bytes == out.stat().st_size
    assert dict(summary.skipped) == {}
    recording = qdebug.open_recording(out)
    assert summary.tensors == len(recording.names)
    assert recording.info.complete
    assert recording.info.fidelity is Fidelity.BIT_EQUAL
    assert recording.info.backend == "interpreter"
    assert recording.samples == 3
    for sample in range(3):
        np.testing.assert_array_equal(recording.load("x", sample), x[sample])
        for node in recording.graph.nodes:
            assert all(recording.has(output, sample) for output in node.outputs)
    only(tmp_path, "run.h5")


def test_inputs_come_from_a_file_as_from_a_mapping(tmp_path, x):
    run(tmp_path / "a.h5", x, samples=2)
    run(tmp_path / "b.h5", None, inputs=data.INPUTS, samples=2)
    run(tmp_path / "c.h5", None, inputs=str(data.INPUTS), samples=2)
    first, *others = (qdebug.open_recording(tmp_path / f"{name}.h5") for name in "abc")
    for other in others:
        for name in first.names:
            assert first.load(name).tobytes() == other.load(name).tobytes()


def test_a_run_without_samples_is_one_sample(tmp_path, x):
    assert run(tmp_path / "run.h5", x[0]).samples == 1


def test_samples_without_a_batch_axis_get_one(tmp_path, x):
    run(tmp_path / "with.h5", x, samples=2)
    run(tmp_path / "without.h5", x[:, 0], samples=2)
    one, other = (qdebug.open_recording(tmp_path / f"{name}.h5") for name in ("with", "without"))
    np.testing.assert_array_equal(one.load("logits", 1), other.load("logits", 1))


def test_steps_are_the_axis_after_samples(tmp_path, x):
    summary = run(tmp_path / "run.h5", x[:6].reshape(2, 3, 1, 1, 8, 8), samples=2, steps=3)
    assert (summary.samples, summary.steps) == (2, 3)
    recording = qdebug.open_recording(tmp_path / "run.h5")
    np.testing.assert_array_equal(recording.load("x", 1, 2), x[5])
    assert summary.fidelity is Fidelity.BIT_EQUAL


def test_without_weights_no_constant_is_kept(tmp_path, x):
    run(tmp_path / "run.h5", x[0], weights=False)
    recording = qdebug.open_recording(tmp_path / "run.h5")
    assert not any(recording.graph.is_constant(name) for name in recording.names)
    with pytest.raises(UsageError, match="not stored") as caught:
        run(tmp_path / "again.h5", x[0], model=tmp_path / "run.h5")
    assert "--no-weights" in caught.value.hint
    only(tmp_path, "run.h5")


def test_taps_outputs_keep_inputs_and_outputs(tmp_path, x):
    run(tmp_path / "run.h5", x[0], taps="outputs", weights=False)
    assert set(qdebug.open_recording(tmp_path / "run.h5").names) == {"x", "logits"}


def test_a_file_that_exists_is_kept_unless_forced(tmp_path, x):
    out = tmp_path / "run.h5"
    out.write_bytes(b"precious")
    with pytest.raises(OutputExistsError) as caught:
        run(out, x[0])
    assert "--force" in caught.value.hint
    assert out.read_bytes() == b"precious"
    run(out, x[0], force=True)
    assert qdebug.open_recording(out).samples == 1
    only(tmp_path, "run.h5")


def test_what_a_recording_is_made_from_is_never_overwritten(tmp_path, x):
    net = tmp_path / "net.h5"
    net.write_bytes(data.INT8_NET.read_bytes())
    inputs = tmp_path / "inputs.npz"
    np.savez(inputs, x=x[0])
    for out in (net, inputs):
        before = out.read_bytes()
        with pytest.raises(UsageError, match="overwrite its source"):
            run(out, None, model=net, inputs=inputs, force=True)
        assert out.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"backend": "npu"}, UsageError, "Unknown backend 'npu'; known backends: interpreter"),
        ({"options": {"speed": "high"}}, UsageError, "no option 'speed'"),
        ({"options": {"arithmetic": "odd"}}, UsageError, "no arithmetic 'odd'. Known arithmetics are onnx-spec"),
        ({"taps": "some"}, UsageError, "faithful, all, outputs"),
        ({"samples": 0}, UsageError, "at least 1"),
        ({"samples": 11}, InputError, "11 samples were requested"),
        ({"inputs": {"y": np.zeros(1)}}, InputError, "found 'y', expected 'x'"),
        ({"inputs": {"x": np.zeros((1, 1, 8, 8))}}, InputError, "dtype float64; expected float32"),
        (
            {"inputs": {"x": np.zeros((1, 1, 8, 9), np.float32)}},
            InputError,
            r"\[1, 1, 8, 9\]; expected \[\?, 1, 8, 8\]",
        ),
        ({"inputs": Path("missing.npz")}, InputError, "no input file"),
        ({"model": Path("missing.onnx")}, UsageError, "no model file"),
        ({"model": Path(__file__).parent}, UsageError, "is a folder"),
        ({"model": Path(__file__)}, UsageError, "Unknown kind of model file"),
        ({"out": Path("no/such/folder/run.h5")}, RecordingError, "no/such/folder"),
    ],
)
def test_what_does_not_fit_is_one_sentence_and_leaves_nothing(tmp_path, monkeypatch, x, change, error, message):
    monkeypatch.chdir(tmp_path)
    arguments = {"out": Path("run.h5"), "model": data.INT8_NET, "inputs": {"x": x[0]}, "backend": "interpreter"}
    with pytest.raises(error, match=message) as caught:
        record_run(**{**arguments, **change})
    assert "\n" not in str(caught.value)
    assert caught.value.hint
    only(tmp_path)


def test_a_damaged_recording_and_a_newer_one_are_no_models(tmp_path, x):
    whole = data.INT8_NET.read_bytes()
    broken = tmp_path / "broken.h5"
    broken.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RecordingError):
        run(tmp_path / "run.h5", x[0], model=broken)
    h5py = pytest.importorskip("h5py")
    foreign = tmp_path / "foreign.h5"
    with h5py.File(foreign, "w") as file:
        file["a"] = [1]
    with pytest.raises(NotARecordingError):
        run(tmp_path / "run.h5", x[0], model=foreign)
    newer = tmp_path / "newer.h5"
    newer.write_bytes(whole)
    with h5py.File(newer, "r+") as file:
        file.attrs.modify("format_version", np.int32(99))
    with pytest.raises(FormatVersionError, match="99"):
        run(tmp_path / "run.h5", x[0], model=newer)
    only(tmp_path, "broken.h5", "foreign.h5", "newer.h5")


def test_an_operator_without_kernel_is_named(tmp_path):
    graph = Graph(
        [Node(name="odd", op="Frobnicate", inputs=("x",), outputs=("y",))],
        tensors=[TensorInfo(name="x", shape=(1, 3), dtype="float32", role=Role.INPUT)],
        inputs=("x",),
        outputs=("y",),
    )
    with qdebug.Recorder(tmp_path / "odd.h5", backend="npu", graph=graph) as recorder:
        recorder.put("x", np.zeros((1, 3), np.float32))
        recorder.put("y", np.zeros((1, 3), np.float32))
    with pytest.raises(NoKernelError, match="Frobnicate"):
        run(tmp_path / "run.h5", np.zeros((1, 3), np.float32), model=tmp_path / "odd.h5")
    only(tmp_path, "odd.h5")


@pytest.mark.parametrize("error", [BackendError("The device is gone."), OSError(28, "No space left"), MemoryError()])
def test_a_failure_in_the_middle_leaves_nothing(tmp_path, x, monkeypatch, error):
    original = InterpreterRun.record

    def failing(self, feeds, recorder, on_progress=None):
        original(self, feeds, recorder, on_progress)
        raise error

    monkeypatch.setattr(InterpreterRun, "record", failing)
    with pytest.raises(type(error)):
        run(tmp_path / "run.h5", x, samples=2)
    only(tmp_path)


def test_a_failure_keeps_the_file_that_was_to_be_replaced(tmp_path, x, monkeypatch):
    out = tmp_path / "run.h5"
    run(out, x, samples=2)

    def failing(self, feeds, recorder, on_progress=None):
        raise BackendError("The device is gone.")

    monkeypatch.setattr(InterpreterRun, "record", failing)
    with pytest.raises(BackendError):
        run(out, x, samples=4, force=True)
    assert qdebug.open_recording(out).samples == 2
    only(tmp_path, "run.h5")


def test_an_interrupted_run_is_kept_and_marked(tmp_path, x):
    out = tmp_path / "run.h5"

    def stop(done: int, total: int, label: str) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(out, x, samples=5, on_progress=stop)
    recording = qdebug.open_recording(out)
    assert not recording.info.complete
    assert recording.samples == 2
    assert recording.info.fidelity is Fidelity.UNKNOWN
    only(tmp_path, "run.h5")


def test_a_run_interrupted_behind_its_outputs_is_finished_without_the_rest(tmp_path, x, monkeypatch):
    original = InterpreterRun.record

    def outputs_first(self, feeds, recorder, on_progress=None):
        memory = Recorder(None, graph=self.graph, backend="interpreter")
        original(self, feeds, memory)
        memory.close()
        for name in (*self.graph.inputs, *self.graph.outputs):
            for sample in range(feeds.samples):
                recorder.at(sample)
                recorder.put(name, memory.recording.load(name, sample))
        raise KeyboardInterrupt

    monkeypatch.setattr(InterpreterRun, "record", outputs_first)
    out = tmp_path / "run.h5"
    with pytest.raises(KeyboardInterrupt):
        run(out, x, samples=3)
    recording = qdebug.open_recording(out)
    assert recording.info.complete
    assert recording.info.fidelity is Fidelity.BIT_EQUAL
    assert "checked for 1 of 3" in recording.info.fidelity_detail
    assert set(recording.info.skipped.values()) == {"given up: the recording was interrupted"}
    only(tmp_path, "run.h5")
    assert qdebug.diff(recording, recording).exit_code == 0


def test_a_run_interrupted_before_the_first_tensor_keeps_nothing(tmp_path, x, monkeypatch):
    def stop(self, feeds, recorder, on_progress=None):
        raise KeyboardInterrupt

    monkeypatch.setattr(InterpreterRun, "record", stop)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run.h5", x, samples=2)
    only(tmp_path)


def test_a_plain_run_that_differs_is_said(tmp_path, x, monkeypatch):
    original = InterpreterRun.plain

    def other(self, feed):
        return {name: array + np.float32(0.5) for name, array in original(self, feed).items()}

    monkeypatch.setattr(InterpreterRun, "plain", other)
    summary = run(tmp_path / "run.h5", x, samples=2)
    assert summary.fidelity is Fidelity.DIFFERS
    assert "0.5" in summary.fidelity_detail
    assert qdebug.open_recording(tmp_path / "run.h5").info.fidelity is Fidelity.DIFFERS


def test_runs_are_closed_whatever_happens(tmp_path, x, monkeypatch):
    closed: list[bool] = []
    monkeypatch.setattr(InterpreterRun, "close", lambda self: closed.append(True))
    run(tmp_path / "run.h5", x[0])
    with pytest.raises(QdebugError):
        run(tmp_path / "other.h5", x[0, 0, 0])
    assert closed == [True, True]


def test_an_onnx_file_runs_in_both_backends(tmp_path, x):
    pytest.importorskip("onnxruntime")
    model = DIGITS / "digits.onnx"
    run(tmp_path / "one.h5", x, model=model, samples=2)
    summary = run(tmp_path / "two.h5", x, model=model, backend="onnxruntime", options={"opt": "none"}, samples=2)
    assert summary.fidelity is Fidelity.BIT_EQUAL
    result = qdebug.diff(tmp_path / "one.h5", tmp_path / "two.h5")
    assert len([node for node in result.nodes if node.op != "Input"]) == 14
    assert all(node.metrics.sqnr_db > 100 for node in result.nodes if node.metrics is not None)


@pytest.mark.parametrize(("samples", "said"), [(1, None), (2, "2 of 128 values of input 'x' are NaN or infinite")])
def test_inputs_that_are_not_finite_are_recorded_and_said(tmp_path, x, samples, said):
    x = x.copy()
    x[1, 0, 0, :2, 0] = np.nan, np.inf
    run(tmp_path / "run.h5", x, model=data.FLOAT_NET, samples=samples)
    assert qdebug.open_recording(tmp_path / "run.h5").info.options.get("note") == said


@pytest.mark.parametrize("steps", [None, 2])
@pytest.mark.parametrize(("node", "unsteady"), [("pwconv_quant", True), (None, False)])
def test_a_backend_that_differs_from_run_to_run_is_told_from_one_that_recording_disturbs(
    tmp_path, x, monkeypatch, node, unsteady, steps
):
    """A kernel that leaves what lay in memory, and a tap that changes the outputs."""
    plain, runs = InterpreterRun.plain, iter(range(1, 1000))

    def disturbed(self, feed):
        off = next(runs) if unsteady else 1
        return {name: array + np.asarray(off, array.dtype) for name, array in plain(self, feed).items()}

    monkeypatch.setattr(InterpreterRun, "plain", disturbed)
    values = x[:2] if steps is None else np.stack([x[:2], x[2:4]], axis=1)
    summary = run(tmp_path / "run.h5", values, samples=2, steps=steps)
    assert summary.fidelity is (Fidelity.NONDETERMINISTIC if unsteady else Fidelity.DIFFERS)
    assert ("two plain runs on the same inputs differ" in summary.fidelity_detail) is unsteady
    result = qdebug.diff(tmp_path / "run.h5", tmp_path / "run.h5")
    assert result.exit_code == (0 if unsteady else 3)


def test_the_node_whose_values_change_from_run_to_run_is_named(tmp_path, x, monkeypatch):
    compute, runs = InterpreterRun.record, iter(range(1, 1000))

    class Shaky:
        """Puts other values of one tensor, and of what is made of it, at each run."""

        def __init__(self, recorder):
            self.recorder, self.off = recorder, next(runs)

        def put(self, name, array, **facts):
            late = name in ("pwconv_quantized", "pool2_quantized")
            self.recorder.put(name, array + np.asarray(self.off % 7, array.dtype) if late else array, **facts)

        def __getattr__(self, name):
            return getattr(self.recorder, name)

    monkeypatch.setattr(InterpreterRun, "record", lambda self, feeds, rec, *a: compute(self, feeds, Shaky(rec), *a))
    plain = InterpreterRun.plain
    monkeypatch.setattr(
        InterpreterRun,
        "plain",
        lambda self, feed: {k: v + np.asarray(next(runs) % 5, v.dtype) for k, v in plain(self, feed).items()},
    )
    summary = run(tmp_path / "run.h5", x, samples=1)
    assert summary.fidelity is Fidelity.NONDETERMINISTIC
    assert "values change from run to run at QLinearConv 'pwconv_quant', on equal inputs" in summary.fidelity_detail
